"""Architectures that nobody here wrote, lowered at two levels and run on both runtimes: what goes, and what not."""
