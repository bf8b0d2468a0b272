"""Operators as first-class handles: `ops.edge.<namespace>.<name>.<overload>`, and handles of other libraries."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.fx import GraphModule, Node

from exirkit.ir.analysis.interface import called_graphs
from exirkit.ir.diagnostics import Diagnostic, UsageError
from exirkit.ir.operators.defined_operators import (
    DefinedOperator,
    alloc,
    defined_operator,
    defined_operator_names,
    free,
    view,
)

# The tensor that is written to carries these already.
_FACTORY_ARGUMENTS = frozenset({"dtype", "layout", "device", "pin_memory"})


def find_out_variant(op: OpOverload | DefinedOperator) -> OpOverload | DefinedOperator | None:
    """Find the overload of the same packet that takes the same arguments and writes into `out` tensors.

    Arguments are compared by name and type. An overload that takes the factory arguments too (dtype, layout, device,
    pin memory) is preferred; they may be missing, since the given tensor carries them.

    Returns:
        The overload, or None where the library registers none. An out variant is its own.
    """
    if isinstance(op, DefinedOperator):
        return op.out_variant()
    wanted = _plain_arguments(op._schema)
    results = sum(argument.is_out for argument in op._schema.arguments) or len(op._schema.returns)
    candidates = [(found, _plain_arguments(found._schema)) for found in _out_overloads(op, results)]
    for found, arguments in candidates:
        if arguments == wanted:
            return found
    wanted = _without_factory(wanted)
    return next((found for found, arguments in candidates if _without_factory(arguments) == wanted), None)


def _out_overloads(op: OpOverload, results: int) -> Iterator[OpOverload]:
    packet = op._overloadpacket
    for name in packet.overloads():
        overload: OpOverload = getattr(packet, name)
        if results and sum(argument.is_out for argument in overload._schema.arguments) == results:
            yield overload


def _plain_arguments(schema: torch.FunctionSchema) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in schema.arguments if not argument.is_out]


def _without_factory(arguments: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, kind) for name, kind in arguments if name not in _FACTORY_ARGUMENTS]


REGISTRIES = {"executorch.exir.dialects.edge._ops": "executorch.exir.dialects._ops"}
"""For each module with a class of handles, the one whose `ops.edge` gives them out."""


def operator_behind(target: Any) -> OpOverload | DefinedOperator | None:
    """Return the operator behind a handle of another library, or None if the target is no such handle.

    An operator that exirkit defines itself under the same name and schema is returned as exirkit's.
    """
    op = getattr(target, "_op", None)
    if not isinstance(op, OpOverload) or isinstance(target, OpOverload):
        return None
    own = defined_operator(op.name())
    return own if own is not None and _arguments(own) == _arguments(op) else op


def handles_like(target: Any) -> Callable[[OpOverload | DefinedOperator], Any]:
    """Return the function from operators to handles of the library that gave out `target`.

    Handles that it returns are those that the library's own look-up gives, so that comparing them by identity works.
    """
    kind = type(target)
    registry = getattr(sys.modules.get(REGISTRIES.get(kind.__module__, "")), "ops", None)

    def handle(op: OpOverload | DefinedOperator) -> Any:
        namespace, _, name = op._schema.name.partition("::")
        found: Any = getattr(registry, "edge", None)
        for part in (namespace, name, op._overloadname):
            found = getattr(found, part, None)
        return found if isinstance(found, kind) else kind(op, op._schema)

    return handle


def _arguments(op: OpOverload | DefinedOperator) -> list[tuple[str, str, bool]]:
    return [(one.name, str(one.type), one.kwarg_only) for one in op._schema.arguments]


class UnknownOperatorError(UsageError, AttributeError):
    """A handle names an operator that does not exist (EK101); also an `AttributeError`, so `hasattr` works."""


class MissingOutVariantError(UsageError, RuntimeError):
    """An operator has no out variant (EK102)."""


class EdgeOpOverload:
    """One operator of the Edge dialect.

    Attributes:
        namespace: `aten`, `dim_order_ops`, ...
        _op: The torch overload, or the operator defined by exirkit, that gives the meaning.
        _schema: Its schema.
    """

    dialect: ClassVar[str] = "edge"

    def __init__(self, op: OpOverload | DefinedOperator) -> None:
        self._op = op
        self._schema: torch.FunctionSchema = op._schema
        namespace, _, name = op._schema.name.partition("::")
        self.namespace = namespace
        self._overloadname = op._overloadname
        # The graph names nodes after `__name__`: `aten.add.Tensor` becomes `aten_add_tensor`.
        self.__name__ = f"{namespace}.{name}.{op._overloadname}"
        self.__qualname__ = self.__name__
        self.__module__ = f"exirkit.ops.{self.dialect}"
        self._out_variant: OpOverload | DefinedOperator | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the operator on real, fake or symbolic tensors."""
        return self._op(*args, **kwargs)

    def name(self) -> str:
        """Return the qualified name, `aten::add.Tensor`; the default overload has none."""
        return self._op.name()

    def to_out_variant(self) -> OpOverload | DefinedOperator:
        """Return the overload that writes its results into given tensors.

        Raises:
            MissingOutVariantError: EK102, the library of the operator registers none.
        """
        if self._out_variant is None:
            found = find_out_variant(self._op)
            if found is None:
                raise MissingOutVariantError(
                    Diagnostic(
                        code="EK102",
                        message=f"operator {self.name()} has no out variant",
                        expected="an overload that takes the same arguments and one `Tensor(a!) out` per result",
                        hint="register one in the operator's library, or decompose the operator before lowering",
                    )
                )
            self._out_variant = found
        return self._out_variant

    def __getattr__(self, attribute: str) -> Any:
        """Fall back on the torch overload for `tags`, `is_view`, `overloadpacket` ..."""
        if attribute.startswith("__") or attribute == "_op":
            raise AttributeError(attribute)
        return getattr(self._op, attribute)

    def __copy__(self) -> EdgeOpOverload:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> EdgeOpOverload:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return _look_up, (self.dialect, self.__name__)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.__name__}: schema = {self._schema}>"

    def __str__(self) -> str:
        return self.__name__


class BackendOpOverload(EdgeOpOverload):
    """One operator of the backend dialect: introduced after Edge by passes, known to a target only."""

    dialect: ClassVar[str] = "backend"


class OpOverloadPacketHandle:
    """All overloads of one operator name; attributes are the overloads."""

    def __init__(self, handle_type: type[EdgeOpOverload], namespace: str, name: str) -> None:
        self._handle_type = handle_type
        self._namespace = namespace
        self._name = name

    def overloads(self) -> list[str]:
        """Return the names of the overloads."""
        return _overloads(self._namespace, self._name)

    def __getattr__(self, overload: str) -> EdgeOpOverload:
        """Return the handle of one overload and remember it."""
        if overload.startswith("__"):
            raise AttributeError(overload)
        op = _find(self._namespace, self._name, overload)
        if op is None:
            raise _unknown(f"{self._namespace}.{self._name}.{overload}", overload, self.overloads())
        # Not a plain assignment: of two threads that look up a new name, both must get the handle that stays.
        handle: EdgeOpOverload = self.__dict__.setdefault(overload, self._handle_type(op))
        return handle

    def __repr__(self) -> str:
        return f"<{self._handle_type.dialect} operator packet {self._namespace}::{self._name}>"


class OpNamespaceHandle:
    """The operators of one library; attributes are packets."""

    def __init__(self, handle_type: type[EdgeOpOverload], namespace: str) -> None:
        self._handle_type = handle_type
        self._namespace = namespace

    def __getattr__(self, name: str) -> OpOverloadPacketHandle:
        """Return the packet of that name and remember it."""
        # torch has operators called `__and__`; all other names of this form belong to Python.
        if name.startswith("__") and _torch_packet(self._namespace, name) is None:
            raise AttributeError(name)
        if not _overloads(self._namespace, name):
            raise _unknown(f"{self._namespace}.{name}", name, _operator_names(self._namespace))
        packet = OpOverloadPacketHandle(self._handle_type, self._namespace, name)
        remembered: OpOverloadPacketHandle = self.__dict__.setdefault(name, packet)
        return remembered

    def __repr__(self) -> str:
        return f"<{self._handle_type.dialect} operators of {self._namespace}>"


class DialectHandle:
    """The operators of one dialect; attributes are namespaces."""

    def __init__(self, handle_type: type[EdgeOpOverload]) -> None:
        self._handle_type = handle_type

    def __getattr__(self, namespace: str) -> OpNamespaceHandle:
        """Return the namespace and remember it."""
        if namespace.startswith("__"):
            raise AttributeError(namespace)
        found = OpNamespaceHandle(self._handle_type, namespace)
        remembered: OpNamespaceHandle = self.__dict__.setdefault(namespace, found)
        return remembered

    def __repr__(self) -> str:
        return f"<operators of the {self._handle_type.dialect} dialect>"


class Operators:
    """Root of the handles, known to users as `ops`: `ops.edge`, `ops.backend`."""

    def __init__(self) -> None:
        self.edge = DialectHandle(EdgeOpOverload)
        self.backend = DialectHandle(BackendOpOverload)


ops = Operators()


def edge_operator(op: OpOverload | DefinedOperator) -> EdgeOpOverload:
    """Return the edge handle of a torch overload or of an operator of exirkit."""
    handle = _EDGE_HANDLES.get(op)
    if handle is None:
        namespace, _, name = op._schema.name.partition("::")
        packet = getattr(getattr(ops.edge, namespace), name)
        handle = getattr(packet, op._overloadname)
        _EDGE_HANDLES[op] = handle
    return handle


_EDGE_HANDLES: dict[OpOverload | DefinedOperator, EdgeOpOverload] = {}


def underlying(target: Any) -> Any:
    """Return the torch overload (or exirkit operator) behind a graph target; other targets come back as they are.

    Handles of other libraries, of which programs lowered by the official package are full, count as well.
    """
    if isinstance(target, EdgeOpOverload):
        return target._op
    if isinstance(target, OpOverload | DefinedOperator):
        return target
    behind = operator_behind(target)
    return target if behind is None else behind


def _torch_packet(namespace: str, name: str) -> OpOverloadPacket | None:
    # Higher-order operators live beside the packets and have no overloads.
    found = getattr(getattr(torch.ops, namespace), name, None)
    return found if isinstance(found, OpOverloadPacket) else None


def _overloads(namespace: str, name: str) -> list[str]:
    own = [
        overload or "default"
        for base, _, overload in (qualified.partition(".") for qualified in defined_operator_names())
        if base == f"{namespace}::{name}"
    ]
    packet = _torch_packet(namespace, name)
    registered = [] if packet is None else packet.overloads()
    return list(dict.fromkeys([*own, *registered]))


def _find(namespace: str, name: str, overload: str) -> OpOverload | DefinedOperator | None:
    suffix = "" if overload == "default" else f".{overload}"
    own = defined_operator(f"{namespace}::{name}{suffix}")
    if own is not None:
        return own
    # A packet has other attributes than overloads.
    found = getattr(_torch_packet(namespace, name), overload, None)
    return found if isinstance(found, OpOverload) else None


def _operator_names(namespace: str) -> list[str]:
    qualified = [*defined_operator_names(), *torch._C._dispatch_get_all_op_names()]
    prefix = f"{namespace}::"
    return sorted({name.removeprefix(prefix).partition(".")[0] for name in qualified if name.startswith(prefix)})


def _look_up(dialect: str, dotted: str) -> EdgeOpOverload:
    namespace, name, overload = dotted.split(".")
    handle: EdgeOpOverload = getattr(getattr(getattr(getattr(ops, dialect), namespace), name), overload)
    return handle


def _unknown(dotted: str, wrong: str, known: list[str]) -> UnknownOperatorError:
    close = difflib.get_close_matches(wrong, known, n=1)
    return UnknownOperatorError(
        Diagnostic(
            code="EK101",
            message=f"no operator is called {dotted}",
            hint=f"did you mean {close[0]}?" if close else "import the library that registers it first",
        )
    )


def give_foreign_handles(module: GraphModule, library: str) -> None:
    """Let the calls of a graph, and of the graphs that it calls, name operators by the handles of another library.

    Args:
        module: A graph with handles of exirkit; it is changed.
        library: Name of the library, which has been imported; operators that it does not know keep their handles.
    """
    names = [name for name in REGISTRIES.values() if name.partition(".")[0] == library]
    registry = next((found for name in names if (found := sys.modules.get(name)) is not None), None)
    edge: Any = getattr(getattr(registry, "ops", None), "edge", None)
    functions = {ours: theirs for theirs, ours in _memory_functions(library).items()}
    for node in _calls(module):
        if isinstance(node.target, EdgeOpOverload):
            node.target = _handle(edge, node.target) or node.target
        else:
            node.target = functions.get(node.target, node.target)


def take_foreign_handles(module: GraphModule) -> None:
    """Let the calls of a graph, and of the graphs that it calls, name operators by the handles of exirkit again."""
    libraries = {name.partition(".")[0] for name in REGISTRIES}
    functions = {theirs: ours for library in libraries for theirs, ours in _memory_functions(library).items()}
    for node in _calls(module):
        op = None if isinstance(node.target, EdgeOpOverload) else operator_behind(node.target)
        node.target = functions.get(node.target, node.target) if op is None else edge_operator(op)


def _memory_functions(library: str) -> dict[Any, Any]:
    """Return the functions of another library that are `alloc`, `free` and `view` of ours, if it has been imported."""
    module = sys.modules.get(f"{library}.exir.memory")
    return {} if module is None else {getattr(module, one.__name__): one for one in (alloc, free, view)}


def _handle(edge: Any, target: EdgeOpOverload) -> Any:
    schema: Any = target._schema
    namespace, _, name = schema.name.partition("::")
    found = edge
    for part in (namespace, name, schema.overload_name or "default"):
        found = getattr(found, part, None)
    return found


def _calls(module: GraphModule) -> list[Node]:
    return [node for one in called_graphs(module) for node in one.graph.nodes if node.op == "call_function"]
