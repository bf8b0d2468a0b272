"""Passes from an exported program to functional core ATen."""
