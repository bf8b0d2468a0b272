"""The dtypes and shapes of outputs, on which callers rely: only a pass that declares it may change them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from exirkit.ir import ContractError, Diagnostic, Location, locate, show_value

from .user_passes.blame import code_of_pass, name_of_pass

Outputs = Mapping[str, tuple[Any, Node | None]]
"""Recorded value of every output that has one, and the node behind it, by the name that messages give the output."""


def outputs_of(program: ExportedProgram) -> Outputs:
    """Return what a program returns and leaves in its inputs and buffers.

    An output keeps its name when others that are not of its kind come or go.
    """
    results: Any = program.graph_module.graph.output_node().args[0]
    if isinstance(results, Node) or not isinstance(results, list | tuple):
        results = (results,)
    found: dict[str, tuple[Any, Node | None]] = {}
    returned = 0
    # Whether there are as many results as specs is checked elsewhere.
    for spec, result in zip(program._graph_signature.output_specs, results, strict=False):
        if spec.kind is OutputKind.USER_OUTPUT:
            name, returned = f"output {returned}", returned + 1
        else:
            name = f"the new value of `{spec.target}`"
        if not isinstance(result, Node):
            found[name] = (result, None)
        elif "val" in result.meta:
            found[name] = (result.meta["val"], result)
    return found


def check_outputs(one: Any, before: Outputs, program: ExportedProgram) -> None:
    """Raise if a pass has changed the dtype or the shape of an output and does not declare that.

    Raises:
        ContractError: EK446.
    """
    if getattr(one, "changes_outputs", False):
        return
    now = outputs_of(program)
    findings = []
    for name, (old, _) in before.items():
        new, node = now.get(name, (old, None))
        if new is not old and not _is_alike(old, new):
            findings.append(_finding(one, name, old, new, node))
    if findings:
        raise ContractError(findings)


def _finding(one: Any, name: str, old: Any, new: Any, node: Node | None) -> Diagnostic:
    place = code_of_pass(one)
    location = Location() if node is None else locate(node)
    return Diagnostic(
        code="EK446",
        message=f"pass {name_of_pass(one)} changed {name} from {show_value(old)} to {show_value(new)}",
        location=location.model_copy(update={"file": place.file, "line": place.line}),
        expected="outputs with the dtypes and shapes that they had: callers of the program rely on them",
        hint="set `changes_outputs = True` on the pass if this is what it is for",
    )


def _is_alike(old: Any, new: Any) -> bool:
    """Tell whether two values have one dtype and shape, as far as that is known."""
    if isinstance(old, torch.Tensor) or isinstance(new, torch.Tensor):
        return (
            isinstance(old, torch.Tensor)
            and isinstance(new, torch.Tensor)
            and old.dtype == new.dtype
            and len(old.shape) == len(new.shape)
            and all(map(_is_same_size, old.shape, new.shape))
        )
    return _kind(old) is _kind(new)


def _is_same_size(old: Any, new: Any) -> bool:
    if type(old) is int and type(new) is int:
        return old == new
    sizes = [size.node.expr if isinstance(size, torch.SymInt) else size for size in (old, new)]
    if sizes[0] == sizes[1]:
        return True
    symbols = {symbol for size in sizes for symbol in getattr(size, "free_symbols", ())}
    # Sizes that data decides have new symbols when their operator is another one.
    if any(str(symbol).startswith(("u", "zuf")) for symbol in symbols):
        return True
    return bool((sizes[0] - sizes[1]).expand() == 0)


def _kind(value: Any) -> type:
    for kind, types in ((bool, torch.SymBool), (int, torch.SymInt), (float, torch.SymFloat)):
        if isinstance(value, kind | types):
            return kind
    return type(value)
