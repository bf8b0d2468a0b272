"""Architectures that nobody here wrote, lowered at every level and run on both runtimes: what goes and what does not."""
