"""The module tree of `executorch.exir`: code written for it runs here when its import lines say `exirkit.exir`.

`names.yaml` says where each name has its counterpart; `from exirkit.exir.pass_base import ExportPass` gives the same
class as `from exirkit import ExportPass`. Names are fetched on first use, so importing this package loads no torch.
"""

from __future__ import annotations

from typing import Any

from .mentions import Mention as Mention
from .mentions import counterpart as counterpart
from .mentions import mentions_of as mentions_of
from .migration import TO_EXIRKIT as TO_EXIRKIT
from .migration import Migration as Migration
from .migration import migrate_source as migrate_source
from .module_tree import install as _install
from .names import OFFICIAL as OFFICIAL
from .names import Absence as Absence
from .names import Home as Home
from .names import NameTable as NameTable
from .names import name_table as name_table

_resolve = _install(__name__)

# What `from exirkit.exir import *` gives: the names of `executorch.exir` itself.
__all__ = sorted(name_table().homes[""])


def __getattr__(name: str) -> Any:
    """Return the counterpart of a name of `executorch.exir` itself."""
    return _resolve(name)
