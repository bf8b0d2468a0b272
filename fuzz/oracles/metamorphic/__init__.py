"""Metamorphic oracles: another program that must compute the same."""
