"""Recorded values agree with what the operators compute."""
