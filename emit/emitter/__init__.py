"""Lowered methods become one program."""
