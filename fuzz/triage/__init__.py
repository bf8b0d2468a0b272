"""From a failure to its culprit, a small program, a script and a bucket."""

from .analysis import Localized, localized
from .localization import Culprit, find_culprit
from .reducing import reduce, same_failure, smallest, with_fewer_choices
from .reporting import bucket, plain_line, repro_script, skeleton

__all__ = [
    "Culprit",
    "Localized",
    "bucket",
    "find_culprit",
    "localized",
    "plain_line",
    "reduce",
    "repro_script",
    "same_failure",
    "skeleton",
    "smallest",
    "with_fewer_choices",
]
