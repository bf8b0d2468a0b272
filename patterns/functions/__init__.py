"""Builtins that guards, `let` and replacements may call."""
