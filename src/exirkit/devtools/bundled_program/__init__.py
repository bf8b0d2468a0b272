"""A program with test cases in one file (`.bpte`): made, read and verified."""
