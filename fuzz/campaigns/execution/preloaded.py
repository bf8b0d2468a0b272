"""What worker processes need, imported before they are forked; torch gets one thread before it starts any."""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

from . import work

__all__ = ["work"]
