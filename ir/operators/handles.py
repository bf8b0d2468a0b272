"""Operators as handles, `ops.edge.<namespace>.<name>.<overload>`, and the operators that exirkit defines itself."""

from __future__ import annotations

import difflib
import importlib
import math
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar, TypeAlias

import torch

from exirkit.ir.diagnostics import Diagnostic, UsageError
from exirkit.ir.tensor_spec import (
    Dim,
    TensorSpec,
    dim_order_from_stride,
    empty_meta_tensor,
    sample_ints,
    stride_from_dim_order,
)
from exirkit.ir.torch_internals import FakeTensor, OpOverload, OpOverloadPacket, parse_schema, registered_operator_names


class DefinedOperator:
    """An operator with a schema and an executable meaning that torch does not know.

    Attributes:
        _schema: Parsed schema; the name carries the namespace.
        _overloadname: `default` where the schema names no overload.
        functional: Of an out variant, the operator whose results it writes into given tensors.
    """

    def __init__(
        self,
        schema: str,
        meaning: Callable[..., Any],
        *,
        out_schema: str | None = None,
        functional: OpOverload | DefinedOperator | None = None,
    ) -> None:
        self._schema: torch.FunctionSchema = parse_schema(schema)
        self._overloadname: str = self._schema.overload_name or "default"
        self._meaning = meaning
        self._out_schema = out_schema
        self._out: DefinedOperator | None = None
        self.functional = functional
        self.tags: tuple[torch.Tag, ...] = ()
        self.__name__ = f"{self._schema.name.replace('::', '.')}.{self._overloadname}"
        self.__module__ = "exirkit.ops"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the meaning on real, fake or symbolic values."""
        return self._meaning(*args, **kwargs)

    def name(self) -> str:
        """Return the qualified name, `dim_order_ops::_to_dim_order_copy`."""
        overload = self._schema.overload_name
        return f"{self._schema.name}.{overload}" if overload else self._schema.name

    def out_variant(self) -> DefinedOperator | None:
        """Return the operator that copies the result into a given tensor, or None where the schema has none."""
        if self._out is None and self._out_schema is not None:
            self._out = _out_variant_of(self, self._out_schema, self._meaning)
        return self._out

    def __copy__(self) -> DefinedOperator:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> DefinedOperator:
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return _rebuild, (self.name(),)

    def __repr__(self) -> str:
        return f"<DefinedOperator {self._schema}>"


def defined_operator(name: str) -> DefinedOperator | None:
    """Return the operator of that qualified name (`executorch_prim::add.Scalar`), or None."""
    return _DEFINED.get(name)


def define_operator(op: DefinedOperator) -> None:
    """Give an operator that torch does not know a handle in every dialect; the first of a name stays."""
    _DEFINED.setdefault(op.name(), op)


def defined_operator_names() -> Sequence[str]:
    """Return the qualified names of all operators defined here."""
    return tuple(_DEFINED)


def define_out_variant(functional: str, out_schema: str) -> None:
    """Give an operator of a library an out variant that the library does not register, or not in every process.

    Args:
        functional: Qualified name, `quantized_decomposed::choose_qparams.tensor`.
        out_schema: Schema of the out variant: the same arguments, and one tensor by name for each result.
    """
    _OUT_SCHEMAS[functional] = out_schema


def _rebuild(name: str) -> DefinedOperator:
    found = _DEFINED.get(name)
    if found is not None:
        return found
    for functional, schema in _OUT_SCHEMAS.items():
        if schema.startswith(f"{name}("):
            packet, _, overload = functional.partition(".")
            namespace, _, base = packet.partition("::")
            op = _find(namespace, base, overload or "default")
            assert op is not None, f"{functional} is not registered"
            return _defined_out_variant(op, schema)
    return next(out for op in _DEFINED.values() if (out := op.out_variant()) is not None and out.name() == name)


def _out_variant_of(
    functional: OpOverload | DefinedOperator, schema: str, meaning: Callable[..., Any]
) -> DefinedOperator:
    outs = [one.name for one in parse_schema(schema).arguments if one.is_out]

    def write(*args: Any, **kwargs: Any) -> Any:
        targets = [kwargs.pop(name) for name in outs]
        results = meaning(*args, **kwargs)
        # A result has the dtype of its source; only the copy casts to that of the tensor that is written.
        written = tuple(
            _resized(out, one).copy_(one)
            for out, one in zip(targets, results if len(outs) > 1 else (results,), strict=True)
        )
        return written if len(outs) > 1 else written[0]

    return DefinedOperator(schema, write, functional=functional)


@cache
def _defined_out_variant(op: OpOverload | DefinedOperator, schema: str) -> DefinedOperator:
    return _out_variant_of(op, schema, op)


def _resized(out: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return `out` as it is if its sizes are right, else with sizes and strides of `like`, as out variants do."""
    if out.shape == like.shape:
        return out
    return out.resize_(like.numel()).as_strided_(like.shape, like.stride())


def _laid_out(
    source: torch.Tensor, dtype: torch.dtype | None, device: Any, dim_order: Sequence[int] | None
) -> torch.Tensor:
    order = dim_order_from_stride(source.stride(), source.shape) if dim_order is None else dim_order
    strides = stride_from_dim_order(source.shape, order)
    if isinstance(source, FakeTensor):
        # There is nothing to copy, and making the result by hand takes a tenth of the time of two operators.
        bare = empty_meta_tensor(dtype or source.dtype, source.shape, strides)
        return FakeTensor(source.fake_mode, bare, torch.device(device or source.device))
    result = torch.empty_strided(source.shape, strides, dtype=dtype or source.dtype, device=device or source.device)
    return result.copy_(source)


def _to_dim_order_copy(
    self: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    non_blocking: bool = False,
    dim_order: Sequence[int] | None = None,
) -> torch.Tensor:
    return _laid_out(self, dtype, device, dim_order)


def _clone_dim_order(
    self: torch.Tensor, *, non_blocking: bool = False, dim_order: Sequence[int] | None = None
) -> torch.Tensor:
    return _laid_out(self, None, None, dim_order)


def _empty_dim_order(
    size: Sequence[Any],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    dim_order: Sequence[int] | None = None,
) -> torch.Tensor:
    order = range(len(size)) if dim_order is None else dim_order
    strides = stride_from_dim_order(size, order)
    return torch.empty_strided(size, strides, dtype=dtype or torch.get_default_dtype(), device=device)


_TENSOR_OPTIONS = "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"


def _dim_order_operators() -> list[DefinedOperator]:
    copy = "dim_order_ops::_to_dim_order_copy"
    clone = "dim_order_ops::_clone_dim_order"
    empty = "dim_order_ops::_empty_dim_order"
    tail = "int[]? dim_order=None"
    return [
        DefinedOperator(
            f"{copy}(Tensor self, *, {_TENSOR_OPTIONS}, bool non_blocking=False, {tail}) -> Tensor",
            _to_dim_order_copy,
            out_schema=f"{copy}.out(Tensor self, *, bool non_blocking=False, {tail}, Tensor(a!) out) -> Tensor(a!)",
        ),
        DefinedOperator(
            f"{clone}(Tensor self, *, bool non_blocking=False, {tail}) -> Tensor",
            _clone_dim_order,
            out_schema=f"{clone}.out(Tensor self, *, bool non_blocking=False, {tail}, Tensor(a!) out) -> Tensor(a!)",
        ),
        DefinedOperator(
            f"{empty}(SymInt[] size, *, {_TENSOR_OPTIONS}, {tail}) -> Tensor",
            _empty_dim_order,
            out_schema=f"{empty}.out(SymInt[] size, *, {tail}, Tensor(a!) out) -> Tensor(a!)",
        ),
    ]


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "truediv": operator.truediv,
    "mod": operator.mod,
    "eq": operator.eq,
    "gt": operator.gt,
    "lt": operator.lt,
    "ge": operator.ge,
    "le": operator.le,
    "sym_max": torch.sym_max,
    "sym_min": torch.sym_min,
}

_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "sym_float": torch.sym_float,
    "sym_int": torch.sym_int,
    "sym_not": torch.sym_not,
    "ceil": math.ceil,
    "round": round,
    "trunc": math.trunc,
}


def _primitives() -> list[DefinedOperator]:
    binary = [
        DefinedOperator(f"executorch_prim::{name}.Scalar(Scalar a, Scalar b) -> Scalar", meaning)
        for name, meaning in _BINARY.items()
    ]
    unary = [
        DefinedOperator(f"executorch_prim::{name}.Scalar(Scalar a) -> Scalar", meaning)
        for name, meaning in _UNARY.items()
    ]
    choice = DefinedOperator("executorch_prim::sym_ite.Scalar(Scalar b, Scalar t, Scalar f) -> Scalar", torch.sym_ite)
    return [*binary, *unary, choice]


_OUT_SCHEMAS: dict[str, str] = {}
_DEFINED: dict[str, DefinedOperator] = {op.name(): op for op in (*_dim_order_operators(), *_primitives())}


AllocSpec: TypeAlias = "tuple[Sequence[Dim], torch.dtype]"


def alloc(spec: AllocSpec | list[AllocSpec]) -> torch.Tensor | list[torch.Tensor]:
    """Return uninitialised memory for one out tensor, or a list of them.

    `%add = aten.add.Tensor(%x, %y)` becomes `%alloc = alloc(((2, 3), float32))` and
    `%add = aten.add.out(%x, %y, out=%alloc)`. Both nodes carry the same `TensorSpec` object in
    `meta["spec"]`; planning gives it a place in an arena.

    Args:
        spec: Sizes and dtype of the tensor, or a list of such pairs. A symbolic size counts as its hint.
    """
    if isinstance(spec, list):
        return [_empty(one) for one in spec]
    return _empty(spec)


def free(spec: TensorSpec) -> None:
    """Mark the step after which the runtime may release an unbounded tensor; does nothing on torch."""


def view(base: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """Return `base` with another shape of equally many elements, in the same memory.

    The spec of such a node has the base's spec as its `storage_base`: no copy is made and no kernel runs.
    """
    return base.view(size)


def _empty(spec: AllocSpec) -> torch.Tensor:
    sizes, dtype = spec
    return torch.empty(sample_ints(sizes), dtype=dtype)


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
    defined = _OUT_SCHEMAS.get(op.name())
    if defined is not None:
        return _defined_out_variant(op, defined)
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
                raise MissingOutVariantError(Diagnostic.of("EK102", f"operator {self.name()} has no out variant"))
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
        if not _overloads(self._namespace, name) and not (_load(self._namespace) and _overloads(self._namespace, name)):
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
    # This is asked more often than anything else.
    if type(target) is EdgeOpOverload or isinstance(target, EdgeOpOverload):
        return target._op
    if isinstance(target, OpOverload | DefinedOperator):
        return target
    behind = operator_behind(target)
    return target if behind is None else behind


# Modules that register the operators of a library, for libraries that programs name without importing them.
_REGISTERING = {
    "quantized_decomposed": "torch.ao.quantization.fx._decomposed",
    "torchao": "torchao.quantization.quant_primitives",
}


@cache
def _load(namespace: str) -> bool:
    """Register the operators of a library, if it is known where they are and that is installed."""
    module = _REGISTERING.get(namespace)
    if module is None or find_spec(module.partition(".")[0]) is None:
        return False
    importlib.import_module(module)
    return True


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
    qualified = [*defined_operator_names(), *registered_operator_names()]
    prefix = f"{namespace}::"
    return sorted({name.removeprefix(prefix).partition(".")[0] for name in qualified if name.startswith(prefix)})


def _look_up(dialect: str, dotted: str) -> EdgeOpOverload:
    namespace, name, overload = dotted.split(".")
    handle: EdgeOpOverload = getattr(getattr(getattr(getattr(ops, dialect), namespace), name), overload)
    return handle


def _unknown(dotted: str, wrong: str, known: list[str]) -> UnknownOperatorError:
    close = difflib.get_close_matches(wrong, known, n=1)
    return UnknownOperatorError(
        Diagnostic.of(
            "EK101",
            f"no operator is called {dotted}",
            hint=f"did you mean {close[0]}?" if close else "import the library that registers it first",
        )
    )
