"""What the hooks of an `ExportPass` handle: values with their nodes, metadata of nodes, arguments by schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any, Protocol

import torch
from torch.fx import Node, Proxy
from torch.fx.node import map_aggregate

from exirkit.ir import DiagnosticError, UsageError

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

# `val` and `tensor_meta` are inferred, the others say where a node came from: none is for a pass to invent.
PROTECTED_KEYS = frozenset({"val", "tensor_meta", "stack_trace", "nn_module_stack", "debug_handle"})


class ProxyValue:
    """A value in the graph being built: what is known about it, and the node that computes it.

    Attributes:
        data: Fake tensor, symbolic number, tuple of these, or the tensor itself where the node is a constant.
        proxy_or_node: The node, or a `torch.fx.Proxy` of it.
    """

    __slots__ = ("data", "proxy_or_node")

    def __init__(self, data: Any, proxy: Proxy | Node) -> None:
        self.data = data
        self.proxy_or_node = proxy

    @property
    def node(self) -> Node:
        """Node of the new graph that computes the value."""
        place = self.proxy_or_node
        return place.node if isinstance(place, Proxy) else place

    @property
    def proxy(self) -> Proxy:
        """The node as a `torch.fx.Proxy`."""
        if not isinstance(self.proxy_or_node, Proxy):
            self.proxy_or_node = Proxy(self.proxy_or_node)
        return self.proxy_or_node

    def is_tensor(self) -> bool:
        """Whether the value is one tensor."""
        return isinstance(self.data, torch.Tensor)

    def to_tensor(self) -> torch.Tensor:
        """Return the fake tensor.

        Raises:
            UsageError: EK402, the value is not one tensor.
        """
        if not isinstance(self.data, torch.Tensor):
            raise self._reject("used as a tensor", "check is_tensor() first")
        return self.data

    def __bool__(self) -> bool:
        self._reject_unknown("a bool")
        return bool(self.data)

    def __int__(self) -> int:
        self._reject_unknown("an int")
        return int(self.data)

    def __index__(self) -> int:
        return int(self)

    def __float__(self) -> float:
        self._reject_unknown("a float")
        return float(self.data)

    def __iter__(self) -> Iterator[Any]:
        yield from self.data

    def __repr__(self) -> str:
        return f"ProxyValue(%{self.node.name}: {self.data!r})"

    def _reject_unknown(self, wanted: str) -> None:
        # Asking a symbol for its number would pin the program to the size it was exported with.
        if isinstance(self.data, (*SYMBOLIC, torch.Tensor)):
            raise self._reject(
                f"used as {wanted}", "branch on ranks and dtypes, or compute with call_sym and call_operator"
            )

    def _reject(self, use: str, hint: str) -> UsageError:
        kind = "symbolic number" if isinstance(self.data, SYMBOLIC) else type(self.data).__name__
        return UsageError(
            code="EK402", message=f"%{self.node.name} is a {kind} ({self.data}) and cannot be {use}", hint=hint
        )


class NodeMetadata(MutableMapping[str, Any]):
    """Metadata for the nodes that a hook makes: a copy, so that no hook changes the graph it reads.

    Attributes:
        data: The copied entries.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data: dict[str, Any] = dict(data)

    def copy(self) -> NodeMetadata:
        """Return a copy that can be changed on its own."""
        return NodeMetadata(self.data)

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __setitem__(self, key: str, value: Any) -> None:
        """Set an entry.

        Raises:
            UsageError: EK408, the key is inferred or records where the node came from.
        """
        if key in PROTECTED_KEYS:
            raise UsageError(
                code="EK408",
                message=f"metadata key {key!r} is not for passes to set",
            )
        self.data[key] = value

    def __delitem__(self, key: str) -> None:
        del self.data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"NodeMetadata({sorted(self.data)})"


class ArgSchema(Protocol):
    """One argument of an operator's schema, as `map_args` shows it to its function."""

    name: str
    kwarg_only: bool
    type: Any


def map_args(
    op: Any, fn: Callable[[Any, ArgSchema], Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Replace each given argument by `fn(argument, its schema)`.

    Args:
        op: Torch overload or operator handle.
        fn: Called once per argument that is present, in the order of the schema; defaults are not visited.
        args: Positional arguments.
        kwargs: Keyword arguments; not changed.

    Returns:
        New positional and keyword arguments.

    Raises:
        UsageError: EK410, `op` has no schema.
    """
    schema = getattr(op, "_schema", None)
    if schema is None:
        raise UsageError(
            code="EK410", message=f"{op!r} has no schema to map arguments by", expected="an operator overload"
        )
    mapped = list(args)
    named = dict(kwargs)
    for position, argument in enumerate(schema.arguments):
        if argument.name in named:
            named[argument.name] = fn(named[argument.name], argument)
        elif not argument.kwarg_only and position < len(mapped):
            mapped[position] = fn(mapped[position], argument)
    return tuple(mapped), named


def brief(error: Exception) -> str:
    """Return the kind of an exception and the first line of what it says."""
    if isinstance(error, DiagnosticError):
        return error.diagnostics[0].headline()
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}".rstrip(": ")


def data_of(value: Any) -> Any:
    """Replace every `ProxyValue` in nested lists, tuples and dicts by its data."""
    return map_aggregate(value, _data_of_leaf)


def _data_of_leaf(leaf: Any) -> Any:
    return leaf.data if isinstance(leaf, ProxyValue) else leaf


def entries_of(meta: Any) -> dict[str, Any]:
    """Return the entries of metadata that a hook was given: `NodeMetadata`, any mapping, or None."""
    if meta is None:
        return {}
    return meta.data if isinstance(meta, NodeMetadata) else dict(meta)
