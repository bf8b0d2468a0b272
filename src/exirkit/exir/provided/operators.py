"""The handles of operators."""

from __future__ import annotations

from exirkit.ir import ops as ops

# Libraries whose operators the backend dialect has: all that torch knows, whatever is appended here.
_BACKEND_OP_LIB: list[str] = []
