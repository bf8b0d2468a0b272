"""Quantizers as data: which values of a model are quantized, and how, before it is lowered."""
