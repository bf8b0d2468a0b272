"""Oracles that ask the official exporter and runtime."""
