"""Measure what kernels of the official runtime take, and what they cost."""
