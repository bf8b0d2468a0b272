"""From a failure to the guilty pass, a small program, a script and a bucket."""

from .blaming import blame
from .buckets import bucket, skeleton
from .guilt import Guilt
from .reducing import reduce, same_failure, with_fewer_choices
from .repro import repro_script
from .upstream import upstream_script

__all__ = [
    "Guilt",
    "blame",
    "bucket",
    "reduce",
    "repro_script",
    "same_failure",
    "skeleton",
    "upstream_script",
    "with_fewer_choices",
]
