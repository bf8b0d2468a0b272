"""Trials of rules on values and programs: of what any rule says, and of each construct of the language."""
