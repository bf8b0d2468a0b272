"""Matching patterns against graphs."""
