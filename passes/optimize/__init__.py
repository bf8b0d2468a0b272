"""Passes that make programs smaller or faster."""
