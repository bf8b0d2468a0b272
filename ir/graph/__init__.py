"""Graphs and programs: the editor with its journal, control flow, metadata, names, stored tensors."""
