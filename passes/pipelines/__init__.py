"""Pipelines as data: files that list which passes and rules run in which order, checked before they run."""
