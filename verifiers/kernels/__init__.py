"""Calls against the conditions of the kernels that run them."""
