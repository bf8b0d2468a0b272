"""Passes that users bring: the documented contracts, and how they are run."""
