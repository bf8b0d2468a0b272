"""How inputs and outputs unflatten, as the JSON text that stands in a program."""

from __future__ import annotations

import json
from typing import Any

from torch.utils._pytree import TreeSpec

_PROTOCOL = 1


def container_text(spec: TreeSpec | None) -> str:
    """Return a pytree spec as JSON: `[1, {"type": ..., "context": ..., "children_spec": [...]}]`.

    Source: the text that `torch.utils._pytree.treespec_dumps` writes; a container type that is not registered for
        that is
    written under its own name.
    """
    return "" if spec is None else json.dumps([_PROTOCOL, _tree(spec)])


def _tree(spec: TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    return {
        "type": f"{spec.type.__module__}.{spec.type.__qualname__}",
        "context": json.dumps(_context(spec.context)),
        "children_spec": [_tree(child) for child in spec.children()],
    }


def _context(context: Any) -> Any:
    """Return what of a context can be written: keys of mappings, or null."""
    if context is None or isinstance(context, bool | int | float | str):
        return context
    if isinstance(context, list | tuple):
        return [_context(item) for item in context]
    return None
