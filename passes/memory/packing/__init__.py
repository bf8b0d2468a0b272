"""Packing of byte ranges into arenas, in plain numbers."""
