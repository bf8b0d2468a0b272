"""Replacements of operators and layouts for which the runtime has no kernel."""
