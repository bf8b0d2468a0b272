"""Chooses the programs that campaigns start with: `python -m tools.seed_corpus`."""
