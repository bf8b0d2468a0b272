"""Bugs to find: parts of a compiler that do something wrong, and what switches them on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from tests.fuzz.programs.program_texts import TEXTS
from torch.fx import Node

from exirkit.emit import method_emitter, values
from exirkit.fuzz.oracles.files import memory_plan
from exirkit.ir import GraphEditor, TensorSpec, ops
from exirkit.passes import MemoryAlgoResult, Pass, PromoteTypes, SpecAllocResult
from exirkit.passes.memory import planning_pass
from exirkit.runtime_ref.interpreter import interpreter

EXAMPLE = TEXTS["example"]

WRONG_RULES = """rulebook: 1
namespace: wrong
doc: Rules that are wrong.
rules:
- id: wrong.relu-remove
  doc: A rule that is wrong wherever something is negative.
  vars: {x: "f32 [*S]"}
  match: return aten.relu.default(x)
  replace: return x
"""


class Patch(Protocol):
    """Sets attributes."""

    def setattr(self, target: Any, name: str, value: Any, /) -> None:
        """Set one."""


class DropsAlpha(Pass):
    """Forgets the factor of a subtraction."""

    name = "drops-alpha"

    def edit(self, editor: GraphEditor) -> None:
        for node in list(editor.graph.nodes):
            if node.target in (ops.edge.aten.sub.Tensor, torch.ops.aten.sub.Tensor) and "alpha" in node.kwargs:
                editor.rewire(node, kwargs={})


def overlapping(
    alignment: int, specs: Iterable[TensorSpec], graph_module: Any, signature: Any, extra_padding: int = 0
) -> MemoryAlgoResult:
    """Put everything at the start of the arena."""
    listed = list(specs)
    size = max((-(-spec.nbytes() // alignment) * alignment for spec in listed), default=0)
    return MemoryAlgoResult({spec: SpecAllocResult(1, at, 0) for at, spec in enumerate(listed)}, [0, size])


def break_in_a_pass(patch: Patch) -> None:
    """Let a pass of the chain forget the factor of a subtraction."""
    edit = PromoteTypes.edit

    def wrong(self: PromoteTypes, editor: GraphEditor) -> None:
        edit(self, editor)
        DropsAlpha().edit(editor)

    patch.setattr(PromoteTypes, "edit", wrong)


def break_an_exception(patch: Patch) -> None:
    """Let a pass of the chain stumble over a subtraction."""
    edit = PromoteTypes.edit

    def wrong(self: PromoteTypes, editor: GraphEditor) -> None:
        if any(node.target is torch.ops.aten.sub.Tensor for node in editor.graph.nodes):
            raise KeyError("alpha")
        edit(self, editor)

    patch.setattr(PromoteTypes, "edit", wrong)


def break_wrong_metadata(patch: Patch) -> None:
    """Let a pass of the chain record another dtype for a subtraction."""
    edit = PromoteTypes.edit

    def wrong(self: PromoteTypes, editor: GraphEditor) -> None:
        edit(self, editor)
        for node in list(editor.graph.nodes):
            if node.target is torch.ops.aten.relu.default:
                editor.set_meta(node, "val", node.meta["val"].double())

    patch.setattr(PromoteTypes, "edit", wrong)


def break_in_the_emitter(patch: Patch) -> None:
    """Let the emitter swap the operands of a subtraction."""
    call_values = values.call_values

    def wrong(node: Node, op: Any) -> Any:
        found = call_values(node, op)
        if op is torch.ops.aten.sub.out:
            (first, one), (second, other), *rest = found
            return [(first, other), (second, one), *rest]
        return found

    patch.setattr(method_emitter, "call_values", wrong)


def break_blindness(patch: Patch) -> None:
    """Let nothing examine memory plans."""
    for module in (planning_pass, memory_plan):
        patch.setattr(module, "check_memory_plan", lambda *given, **named: [])


def break_in_the_interpreter(patch: Patch) -> None:
    """Let the interpreter swap the operands of a subtraction."""
    make = interpreter.OutStep.__init__

    def wrong(self: Any, environment: Any, kernel: Any, args: Any) -> None:
        make(self, environment, kernel, args)
        if kernel.name == "aten::sub.out":
            call: Callable[..., Any] = self._call
            self._call = lambda one, other, *rest, **named: call(other, one, *rest, **named)

    patch.setattr(interpreter.OutStep, "__init__", wrong)


def install(name: str) -> None:
    """Install a bug for the rest of the life of this process."""

    class Plain:
        setattr = staticmethod(setattr)

    globals()[name](Plain)
