"""The commands, one file each: its options, the call, the document of `--json`, and the report as text.

Nothing here imports torch before a command runs: `--help`, wrong usage and `exirkit explain` answer at once.
"""
