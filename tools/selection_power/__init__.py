"""Measures how many mutants of the product the quick selection of tests kills: `python -m tools.selection_power`."""
