"""Facts about programs that several passes use."""
