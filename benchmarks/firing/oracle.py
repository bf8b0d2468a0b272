"""The oracle: the sites of a model, by what its modules call while the eager model runs.

It knows nothing of rules or exported programs. Calls of `torch` are seen by a `TorchFunctionMode`, before anything is
decomposed; what a model writes out by hand is known by the names of its modules and functions.
"""

from __future__ import annotations

import importlib
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from .sites import Site

_ACTIVATIONS: dict[str, str | None] = {
    "relu": None, "relu_": None, "relu6": None, "hardtanh": None, "sigmoid": None, "tanh": None, "gelu": "GELU",
    "silu": "SiLU", "hardswish": "hardswish", "hardsigmoid": "hardsigmoid", "mish": "mish",
}  # fmt: skip
_WRITTEN_OUT = {
    "NewGELUActivation": "GELU, tanh", "FastGELUActivation": "GELU, tanh", "GELUTanh": "GELU, tanh",
    "MishActivation": "mish",
}  # fmt: skip
_NORMS = ("RMSNorm", "RmsNorm", "T5LayerNorm")
_SQUEEZES = ("SqueezeExcit", "SEModule", "SEBlock", "SELayer", "SEUnit", "EfficientNetSqueezeExcite")
_SAME_VALUES = {
    "dropout", "to", "type_as", "float", "contiguous", "view", "reshape", "clone", "transpose", "permute", "unsqueeze",
    "expand", "flatten", "detach", "type", "half", "squeeze", "unflatten",
}  # fmt: skip
_PARTS = {"chunk", "split", "__getitem__", "narrow", "tensor_split"}
_PRODUCTS = {"matmul", "__matmul__", "__rmatmul__", "bmm", "einsum"}
_SUMS = {"add", "__add__", "__radd__", "__iadd__", "add_", "masked_fill", "masked_fill_", "where", "__sub__"}
_FACTORS = {"mul", "__mul__", "__rmul__", "__imul__", "mul_", "div", "__truediv__", "__itruediv__", "div_"}
_ROTATIONS = ("rotate_half", "rotate_every_two", "rotate_pairwise", "rot")


class Watch(TorchFunctionMode):
    """Counts sites while a model runs; the `origin` of a tensor says what made it."""

    def __init__(self) -> None:
        super().__init__()
        self.sites: Counter[Site] = Counter()
        self.path: list[str] = [""]
        self.modules: list[torch.nn.Module] = []
        self.silent = 0
        self.numbers = itertools.count()

    def note(self, concept: str, path: str | None = None) -> None:
        self.sites[Site(concept, self.path[-1] if path is None else path)] += 1

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if self.silent:
            return func(*args, **kwargs)
        # What is asked before the call: in-place functions give their first argument another origin.
        origins = [_origins(value) for value in [*args, *kwargs.values()]]
        first = origins[0] if origins else set()
        origin = self.seen(name, args, kwargs, first, origins)
        result = func(*args, **kwargs)
        parts = [
            one for one in (result if isinstance(result, list | tuple) else [result]) if isinstance(one, torch.Tensor)
        ]
        for one in parts:
            # A layer and each part of its result are told apart by a number.
            fresh = {f"#{next(self.numbers)}"} if name in ("linear", "addmm") or name in _PARTS else set()
            one.origin = {mark for mark in origin if not (fresh and mark[0] == "#")} | fresh  # type: ignore[attr-defined]
        return result

    def seen(self, name: str, args: Any, kwargs: Any, first: set[str], origins: list[set[str]]) -> set[str]:
        """Note the sites of one call; return what its result is known by."""
        if name in _ACTIVATIONS:
            return self._activation(name, kwargs, first)
        if name in _SAME_VALUES | _PARTS:
            return first if name in _SAME_VALUES else first - {"activation", "linear", "conv"}
        if name in ("linear", "addmm"):
            return {"linear"}
        if name.startswith("conv") and name[-2:] in ("1d", "2d", "3d"):
            return {"conv"}
        if name == "batch_norm":
            if "conv" in first:
                self.note("conv + batch norm")
            return first & {"conv"}
        if name in ("softmax", "scaled_dot_product_attention", "multi_head_attention_forward") or name in _PRODUCTS:
            return self._attention(name, args, kwargs, origins)
        if name in _FACTORS:
            return self._factor(args, first, origins)
        if name in _SUMS:
            masked = {"masked"} if "scores" in first else set()
            causal = {"causal"} if any(_is_causal(one) for one in [*args, *kwargs.values()]) else set()
            return {one for one in first if one in ("scores", "scaled", "grouped")} | masked | causal
        return self._whole_function(name, args, first)

    def _whole_function(self, name: str, args: Any, first: set[str]) -> set[str]:
        plain = {
            "layer_norm": "layer norm", "group_norm": "group norm", "rms_norm": "RMS norm", "glu": "GLU",
            "pixel_shuffle": "pixel shuffle",
        }  # fmt: skip
        if name in plain:
            self.note(plain[name])
        is_pooled = name == "adaptive_avg_pool2d" or (name == "mean" and args and args[0].dim() == 4)
        if is_pooled and any(mark in type(one).__name__ for one in self.modules[-3:] for mark in _SQUEEZES):
            self.note("squeeze and excite")
        return first & {"grouped"} if name in ("repeat_interleave", "cat") else set()

    def _activation(self, name: str, kwargs: Any, first: set[str]) -> set[str]:
        concept = _ACTIVATIONS[name]
        if name == "gelu" and kwargs.get("approximate") == "tanh":
            concept = "GELU, tanh"
        if concept is not None:
            self.note(concept)
        self._fused(first)
        return {"activation"} | {mark for mark in first if mark == "linear" or mark[0] == "#"}

    def _fused(self, first: set[str]) -> None:
        if "activation" in first:
            return
        for layer in ("linear", "conv"):
            if layer in first:
                self.note(f"{layer} + activation")

    def _factor(self, args: Any, first: set[str], origins: list[set[str]]) -> set[str]:
        tensors = [one for one in args if isinstance(one, torch.Tensor) and one.dim() > 0]
        if len(tensors) == 2 and tensors[0].shape == tensors[1].shape:
            layers = [{mark for mark in one if mark[0] == "#"} for one in origins[:2]]
            is_gate = ["activation" in one and bool(marks) for one, marks in zip(origins[:2], layers, strict=True)]
            if any(is_gate) and all(layers) and layers[0].isdisjoint(layers[1]) and not all(is_gate):
                self.note("SwiGLU")
            return set()
        return (first & {"scores", "masked", "causal", "grouped", "scaled operand"}) | {"scaled"}

    def _attention(self, name: str, args: Any, kwargs: Any, origins: list[set[str]]) -> set[str]:
        if name == "softmax":
            return (origins[0] & {"masked", "scaled operand", "grouped", "causal"}) | {"softmax"}
        if name in _PRODUCTS:
            return self._product(name, args, origins)
        if name == "scaled_dot_product_attention":
            mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
            is_grouped = kwargs.get("enable_gqa") or "grouped" in origins[1]
            is_causal = kwargs.get("is_causal") or (len(args) > 5 and args[5]) or _is_causal(mask)
            self._note_attention(bool(is_grouped), bool(is_causal), mask is not None, False)
            return set()
        mask = kwargs.get("attn_mask")
        self._note_attention(False, _is_causal(mask), mask is not None, False)
        return {"linear"}

    def _product(self, name: str, args: Any, origins: list[set[str]]) -> set[str]:
        two = origins[1:3] if name == "einsum" else origins[:2]
        if len(two) < 2:
            return set()
        if any("softmax" in one for one in two):
            said = two[0] | two[1]
            self._note_attention("grouped" in said, "causal" in said, "masked" in said, "scaled operand" in said)
            return set()
        scaled = {"scaled operand"} if any("scaled" in one for one in two) else set()
        return {"scores"} | scaled | (two[1] & {"grouped"})

    def _note_attention(self, grouped: bool, causal: bool, masked: bool, scaled: bool) -> None:
        kinds = {", grouped": grouped, ", causal": causal, ", masked": masked, ", scaled operand": scaled}
        self.note("attention" + next((kind for kind, holds in kinds.items() if holds), ""))


def _origins(value: Any) -> set[str]:
    if isinstance(value, list | tuple):
        return set().union(*(_origins(one) for one in value)) if value else set()
    found: set[str] = getattr(value, "origin", set()) if isinstance(value, torch.Tensor) else set()
    return found


def _is_causal(mask: Any) -> bool:
    """Return whether a mask takes away exactly what lies ahead."""
    if not isinstance(mask, torch.Tensor) or mask.dim() < 2 or mask.shape[-1] < 2 or mask.shape[-2] != mask.shape[-1]:
        return False
    with torch._C.DisableTorchFunction():
        last = mask.reshape(-1, *mask.shape[-2:])[0]
        open_ = last if last.dtype is torch.bool else last > -1e4
        ahead = torch.ones_like(open_, dtype=torch.bool).triu(1)
        return bool((open_ == ~ahead).all()) or bool((open_ == ahead).all())


def sites_of(model: torch.nn.Module, inputs: tuple[Any, ...]) -> Counter[Site]:
    """Run a model and count.

    Args:
        model: In inference mode.
        inputs: What it is called with.
    """
    watch = Watch()
    with torch.no_grad(), ExitStack() as stack:
        for path, module in model.named_modules():
            _follow(watch, stack, path, module)
        stack.enter_context(_rotations(watch, model))
        with watch:
            model(*inputs)
    return watch.sites


def _follow(watch: Watch, stack: ExitStack, path: str, module: torch.nn.Module) -> None:
    kind = type(module).__name__
    written = _WRITTEN_OUT.get(kind)
    is_norm = any(mark in kind for mark in _NORMS) and not isinstance(module, torch.nn.RMSNorm)
    hides = written is not None or is_norm

    def before(module: torch.nn.Module, args: Any) -> None:
        watch.path.append(path)
        watch.modules.append(module)
        if watch.silent:
            watch.silent += hides
            return
        if written is not None:
            watch.note(written)
            watch._fused(_origins(args[0]))
        if is_norm:
            watch.note("RMS norm")
        watch.silent += hides

    def after(module: torch.nn.Module, args: Any, result: Any) -> None:
        watch.path.pop()
        watch.modules.pop()
        watch.silent -= hides
        if written is not None and isinstance(result, torch.Tensor):
            marks = {mark for mark in _origins(args[0]) if mark == "linear" or mark[0] == "#"}
            result.origin = {"activation"} | marks  # type: ignore[attr-defined]

    stack.callback(module.register_forward_pre_hook(before).remove)
    stack.callback(module.register_forward_hook(after).remove)


@contextmanager
def _rotations(watch: Watch, model: torch.nn.Module) -> Iterator[None]:
    """Count calls of functions that rotate, and mark what functions repeat for groups of heads."""
    with ExitStack() as stack:
        for name in sorted({type(module).__module__ for module in model.modules()}):
            source = sys.modules.get(name) or importlib.import_module(name)
            for key in _ROTATIONS:
                if callable(getattr(source, key, None)):
                    stack.enter_context(mock.patch.object(source, key, _counted(watch, getattr(source, key))))
            if callable(getattr(source, "repeat_kv", None)):
                stack.enter_context(mock.patch.object(source, "repeat_kv", _grouped(source.repeat_kv)))
        yield


def _counted(watch: Watch, function: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*args: Any, **kwargs: Any) -> Any:
        if not watch.silent:
            watch.note("rotary")
        return function(*args, **kwargs)

    return counted


def _grouped(function: Callable[..., Any]) -> Callable[..., Any]:
    def grouped(states: torch.Tensor, count: int) -> Any:
        result = function(states, count)
        if count > 1:
            result.origin = {"grouped"}
        return result

    return grouped


assert functional.relu.__name__ in _ACTIVATIONS
