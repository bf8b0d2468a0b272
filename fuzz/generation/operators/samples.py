"""Calls recorded from PyTorch's own samples of its operators, and calls that differ from them.

Families of the catalogue make calls that fit into programs; these stand alone, but there are some for every operator
that PyTorch tests. `python -m tools.operator_samples` records them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from exirkit.fuzz.generation.method.values import DTYPES
from exirkit.fuzz.programs import TensorType
from exirkit.fuzz.programs.tensor_types import parse_type, type_text

_USUAL, _RAREST = 0.3, 3.0

RECORDED, VARIED = (Path(__file__).with_name(f"{name}.jsonl") for name in ("samples", "variations"))
"""Calls of PyTorch's samples with what was changed in one place, and calls that differ from these in several."""

_OF_TORCH: Mapping[str, Any] = {
    str(one).removeprefix("torch."): one
    for one in (*DTYPES, torch.contiguous_format, torch.channels_last, torch.preserve_format, torch.strided)
}


@dataclass(frozen=True)
class TensorSample:
    """A tensor of a call.

    Attributes:
        dtype: Of its elements.
        sizes: Of its dims.
        numbers: Its elements, row by row; none where they may be drawn.
        is_free: Its elements may be any.
    """

    dtype: torch.dtype
    sizes: tuple[int, ...]
    numbers: tuple[Any, ...]
    is_free: bool


@dataclass(frozen=True)
class Sample:
    """One call.

    Attributes:
        op: Name of the operator.
        args: With `TensorSample` for tensors.
        kwargs: By name.
        results: Dtype and sizes of each.
        is_plain: Its tensors have only elements that are finite and small.
        calls: How many calls of the Edge dialect calls of this operator become, on average.
        rarity: How many lines of exirkit few other calls reach: a line that is reached by two counts a half.
    """

    op: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    results: tuple[tuple[torch.dtype, tuple[int, ...]], ...]
    is_plain: bool = False
    calls: int = 0
    rarity: float = 0.0

    @property
    def tensors(self) -> list[TensorSample]:
        """Its tensors, in order."""
        found: list[TensorSample] = []

        def noted(one: TensorSample) -> TensorSample:
            found.append(one)
            return one

        self.mapped(noted)
        return found

    @property
    def pattern(self) -> str:
        """What tells it from others: all but the elements of floats."""
        return json.dumps(self.mapped(_without_floats).as_json())

    def mapped(self, change: Callable[[TensorSample], Any]) -> Sample:
        """Return the call with something in place of each tensor, in order."""

        def of(one: Any) -> Any:
            if isinstance(one, TensorSample):
                return change(one)
            return tuple(of(each) for each in one) if isinstance(one, list | tuple) else one

        return replace(
            self, args=tuple(of(one) for one in self.args), kwargs={key: of(one) for key, one in self.kwargs.items()}
        )

    def as_json(self) -> dict[str, Any]:
        """Return it as it is written."""
        args = [_written(one) for one in self.args]
        found: dict[str, Any] = {"op": self.op, "args": args}
        if self.kwargs:
            found["kwargs"] = {key: _written(one) for key, one in self.kwargs.items()}
        if self.is_plain:
            found["plain"] = True
        found["results"] = [_type_text(dtype, sizes) for dtype, sizes in self.results]
        found["calls"] = self.calls
        if self.rarity:
            found["rarity"] = self.rarity
        return found

    @property
    def interest(self) -> float:
        """What its weight is multiplied by: most calls reach no line that others do not."""
        return _interest(self.rarity)


def _without_floats(one: TensorSample) -> TensorSample:
    return replace(one, numbers=()) if one.dtype.is_floating_point else one


def _type_text(dtype: torch.dtype, sizes: tuple[int, ...]) -> str:
    return type_text(TensorType(dtype, sizes))


def _written(one: Any) -> Any:
    """Return an argument as JSON has it: a tensor is its type, with its elements if these are given."""
    if isinstance(one, TensorSample):
        text = _type_text(one.dtype, one.sizes)
        return text if one.is_free else {"tensor": text, "numbers": [_written(each) for each in one.numbers]}
    if isinstance(one, list | tuple):
        return [_written(each) for each in one]
    if isinstance(one, torch.dtype | torch.memory_format | torch.layout):
        return {"torch": str(one).removeprefix("torch.")}
    if isinstance(one, float) and not math.isfinite(one):
        return {"float": str(one)}
    return {"text": one} if isinstance(one, str) else one


def _read(one: Any) -> Any:
    if isinstance(one, list):
        return tuple(_read(each) for each in one)
    if isinstance(one, str):
        return TensorSample(*_read_type(one), (), is_free=True)
    if not isinstance(one, dict):
        return one
    if "tensor" in one:
        return TensorSample(*_read_type(one["tensor"]), _read(one["numbers"]), is_free=False)
    if "torch" in one:
        return _OF_TORCH[one["torch"]]
    return float(one["float"]) if "float" in one else one["text"]


@cache
def _read_type(text: str) -> tuple[torch.dtype, tuple[int, ...]]:
    read = parse_type(text)
    return read.dtype, tuple(int(one) for one in read.sizes)


def read_sample(line: str) -> Sample:
    """Read what `as_json` has made."""
    entry = json.loads(line)
    kwargs = {key: _read(one) for key, one in entry.get("kwargs", {}).items()}
    results = tuple(map(_read_type, entry["results"]))
    rest = entry.get("plain", False), entry["calls"], entry.get("rarity", 0.0)
    return Sample(entry["op"], _read(entry["args"]), kwargs, results, *rest)


def read_lines(file: Path) -> dict[str, list[str]]:
    """Return the lines of a file by operator; only those of operators that are chosen are read."""
    found: dict[str, list[str]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        found.setdefault(line.split('"', 4)[3], []).append(line)
    return found


@cache
def _lines() -> Mapping[str, list[str]]:
    varied = read_lines(VARIED)
    return {op: [*lines, *varied.get(op, ())] for op, lines in read_lines(RECORDED).items()}


@cache
def sampled_operators() -> Mapping[str, float]:
    """Return the operators of which calls come with exirkit, with weights: what becomes many calls takes long."""
    return {
        op: _interest(max(map(_rarity, lines))) / math.sqrt(3 + json.loads(lines[0])["calls"])
        for op, lines in _lines().items()
    }


def _interest(rarity: float) -> float:
    return _USUAL + min(rarity, _RAREST)


def _rarity(line: str) -> float:
    """Return the rarity of a call without reading the rest of it."""
    found = re.search(r'"rarity":([\d.]+)}$', line)
    return float(found[1]) if found else 0.0


@cache
def samples_of(op: str) -> tuple[Sample, ...]:
    """Return the calls of an operator that come with exirkit."""
    return tuple(map(read_sample, _lines()[op]))
