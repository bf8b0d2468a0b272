"""Architectures from other libraries, lowered at two levels and run on both runtimes: what goes, and what not."""
