"""Passes from core ATen to Edge."""
