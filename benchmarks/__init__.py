"""Measurements, as ratios taken side by side in one run; see README.md in this folder."""
