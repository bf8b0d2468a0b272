"""From a failure to the guilty pass, a small program, a script and a bucket."""

from .buckets import bucket, skeleton
from .culprit import Guilt
from .localization import blame
from .reducing import reduce, same_failure, with_fewer_choices
from .repro import repro_script

__all__ = [
    "Guilt",
    "blame",
    "bucket",
    "reduce",
    "repro_script",
    "same_failure",
    "skeleton",
    "with_fewer_choices",
]
