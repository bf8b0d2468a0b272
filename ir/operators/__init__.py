"""Operators of all dialects and the catalogue of facts about them."""
