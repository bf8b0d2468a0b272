"""Measure which dtypes operators take, and write the catalogue of dtypes."""
