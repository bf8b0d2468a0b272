"""Analyses of a whole graph as data: declarations, their checks, solvers, and the account of a solution."""
