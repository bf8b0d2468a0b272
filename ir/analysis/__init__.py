"""Analyses of graphs."""
