"""What programs mean: steps are run one by one with the operators of torch on real tensors, without any graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from exirkit.ir import Diagnostic, Location, ModelError, pytree

from .inference import operator_named
from .model import Argument, Body, Call, Method, Program, Ref, Run, Size
from .sizes import size_value
from .tensors import inputs_of, stored_tensor
from .text import call_text

MOST_TURNS = 10_000
"""Turns after which a loop is said not to end."""

_SHAKEN = 3
_LESS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class RunResult:
    """What one run gave.

    Attributes:
        method: That was called.
        outputs: Tensors with memory of their own, numbers and None.
        buffers: All buffers after the run, by name.
        inputs: The inputs that the run wrote to, as they are afterwards, by name.
        values: All values of the method by name, those of bodies excepted; empty unless they were asked for.
    """

    method: str
    outputs: tuple[Any, ...]
    buffers: Mapping[str, torch.Tensor]
    inputs: Mapping[str, torch.Tensor]
    values: Mapping[str, Any]


def run_eagerly(
    program: Program, *, keep_values: bool = False, in_float64: bool = False, noise: int | None = None
) -> list[RunResult]:
    """Run a program: all its runs, one after the other, with the buffers that the last one left.

    Args:
        program: A program without findings.
        keep_values: Return the values of all names as well.
        in_float64: Compute with 64 bits where the program has floats of 16 or 32 bits: a reference for their errors.
            The same elements go in, rounded as the program has them. Outputs and buffers are of 64 bits then.
        noise: Seed of what is added to each such element, at most one unit in its last place: results differ as much
            as rounding can make them.

    Raises:
        ModelError: EK808 or EK809, an operator is not known or does not take its arguments; EK811, a symbol that no
            input has; EK812, a loop does not end.
    """
    runner = Runner(program, in_float64=in_float64, noise=noise)
    return [runner.run(one, keep_values=keep_values) for one in program.runs]


def run_shaken(program: Program) -> list[list[RunResult]]:
    """Run a program in float64 a few times, each with other roundings of its operands, as far as it runs so."""
    found = []
    for seed in range(_SHAKEN):
        # Whether a loop ends may hang on the last bit.
        with suppress(ModelError):
            found.append(run_eagerly(program, in_float64=True, noise=seed))
    return found


class Runner:
    """A program in its starting state, on which runs are made one by one.

    Args:
        program: A program without findings.
        in_float64: As in `run_eagerly`.
        noise: As in `run_eagerly`.

    Attributes:
        stored: Parameters, buffers and constants as they are now.
    """

    def __init__(self, program: Program, *, in_float64: bool = False, noise: int | None = None) -> None:
        self.program = program
        self._wide = in_float64
        self._noise = None if noise is None else torch.Generator().manual_seed(noise)
        self.stored = {one.name: self._widened(stored_tensor(program, one.name)) for one in program.stored}

    def run(self, run: Run, *, inputs: Sequence[torch.Tensor] | None = None, keep_values: bool = False) -> RunResult:
        """Make one run.

        Args:
            run: A run of the program.
            inputs: Used in place of those that the run describes; they are not changed.
            keep_values: As in `run_eagerly`.

        Raises:
            ModelError: As in `run_eagerly`.
        """
        method = next(one for one in self.program.methods if one.name == run.method)
        given = inputs_of(self.program, run) if inputs is None else inputs
        names = [one.name for one in method.inputs]
        values: dict[str, Any] = dict(self.stored)
        values.update(zip(names, map(self._widened, given), strict=True))
        with torch.no_grad(), _default_dtype(torch.float64 if self._wide else torch.float32):
            steps = _Steps(method, run.sizes, self._wide)
            steps.run(method.steps, values)
            outputs = tuple(_owned(steps.value(one, values)) for one in method.outputs)
            written = self._write(method, values)
        buffers = {one.name: self.stored[one.name].clone() for one in self.program.stored if one.kind == "buffer"}
        return RunResult(run.method, outputs, buffers, written, values if keep_values else {})

    def _write(self, method: Method, values: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        written: dict[str, torch.Tensor] = {}
        # Nothing is written in place, so that all values stay what they were before the first was written.
        for target, source in method.updates:
            tensor = self._written(values[target], values[source.name])
            if target in self.stored:
                self.stored[target] = tensor
            else:
                written[target] = tensor
        return written

    def _written(self, target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        """Return the new contents with the strides of the old ones."""
        if self._wide and source.dtype in _LESS:
            # Some operators, such as those that dequantize, give 32 bits whatever they take.
            source = source.to(target.dtype)
        if target.shape != source.shape or target.dtype != source.dtype:
            message = "a buffer or input is written with a value of another type"
            raise ModelError(Diagnostic(code="EK810", message=message))
        return torch.empty_like(target).copy_(source)

    def _widened(self, tensor: torch.Tensor) -> torch.Tensor:
        if not self._wide or tensor.dtype not in _LESS:
            return tensor
        wide = tensor.to(torch.float64)
        if self._noise is None:
            return wide
        factors = torch.rand(wide.shape, generator=self._noise, dtype=torch.float64) * 2 - 1
        return wide * (1 + torch.finfo(tensor.dtype).eps * factors)


class _Steps:
    """Runs steps.

    Args:
        method: That they belong to.
        sizes: Value of each symbol.
        wide: Whether floats have 64 bits.
    """

    def __init__(self, method: Method, sizes: Mapping[str, int], wide: bool) -> None:
        self.method = method
        self.sizes = sizes
        self.wide = wide

    def run(self, steps: Sequence[Call], values: dict[str, Any]) -> None:
        """Run steps; `values` grows."""
        for step in steps:
            found = self._call(step, values)
            results = found if isinstance(found, list | tuple) else () if found is None else (found,)
            if len(results) != len(step.results):
                raise self._error("EK809", step, f"{step.op} has {len(results)} results, not {len(step.results)}")
            values.update({name: one for name, one in zip(step.results, results, strict=True) if name is not None})

    def value(self, argument: Argument, values: Mapping[str, Any]) -> Any:
        """Return the value of an argument."""
        if isinstance(argument, Ref):
            return values[argument.name]
        if isinstance(argument, Size):
            try:
                return size_value(argument.text, self.sizes)
            except KeyError as error:
                message = f"the run has no size for {error.args[0]}"
                place = Location(method=self.method.name)
                raise ModelError(Diagnostic(code="EK811", message=message, location=place)) from None
        if isinstance(argument, tuple):
            return [self.value(one, values) for one in argument]
        return argument

    def _call(self, call: Call, values: Mapping[str, Any]) -> Any:
        args = [self.value(one, values) for one in call.args]
        kwargs = {name: self.value(one, values) for name, one in call.kwargs}
        target = None if call.op in _HIGHER_ORDER else operator_named(call.op)
        if target is None and call.op not in _HIGHER_ORDER:
            raise self._error("EK808", call, f"no operator {call.op} is registered")
        try:
            if target is None:
                return _HIGHER_ORDER[call.op](self, call, *args)
            return self._widely(target, args, kwargs) if self.wide else target(*args, **kwargs)
        except ModelError:
            raise
        except Exception as error:
            note = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"
            message = f"{call.op} does not take these arguments"
            raise self._error("EK809", call, message, notes=(note,)) from error

    def _widely(self, target: Any, args: Any, kwargs: Any) -> Any:
        wide = pytree.tree_map(lambda one: torch.float64 if _is_less(one) else one, (args, kwargs))
        try:
            found = target(*wide[0], **wide[1])
        except Exception:
            # Some operators take 32 bits only.
            less = pytree.tree_map_only(torch.Tensor, _narrow, (args, kwargs))
            found = target(*less[0], **less[1])
        # And some give 32 bits whatever they are given.
        return pytree.tree_map_only(torch.Tensor, _widen, found)

    def _error(self, code: str, call: Call, message: str, *, notes: tuple[str, ...] = ()) -> ModelError:
        name = next((one for one in call.results if one), call.op)
        place = Location(method=self.method.name, node=name, text=call_text(call)[:200])
        return ModelError(Diagnostic(code=code, message=message, location=place, notes=notes))

    def _body(self, body: Body, operands: Sequence[Any]) -> list[Any]:
        values = dict(zip(body.inputs, operands, strict=True))
        self.run(body.steps, values)
        return [self.value(one, values) for one in body.outputs]

    def _cond(self, call: Call, predicate: Any, operands: list[Any]) -> list[Any]:
        return self._body(call.bodies[0 if bool(predicate) else 1], operands)

    def _map(self, call: Call, slices: list[Any], extras: list[Any]) -> list[Any]:
        turns = [
            self._body(call.bodies[0], [*(one[turn] for one in slices), *extras]) for turn in range(slices[0].shape[0])
        ]
        return [torch.stack(one) for one in zip(*turns, strict=True)]

    def _scan(self, call: Call, carried: list[Any], slices: list[Any], extras: list[Any]) -> list[Any]:
        turns: list[list[Any]] = []
        for turn in range(slices[0].shape[0]):
            found = self._body(call.bodies[0], [*carried, *(one[turn] for one in slices), *extras])
            carried, rest = found[: len(carried)], found[len(carried) :]
            turns.append(rest)
        return [*carried, *(torch.stack(one) for one in zip(*turns, strict=True))]

    def _while_loop(self, call: Call, carried: list[Any], extras: list[Any]) -> list[Any]:
        goes_on, turn = call.bodies
        for _ in range(MOST_TURNS):
            if not bool(self._body(goes_on, [*carried, *extras])[0]):
                return carried
            carried = self._body(turn, [*carried, *extras])
        raise self._error("EK812", call, f"a loop goes on after {MOST_TURNS} turns")


_HIGHER_ORDER: dict[str, Callable[..., list[Any]]] = {
    "cond": _Steps._cond,
    "map": _Steps._map,
    "scan": _Steps._scan,
    "while_loop": _Steps._while_loop,
}


def _is_less(argument: object) -> bool:
    return isinstance(argument, torch.dtype) and argument in _LESS


def _narrow(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float32) if tensor.dtype is torch.float64 else tensor


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float64) if tensor.dtype in _LESS else tensor


def _owned(value: Any) -> Any:
    # `clone` keeps strides where they are dense, as the result of an operator has them.
    return value.clone() if isinstance(value, torch.Tensor) else value


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Let operators that are told no dtype make floats of this one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
