"""A backend's passes as books of rules, in place of the classes that its official package runs before it compiles.

What a chain of books does not do yet stays with the original classes. They edit the graph themselves and then trace all
of it again, each of them; here each is given the graph of the one before, and values are inferred for new nodes only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any

import torch
from executorch.exir.dialects.edge._ops import EdgeOpOverload as OfficialOperator
from executorch.exir.pass_base import ExportPass as OfficialPass
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node, map_arg
from torch.fx.passes.infra.pass_base import PassResult

from exirkit.ir import Diagnostic, FakeTensor, UsageError, fake_like, fake_mode_of, same_argument
from exirkit.passes import Pipeline

LIMITS_KEY = "XNN_FUSED_ACTIVATION"
"""Entry of `meta` with the limits of an operator's results: fields by name from rules, an object for XNNPACK."""
CHAIN_KEY = "exirkit_chain"
"""Entry of `meta` that names the chain of a node's partition, or of a program for which the chain has run."""


def _has_custom(module: GraphModule) -> bool:
    """Whether anything that is quantised or dequantised has metadata of the user."""
    calls = (node for node in module.graph.nodes if "quantize_" in _name(node))
    return any("custom" in source.meta for node in calls for source in node.all_input_nodes)


def _has_indices(module: GraphModule) -> bool:
    return not _names(module).isdisjoint({"aten.max_pool2d_with_indices.default", "aten.max.dim"})


def _has_open_pads(module: GraphModule) -> bool:
    """Whether zeros are put around dequantised values, and the result is not quantised."""
    return any(
        _name(node) == "aten.constant_pad_nd.default"
        and (len(node.args) < 3 or node.args[2] == 0)
        and "dequantize" in _name(node.args[0])
        and not any(".quantize" in _name(user) for user in node.users)
        for node in module.graph.nodes
    )


def _has_sequences(module: GraphModule) -> bool:
    convolutions = (node for node in module.graph.nodes if _name(node) == "aten.convolution.default")
    return any(node.args[1].meta["val"].dim() == 3 for node in convolutions)


def _has_layouts(module: GraphModule) -> bool:
    """Whether anything is, or has to be, channels last in memory."""
    layouts = import_module("executorch.backends.xnnpack._passes.channels_last_tagged_reshape_pass")
    kind = layouts.ChannelsLastTaggedReshapePass
    wanted = {one.__name__ for one in kind.memory_sensitive_ops_nhwc}
    if not _names(module).isdisjoint({*wanted, _COPY}):
        return True
    values = (node.meta.get("val") for node in module.graph.nodes if node.op != "call_function" or _is_result(node))
    return any(isinstance(one, torch.Tensor) and one.dim() == 4 and kind._is_nhwc_tensor(one) for one in values)


def _is_result(node: Node) -> bool:
    return any(user.op == "output" for user in node.users)


def _has_copies(module: GraphModule) -> bool:
    return _COPY in _names(module)


def _names(module: GraphModule) -> set[str]:
    return {_name(node) for node in module.graph.nodes}


def _name(node: Any) -> str:
    """Return the name of the official operator that a node calls."""
    return str(node.target.__name__) if isinstance(node, Node) and isinstance(node.target, OfficialOperator) else ""


_COPY = "aten._to_copy.default"

# Classes that stay, by backend, in the order of the original chain, and what each of them is run for. The others' work
# is done by the books; values that only constants decide are folded in Edge already.
_XNNPACK: tuple[tuple[str, str, Callable[[GraphModule], bool]], ...] = (
    ("_passes.propagate_custom_meta_pass", "PropagateCustomMetaPass", _has_custom),
    ("_passes", "RemoveGetItemPass", _has_indices),
    ("_passes.insert_pad_qdq", "InsertPadQDQPass", _has_open_pads),
    ("_passes.conv1d_unsqueeze_pass", "Conv1dUnsqueezePass", _has_sequences),
    ("_passes.channels_last_tagged_reshape_pass", "ChannelsLastTaggedReshapePass", _has_layouts),
    ("_passes.remove_redundant_copy_pass", "RemoveRedundantCopyPass", _has_copies),
)


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
    made = _pipeline(chain)(program).exported_program
    made.graph_module.meta[CHAIN_KEY] = chain
    for node in made.graph.nodes:
        _write_as_exporters_do(node)
        limits = node.meta.get(LIMITS_KEY)
        if isinstance(limits, Mapping):
            node.meta[LIMITS_KEY] = _limits(**limits)
        handle = node.meta.get("debug_handle")
        if isinstance(handle, tuple):
            # A node made of several stands for all of them; the format of XNNPACK has room for one: the first.
            node.meta["debug_handle"] = min(handle)
    return made


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
    """Run, for programs with the note, only those of XNNPACK's classes that no book replaces."""
    if backend_id != "XnnpackBackend":
        yield
        return
    preprocess: Any = import_module("executorch.backends.xnnpack.xnnpack_preprocess")
    original = preprocess.XNNPACKPassManager

    def manager(program: ExportedProgram, passes: Sequence[Any] | None = None) -> Any:
        if passes or CHAIN_KEY not in program.graph_module.meta:
            return original(program, passes)
        return RemainingPasses(program)

    preprocess.XNNPACKPassManager = manager
    try:
        yield
    finally:
        preprocess.XNNPACKPassManager = original


class RemainingPasses:
    """Stands for XNNPACK's pass manager."""

    def __init__(self, program: ExportedProgram) -> None:
        self._program = program

    def transform(self) -> ExportedProgram:
        """Run the classes that stay; the program is edited, which is a copy made for the backend."""
        program = self._program
        if _names_dim_orders(program.graph_module):
            revert = import_module("executorch.backends.xnnpack._passes")
            program = revert._transform(program, revert.DimOrderOpsRevertPass())
        for make, is_wanted in _remaining():
            if not is_wanted(program.graph_module):
                continue
            one = make(program)
            module = one.call(program.graph_module).graph_module
            assert module is program.graph_module
        program.graph_module.recompile()
        return program


def _names_dim_orders(module: GraphModule) -> bool:
    return any("dim_order" in name for name in _names(module))


class _WithoutTracing(OfficialPass):  # type: ignore[misc]
    """Comes behind a class in the order of resolution, and in front of the one that traces."""

    _known: dict[Node, tuple[Any, ...]]

    def call(self, graph_module: GraphModule) -> PassResult:
        """Infer the values of the nodes that the class has made or given other arguments, and of what follows."""
        changed: set[Node] = set()
        mode = fake_mode_of(graph_module)
        for node in graph_module.graph.nodes:
            if node.op == "placeholder" and isinstance(node.meta.get("val"), torch.Tensor):
                if not isinstance(node.meta["val"], FakeTensor):
                    node.meta["val"] = fake_like(mode, node.meta["val"])
                    changed.add(node)
            elif node.op == "call_function" and (
                not _is_same_call(self._known.get(node), node) or not changed.isdisjoint(node.all_input_nodes)
            ):
                _infer(node, mode, changed)
        self._known.update(_calls(graph_module))
        return PassResult(graph_module, True)


def _infer(node: Node, mode: Any, changed: set[Node]) -> None:
    """Set the value of a node; it counts as changed if sizes or dtype do: no class reads strides of other values."""
    args, kwargs = map_arg((node.args, node.kwargs), lambda one: one.meta["val"])
    old = node.meta.get("val")
    with mode:
        made = node.target(*args, **kwargs)  # type: ignore[operator]
    node.meta["val"] = made
    if not _is_alike(old, made):
        changed.add(node)


def _is_alike(old: Any, made: Any) -> bool:
    if not (isinstance(old, torch.Tensor) and isinstance(made, torch.Tensor)):
        return False
    return old.dtype == made.dtype and same_argument(tuple(old.shape), tuple(made.shape))


def _calls(module: GraphModule) -> dict[Node, tuple[Any, ...]]:
    return {node: (node.target, node.args, node.kwargs) for node in module.graph.nodes}


def _is_same_call(known: tuple[Any, ...] | None, node: Node) -> bool:
    if known is None:
        return False
    target, args, kwargs = known
    return target is node.target and args is node.args and kwargs is node.kwargs


@cache
def _remaining() -> list[tuple[Callable[[ExportedProgram], Any], Callable[[GraphModule], bool]]]:
    base = import_module("executorch.backends.xnnpack._passes.xnnpack_pass").XNNPACKPass
    made = []
    for path, name, is_wanted in _XNNPACK:
        original = getattr(import_module(f"executorch.backends.xnnpack.{path}"), name)
        made.append((_maker(type(name, (original, _WithoutTracing), {}), issubclass(original, base)), is_wanted))
    return made


def _maker(kind: type[Any], wants_program: bool) -> Callable[[ExportedProgram], Any]:
    def make(program: ExportedProgram) -> Any:
        one = kind(program) if wants_program else kind()
        one._known = _calls(program.graph_module)
        return one

    return make


@cache
def _pipeline(chain: str) -> Pipeline:
    if chain == "xnnpack":
        text = files("exirkit.bridge").joinpath("xnnpack.yaml").read_text(encoding="utf-8")
        return Pipeline.parse(text, "xnnpack.yaml")
    return Pipeline.from_file(chain)
