"""A backend's passes as books of rules, in place of the classes that its official package runs before it compiles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import Diagnostic, UsageError
from exirkit.passes import Pipeline

LIMITS_KEY = "XNN_FUSED_ACTIVATION"
"""Entry of `meta` with the limits of an operator's results: fields by name from rules, an object for XNNPACK."""
FLAGS = ("XNN_NHWC_NODE", "IS_IMPLICIT_Q_DQ_TAG")
"""Entries of `meta` that are true or not there for XNNPACK, and that rules write as fields."""
XNNPACK_CHAIN = "xnnpack"
"""Name of the chain that does what XNNPACK's pass classes do."""
CHAIN_KEY = "exirkit_chain"
"""Entry of `meta` that names the chain of a node's partition, or of a program for which the chain has run."""


def check_chain(backend_id: str, chain: str) -> None:
    """Raise unless a backend's passes can be replaced.

    Raises:
        UsageError: EK780, only XNNPACK's passes can.
        ModelError: What is wrong with the chain.
    """
    if backend_id != "XnnpackBackend":
        raise UsageError(
            Diagnostic.of("EK780", f"the passes of {backend_id} cannot be replaced by the chain {chain!r}")
        )
    _pipeline(chain)


def chain_of(program: ExportedProgram) -> str | None:
    """Return the chain of the partition that a program was, or None."""
    return next((node.meta[CHAIN_KEY] for node in program.graph.nodes if CHAIN_KEY in node.meta), None)


def run_chain(program: ExportedProgram, chain: str) -> ExportedProgram:
    """Return a partition after the chain; the note of it is on the graph module."""
    settings = {"for-serialiser": True} if chain == XNNPACK_CHAIN else None
    made = _pipeline(chain).run(program, settings=settings).program
    made.graph_module.meta[CHAIN_KEY] = chain
    for node in made.graph.nodes:
        _write_as_exporters_do(node)
        _note_as_xnnpack_does(node)
    return made


def _note_as_xnnpack_does(node: Node) -> None:
    """Give entries of `meta` the form in which XNNPACK's serialiser reads them."""
    limits = node.meta.get(LIMITS_KEY)
    if isinstance(limits, Mapping):
        node.meta[LIMITS_KEY] = _limits(**limits)
    for key in FLAGS:
        flag = node.meta.get(key)
        if isinstance(flag, Mapping):
            node.meta[key] = any(flag.values())
    if node.op == "call_function" and "quantize" in str(node.target) and node.all_input_nodes:
        # Tags of constants that are stored outside of the file are read from what is dequantised.
        source = node.all_input_nodes[0]
        if "custom" in source.meta:
            node.meta["custom"] = source.meta["custom"]
    handle = node.meta.get("debug_handle")
    if isinstance(handle, tuple):
        # A node made of several stands for all of them; the format of XNNPACK has room for one: the first.
        node.meta["debug_handle"] = min(handle)


def _write_as_exporters_do(node: Node) -> None:
    """Leave out arguments at the end that are missing: serialisers count arguments to see whether there is a bias."""
    args = node.args
    while node.op == "call_function" and args and args[-1] is None:
        args = args[:-1]
    if len(args) < len(node.args):
        node.args = args


def _limits(lo: float, hi: float) -> Any:
    """Return limits as XNNPACK's serializer takes them, which writes infinite ones as text."""
    kind = import_module("executorch.backends.xnnpack.serialization.xnnpack_graph_schema").OutputMinMax
    return kind(*(f"{one:+}" if math.isinf(one) else one for one in (lo, hi)))


@contextmanager
def replacing_passes(backend_id: str) -> Iterator[None]:
    """Run none of XNNPACK's classes on programs with the note."""
    if backend_id != "XnnpackBackend":
        yield
        return
    preprocess: Any = import_module("executorch.backends.xnnpack.xnnpack_preprocess")
    original = preprocess.XNNPACKPassManager

    def manager(program: ExportedProgram, passes: Sequence[Any] | None = None) -> Any:
        is_done = not passes and CHAIN_KEY in program.graph_module.meta
        return _Done(program) if is_done else original(program, passes)

    preprocess.XNNPACKPassManager = manager
    try:
        yield
    finally:
        preprocess.XNNPACKPassManager = original


class _Done:
    """Stands for XNNPACK's pass manager where the chain has run."""

    def __init__(self, program: ExportedProgram) -> None:
        self._program = program

    def transform(self) -> ExportedProgram:
        """Return the program as it is."""
        return self._program


@cache
def _pipeline(chain: str) -> Pipeline:
    return Pipeline.from_file(f"backends/{chain}" if chain == XNNPACK_CHAIN else chain)
