"""Applying rules to programs."""
