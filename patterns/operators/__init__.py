"""Operators as rules see them: names, facts, arguments, definitions, cost on a target."""
