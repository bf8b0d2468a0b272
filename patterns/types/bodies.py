"""Types of control flow: bodies, conditions, and the operands that they are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import torch

from exirkit.ir import FakeTensor, value_of
from exirkit.patterns.operators.control_flow import Body, BodyBuilder
from exirkit.patterns.types.values import ValueMaker, make_tensor

from .scanner import Token, TypeScanner
from .variable import Variable

_MOST_TURNS = 24
_SIZES = (1, 2, 3)
Spec = tuple[torch.dtype, tuple[int, ...]]
"""Dtype and sizes of one result."""


@dataclass
class DrawnBody:
    """A function that trials take for a body: smooth, another one for every seed, and about all that it is given.

    Attributes:
        seed: Which function.
        specs: Dtypes and sizes of the results.
        is_free: No type says what the results are like.
        decides: It is the condition of a loop, which ends sooner or later.
        also: Further values that it reads, which near misses give it.
        gives_one: It stands for one value, and for no list.
    """

    seed: int
    specs: tuple[Spec, ...]
    is_free: bool = False
    decides: bool = False
    also: tuple[Any, ...] = ()
    gives_one: bool = False
    turns: int = field(default=0, compare=False)

    def results(self, builder: BodyBuilder, args: Sequence[Any]) -> list[Any]:
        """Return the results for tensors."""
        given = [one for one in (*args, *self.also) if isinstance(one, torch.Tensor)]
        found = [self._result(number, dtype, sizes, given) for number, (dtype, sizes) in enumerate(self.specs)]
        if self.decides and type(found[0]) is torch.Tensor:
            self.turns = self.turns + 1 if bool(found[0]) else 0
            if self.turns > _MOST_TURNS:
                self.turns = 0
                raise RuntimeError("the loop does not end")
        return found

    def _result(self, number: int, dtype: torch.dtype, sizes: tuple[int, ...], given: Sequence[torch.Tensor]) -> Any:
        weight = 0.37 + (self.seed % 97) / 61 + number / 7
        mixed = torch.full(sizes, weight, dtype=torch.float32)
        for place, one in enumerate(given, 1):
            waved = torch.sin(one.to(torch.float32) * (weight + place))
            mixed = mixed + (waved if tuple(one.shape) == sizes else waved.sum())
        if self.decides:
            return torch.sin(mixed * 37.0) > -0.1
        if dtype == torch.bool:
            return mixed > 0.4
        # What integers are made of nan is another thing everywhere.
        return mixed.to(dtype) if dtype.is_floating_point else torch.nan_to_num(mixed * 4).to(dtype)

    def other(self) -> DrawnBody:
        """Return another function with results of the same kind."""
        return replace(self, seed=self.seed + 1, turns=0)

    def reading(self, also: Sequence[Any]) -> DrawnBody:
        """Return a function that reads further values."""
        return replace(self, also=tuple(also), turns=0)

    def __str__(self) -> str:
        return f"function {self.seed % 1000} with {len(self.specs)} results"


@dataclass(frozen=True, kw_only=True)
class BodyVariable(Variable):
    """A body of control flow, or what a body computes from other values in it: a function.

    Two bodies are the same if they make the same calls. What the body gives is like another variable: one tensor, or a
    list. Trials draw functions that depend on all that they are given.
    """

    KEYWORDS = ("body", "condition")
    EXAMPLES: ClassVar = {
        "body": "any number of results",
        "body like x": "one result of the dtype and sizes of x, or a list of such if x is a list",
        "condition": "what decides whether a loop goes on: one bool",
    }
    TITLE = "Body of control flow"

    like: str | None = None
    decides: bool = False

    @classmethod
    def parse(cls, scanner: TypeScanner, keyword: Token) -> Variable:
        """Parse what it is like."""
        if keyword.text == "condition":
            return cls(name=scanner.variable, decides=True)
        like = scanner.name("the name of a tensor or a list") if scanner.accept("like") else None
        return cls(name=scanner.variable, like=like)

    @cached_property
    def depends_on(self) -> frozenset[str]:
        """What the results are like."""
        return frozenset() if self.like is None else frozenset((self.like,))

    @property
    def text(self) -> str:
        """The canonical string without `| none`."""
        return "condition" if self.decides else "body" if self.like is None else f"body like {self.like}"

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool | None:
        """Whether a value is of the type."""
        if not isinstance(value, Body):
            return False
        found = getattr(value, "values", None)
        if found is None:
            return True
        if self.decides:
            return len(found) == 1 and _spec(found[0]) == (torch.bool, ())
        wanted = names.get(self.like) if self.like is not None else None
        if wanted is None:
            return True
        wanted = wanted if isinstance(wanted, list | tuple) else [wanted]
        return [_spec(one) for one in found] == [_spec(value_of(one)) for one in wanted]

    def draw(self, maker: ValueMaker) -> DrawnBody:
        """Return a function."""
        seed = maker.rng.getrandbits(24)
        if self.decides:
            return DrawnBody(seed, ((torch.bool, ()),), decides=True, gives_one=True)
        if self.like is not None:
            like = maker.names[self.like]
            is_list = isinstance(like, list | tuple)
            shown = like if is_list else [like]
            specs = tuple((one.dtype, tuple(one.shape)) for one in shown)
            return DrawnBody(seed, specs, gives_one=not is_list)
        # All of a rule that say nothing of it have results of one kind.
        for other in maker.names.values():
            if isinstance(other, DrawnBody) and other.is_free:
                return DrawnBody(seed, other.specs, is_free=True)
        count = maker.rng.choice((1, 1, 2, 3))
        return DrawnBody(seed, tuple(_drawn_spec(maker) for _ in range(count)), is_free=True)


@dataclass(frozen=True, kw_only=True)
class OperandsVariable(Variable):
    """A list of whatever bodies are given: tensors of any dtypes and sizes, perhaps none."""

    KEYWORDS = ("operands",)
    EXAMPLES: ClassVar = {"operands": "any number of tensors, each of its own dtype and sizes"}
    TITLE = "Operands of control flow"

    def decide(self, value: Any, names: Mapping[str, Any]) -> bool:
        """Whether a value is of the type."""
        return isinstance(value, list | tuple) and all(isinstance(value_of(one), torch.Tensor) for one in value)

    def draw(self, maker: ValueMaker) -> list[torch.Tensor]:
        """Return tensors."""
        made: list[torch.Tensor] = []
        for _ in range(maker.rng.choice((0, 1, 1, 2))):
            dtype, sizes = _drawn_spec(maker)
            made.append(make_tensor(dtype, sizes, maker.rng, profile=maker.profile))
        return made


def gives_one(variable: Any, variables: Mapping[str, Any]) -> bool:
    """Whether a body gives one value, and no list.

    Args:
        variable: Type of the body.
        variables: Types of the rule.
    """
    like = variables.get(variable.like) if variable.like is not None else None
    return variable.decides or (like is not None and hasattr(like, "dtypes"))


def _drawn_spec(maker: ValueMaker) -> Spec:
    dtype = maker.rng.choice((torch.float32, torch.float32, torch.float32, torch.int64, torch.bool))
    return dtype, tuple(maker.rng.choice(_SIZES) for _ in range(maker.rng.randint(0, 2)))


def _spec(value: Any) -> Any:
    if not isinstance(value, torch.Tensor | FakeTensor):
        return None
    return value.dtype, tuple(one if type(one) is int else str(one) for one in value.shape)
