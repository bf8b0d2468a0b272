"""Operators as first-class handles: `ops.edge.<namespace>.<name>.<overload>`.

An edge operator is a handle around a torch overload (or around an operator that exirkit defines itself). The handle can be
a graph target, is callable, carries the schema, and finds its out variant. Handles are unique: two look-ups of one name give
one object, so `is`, `==` and dictionaries work as with `torch.ops`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch._ops import OpOverload

from .defined_operators import DefinedOperator, defined_operator, defined_operator_names
from .diagnostics import Diagnostic, UsageError


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
        self._qualified = f"{namespace}::{name}"
        self._namespace = namespace
        self._name = name

    def overloads(self) -> list[str]:
        """Return the names of the overloads."""
        found = list(_defined_overloads(self._namespace, self._name))
        packet = _torch_packet(self._namespace, self._name)
        return found + ([] if packet is None else [str(name) for name in packet.overloads()])

    def __getattr__(self, overload: str) -> EdgeOpOverload:
        """Return the handle of one overload and remember it."""
        if overload.startswith("__"):
            raise AttributeError(overload)
        op = _find(self._namespace, self._name, overload)
        if op is None:
            raise _unknown(f"{self._namespace}.{self._name}.{overload}", overload, self.overloads())
        handle = self._handle_type(op)
        setattr(self, overload, handle)
        return handle

    def __repr__(self) -> str:
        return f"<{self._handle_type.dialect} operator packet {self._qualified}>"


class OpNamespaceHandle:
    """The operators of one library; attributes are packets."""

    def __init__(self, handle_type: type[EdgeOpOverload], namespace: str) -> None:
        self._handle_type = handle_type
        self._namespace = namespace

    def __getattr__(self, name: str) -> OpOverloadPacketHandle:
        """Return the packet of that name and remember it."""
        if name.startswith("__"):
            raise AttributeError(name)
        if _torch_packet(self._namespace, name) is None and not any(_defined_overloads(self._namespace, name)):
            known = [entry for entry in dir(getattr(torch.ops, self._namespace)) if not entry.startswith("__")]
            raise _unknown(f"{self._namespace}.{name}", name, known)
        packet = OpOverloadPacketHandle(self._handle_type, self._namespace, name)
        setattr(self, name, packet)
        return packet


class DialectHandle:
    """The operators of one dialect; attributes are namespaces."""

    def __init__(self, handle_type: type[EdgeOpOverload]) -> None:
        self._handle_type = handle_type

    def __getattr__(self, namespace: str) -> OpNamespaceHandle:
        """Return the namespace and remember it."""
        if namespace.startswith("__"):
            raise AttributeError(namespace)
        found = OpNamespaceHandle(self._handle_type, namespace)
        setattr(self, namespace, found)
        return found


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
    """Return the torch overload (or exirkit operator) behind a graph target; other targets come back as they are."""
    return target._op if isinstance(target, EdgeOpOverload) else target


def find_out_variant(op: OpOverload | DefinedOperator) -> OpOverload | DefinedOperator | None:
    """Find the overload of the same packet that takes the same arguments and writes into `out` tensors.

    Arguments are compared by name and type; factory arguments (dtype, layout, device, pin memory) may be missing from the
    out variant, since the given tensor carries them.
    """
    if isinstance(op, DefinedOperator):
        return op.out_variant()
    wanted = _plain_arguments(op._schema)
    returns = len(op._schema.returns)
    for candidate in _sibling_overloads(op):
        schema = candidate._schema
        outs = [argument for argument in schema.arguments if argument.is_out]
        if not outs or len(outs) != returns:
            continue
        if _without_factory(_plain_arguments(schema)) == _without_factory(wanted):
            return candidate
    return None


def _sibling_overloads(op: OpOverload) -> Iterator[OpOverload]:
    packet = op._overloadpacket
    for name in packet.overloads():
        yield getattr(packet, name)


def _plain_arguments(schema: torch.FunctionSchema) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in schema.arguments if not argument.is_out]


_FACTORY_ARGUMENTS = frozenset({"dtype", "layout", "device", "pin_memory"})


def _without_factory(arguments: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, kind) for name, kind in arguments if name not in _FACTORY_ARGUMENTS]


def _torch_packet(namespace: str, name: str) -> torch._ops.OpOverloadPacket | None:
    return getattr(getattr(torch.ops, namespace), name, None)


def _defined_overloads(namespace: str, name: str) -> Iterator[str]:
    for qualified in defined_operator_names():
        base, _, overload = qualified.partition(".")
        if base == f"{namespace}::{name}":
            yield overload or "default"


def _find(namespace: str, name: str, overload: str) -> OpOverload | DefinedOperator | None:
    suffix = "" if overload == "default" else f".{overload}"
    own = defined_operator(f"{namespace}::{name}{suffix}")
    if own is not None:
        return own
    packet = _torch_packet(namespace, name)
    return None if packet is None else getattr(packet, overload, None)


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
