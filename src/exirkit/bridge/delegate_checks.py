"""Delegates initialised by the official runtime before deployment."""

from __future__ import annotations

from collections.abc import Iterator

from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.fuzz import OfficialRuntime
from exirkit.ir import CALL_DELEGATE, Diagnostic, ModelError, called_graphs, locate
from exirkit.program import EdgeProgramManager, LoweredBackendModule

# What the runtime prints of a backend that it was built without.
_UNKNOWN = "is not registered"


def check_delegates(manager: EdgeProgramManager) -> list[str]:
    """Have the official runtime initialise each delegate, in a process of its own.

    A delegate that compiles may still fail: a backend may accept a graph that its runtime rejects.

    Args:
        manager: Programs with delegates.

    Returns:
        The backends that the installed runtime does not have, whose delegates were not tried.

    Raises:
        ModelError: EK756, a delegate cannot be initialised.
        OfficialMissingError: The wheel is not installed.
    """
    untried: dict[str, None] = {}
    findings: list[Diagnostic] = []
    with OfficialRuntime() as runtime:
        for method in sorted(manager.methods):
            for call, delegate in _delegates(manager.exported_program(method)):
                failure = runtime.run(delegate.buffer(), []).failure
                if failure is None:
                    continue
                if _UNKNOWN in failure.text:
                    untried[delegate.backend_id] = None
                    continue
                calls = [node for node in delegate.original_module.graph.nodes if node.op == "call_function"]
                findings.append(
                    Diagnostic.of(
                        "EK756",
                        f"the official runtime cannot initialise a delegate of {delegate.backend_id}",
                        location=locate(calls[0] if calls else call).model_copy(update={"method": method}),
                        notes=(
                            f"calls in it: {', '.join(str(node.name) for node in calls)}",
                            *failure.text.strip().splitlines()[-3:],
                        ),
                    )
                )
    if findings:
        raise ModelError(findings)
    return list(untried)


def _delegates(program: ExportedProgram) -> Iterator[tuple[Node, LoweredBackendModule]]:
    for module in called_graphs(program.graph_module):
        for node in module.graph.nodes:
            if node.target is CALL_DELEGATE:
                yield node, getattr(module, str(node.args[0].target))
