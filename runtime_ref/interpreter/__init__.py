"""Runs the instructions of a method."""
