"""Kernels of the reference runtime, by operator."""
