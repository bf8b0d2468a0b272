"""Patterns of rules, and models, inserted into random programs: whole, nearly, and with other values."""
