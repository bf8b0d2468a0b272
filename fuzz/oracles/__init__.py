"""What must hold for every program, from cheap to dear."""
