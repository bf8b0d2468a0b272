"""Fuzzing of the loader under atheris: damaged program files end in a program or in one of two errors, soon.

`python -m exirkit.fuzz.loader` runs it; the processes that load files are `child.py`.
"""

from .campaign import LoaderFuzzing, State, Totals
from .findings import ChildDiedError, Finding, TooLongError, TooMuchMemoryError, saved_findings
from .seeds import seed_files

__all__ = [
    "ChildDiedError",
    "Finding",
    "LoaderFuzzing",
    "State",
    "TooLongError",
    "TooMuchMemoryError",
    "Totals",
    "saved_findings",
    "seed_files",
]
