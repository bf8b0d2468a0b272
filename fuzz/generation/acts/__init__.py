"""Calls that belong together, and that programs have by request: what compilers mistake for something else."""
