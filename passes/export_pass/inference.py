"""Running operators on fake tensors, for the nodes of a re-traced graph whose values are not known yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx import Node, Proxy
from torch.fx.experimental.symbolic_shapes import compute_unbacked_bindings
from torch.fx.node import map_aggregate

from .values import ProxyValue


class Inference:
    """Runs operators under one fake tensor mode.

    Tensors of other modes (graphs that were put together from several exports) and real tensors are taken over into the
    mode, each once.

    Attributes:
        mode: Mode of the graph.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode
        # The originals are kept as well: an id means something only while its object lives.
        self._taken_over: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def run(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return what the target computes on these arguments; proxy values and constants may be nested in them.

        Operators without results, such as assertions on symbolic sizes, are not run: that would assert once more.
        """
        schema = getattr(target, "_schema", None)
        if schema is not None and not schema.returns:
            return None
        operands, named = map_aggregate((tuple(args), dict(kwargs)), self._operand)
        with self.mode, enable_python_dispatcher(), torch.no_grad():
            return target(*operands, **named)

    def first_slice(self, tensor: Any) -> Any:
        """Return what a loop over dim 0 sees of a tensor in one step."""
        with self.mode, torch.no_grad():
            return torch.select_copy(self._operand(tensor), 0, 0)

    def bindings(self, value: Any, old: Any) -> dict[Any, Any] | None:
        """Tell where a fresh result binds new data-dependent symbols, as `meta["unbacked_bindings"]` wants it.

        Args:
            value: What `run` just returned.
            old: What the node computed before the pass, if it is the same operator: its symbols keep their names.
        """
        shape_env = self.mode.shape_env
        if shape_env is None or not shape_env.pending_fresh_unbacked_symbols:
            return None
        return compute_unbacked_bindings(shape_env, value, old)

    def fake(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor as one of the mode."""
        if isinstance(tensor, FakeTensor) and tensor.fake_mode is self.mode:
            return tensor
        known = self._taken_over.get(id(tensor))
        if known is None:
            known = self._taken_over[id(tensor)] = (tensor, self._take_over(tensor))
        return known[1]

    def _take_over(self, tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, FakeTensor):
            return self.mode.from_tensor(tensor, static_shapes=True)
        with self.mode:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)

    def _operand(self, leaf: Any) -> Any:
        value = leaf
        if isinstance(leaf, ProxyValue):
            value = leaf.data
        elif isinstance(leaf, Node | Proxy):
            value = (leaf.node if isinstance(leaf, Proxy) else leaf).meta["val"]
        if isinstance(value, torch.Tensor):
            return self.fake(value)
        if isinstance(value, list | tuple):
            return map_aggregate(value, self._operand)
        return value


@contextmanager
def admitting_real_tensors(mode: FakeTensorMode) -> Iterator[None]:
    """Let hooks mix fake values with constants of their own; the graph's mode is shared, so its setting is put back."""
    before = mode.allow_non_fake_inputs
    mode.allow_non_fake_inputs = True
    try:
        yield
    finally:
        mode.allow_non_fake_inputs = before


def mode_of_values(values: Iterable[Any]) -> FakeTensorMode | None:
    """Return the mode of the first fake tensor among these values."""
    return next((value.fake_mode for value in values if isinstance(value, FakeTensor)), None)
