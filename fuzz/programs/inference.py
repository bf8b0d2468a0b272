"""What operators return for values that are known by dtype, sizes and strides only."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch

from exirkit.ir import (
    FakeTensor,
    FakeTensorMode,
    Inference,
    OpOverload,
    Strategy,
    defined_operator,
    empty_meta_tensor,
    register_quantized_decomposed,
)

_MOST_OF_TORCH = 2_000
"""Calls that torch may cache."""


class CallInference:
    """Computes the recorded values of one program.

    Args:
        mode: Fake tensor mode of the program, with a shape environment.
        quick: Use fake tensors only where nothing faster returns the same.

    Attributes:
        bindings: Where in the last result each symbol is that only data decides, as torch records it at nodes.
    """

    def __init__(self, mode: FakeTensorMode, *, quick: bool = True) -> None:
        if len(FakeTensorMode.cache) > _MOST_OF_TORCH:
            # Its entries keep the shape environments of programs that are long gone.
            FakeTensorMode.cache_clear()
        self.mode = mode
        strategies: tuple[Strategy, ...] = ("kernel", "sampled", "fake") if quick else ("fake",)
        self._inference = Inference(mode, strategies, shares_symbols=True)
        self.bindings: dict[Any, Any] = {}

    def call(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the recorded value of a call; arguments are those of a node.

        Raises:
            Exception: Whatever the operator raises if it does not take the arguments.
        """
        value, self.bindings = self._inference.call(target, args, kwargs)
        return tuple(value) if isinstance(value, list) else value

    def tensor(self, dtype: torch.dtype, sizes: Sequence[Any], strides: Sequence[Any], offset: int = 0) -> torch.Tensor:
        """Return a new fake tensor; sizes and strides may be symbolic."""
        # By hand this takes a tenth of the time of running an operator under the mode.
        return FakeTensor(self.mode, empty_meta_tensor(dtype, sizes, strides, offset), torch.device("cpu"))

    def like(self, value: torch.Tensor) -> torch.Tensor:
        """Return a new fake tensor of the same dtype, sizes and strides."""
        return self.tensor(value.dtype, value.shape, value.stride())


@lru_cache(maxsize=4096)
def operator_named(name: str) -> Any:
    """Return the operator with a printed name, or None if neither torch nor exirkit has it."""
    if name.startswith("quantized_decomposed."):
        register_quantized_decomposed()
    library, _, rest = name.partition(".")
    # Libraries register some of these with torch as well, without a kernel.
    own = defined_operator(f"{library}::{rest.removesuffix('.default')}")
    if own is not None:
        return own
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, OpOverload) else None
