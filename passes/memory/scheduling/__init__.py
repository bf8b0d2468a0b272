"""The order of independent instructions, so that less memory is needed at once."""
