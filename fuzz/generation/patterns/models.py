"""Models that a pass matches, to be inserted: a pair of a model and inputs becomes calls and values."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node

from exirkit.ir import Diagnostic, OpOverload, UsageError, underlying
from exirkit.patterns import INSTANCE_ERRORS

from .insertion import SIGNED
from .recorded_calls import LEFT_OUT, Kind, RecordedCall, RecordedInstance, Ref, changes, shuffled
from .sources import COARSE, FINE, FINE_SHARE, Candidate, Way, cast_others

_KINDS: Mapping[InputKind, Kind] = {
    InputKind.USER_INPUT: "input",
    InputKind.PARAMETER: "parameter",
    InputKind.BUFFER: "buffer",
    InputKind.CONSTANT_TENSOR: "constant",
}
_TRIES = 6
_SIZES = (1, 3, 2, 5)
_SIGNED_SHARE = 0.5
# A pass is mistaken about what is nearly its pattern more often than about the values in it.
_WAYS: tuple[Way | None, ...] = ("match", "near", "near", "shared", "near", "match", "near", "dtype")


class ModelPatterns:
    """Plants of a model: as it is, with other values in it, and changed in one place.

    Args:
        model: A module, a function of tensors, or an exported program. Its mode is not changed.
        inputs: Tensors that it takes.

    Raises:
        UsageError: EK875, it cannot be insertion.
    """

    def __init__(self, model: Any, inputs: Sequence[torch.Tensor]) -> None:
        self.name = _name_of(model)
        self._whole = _instance(self.name, _exported(self.name, model, inputs), inputs)
        self.ways: Sequence[Way | None] = _WAYS
        if not _runs(self._whole):
            raise _rejected(self.name, "one of its calls gives something else than tensors")
        possible = [one for one in changes(self._whole) if _runs(replace(self._whole, calls=one.calls))]
        self._changes = shuffled(possible, random.Random(self.name))

    def candidates(self, way: Way, number: int) -> Iterator[Candidate]:
        """Yield what may be insertion."""
        rng = random.Random(f"{self.name}:{number}")
        if way == "special":
            # A pass promises nothing for infinities.
            return
        for attempt in range(_TRIES):
            # The values of the example come first, so that a model that takes no others can be inserted at all.
            is_given = (number == 0 and attempt == 0) or attempt == _TRIES - 1
            whole = self._whole if is_given else _revalued(self._whole, rng)
            if way == "near":
                # One after the other, so that none is left out for long.
                turn, at = divmod(number, len(_WAYS))
                first = (turn * _WAYS.count("near") + _WAYS[:at].count("near")) % max(len(self._changes), 1)
                for one in (*self._changes[first:], *self._changes[:first]):
                    yield Candidate(replace(whole, calls=one.calls), "near", one.text)
            elif way == "dtype":
                for dtype, names in cast_others(whole, number):
                    yield Candidate(replace(whole, names=names), "dtype", str(dtype).removeprefix("torch."))
            else:
                if not is_given and rng.random() < 0.4:
                    yield Candidate(_resized(whole, rng.choice(_SIZES)), way, "another size")
                yield Candidate(whole, way)


def _name_of(model: Any) -> str:
    if isinstance(model, ExportedProgram):
        return "example"
    return str(getattr(model, "__name__", type(model).__name__))


class _Function(torch.nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


def _exported(name: str, model: Any, inputs: Sequence[torch.Tensor]) -> ExportedProgram:
    if isinstance(model, ExportedProgram):
        return model
    module = model if isinstance(model, torch.nn.Module) else _Function(model)
    try:
        with warnings.catch_warnings():
            # Those of torch.export are not about the model.
            warnings.simplefilter("ignore")
            program = torch.export.export(module, tuple(inputs), strict=False)
            # Programs write to nothing in between; a `relu_` becomes a `relu`.
            return program.run_decompositions({}) if any(map(_writes, program.graph.nodes)) else program
    except Exception as error:
        text = str(error).strip().splitlines()
        raise _rejected(name, "torch.export does not take it", f"{type(error).__name__}: {text[0][:300]}") from error


class _Eager:
    """Runs calls."""

    def call(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the operator returns.

        Raises:
            TypeError: Something else than tensors.
        """
        found = op(*args, **kwargs)
        if not all(isinstance(one, torch.Tensor) for one in (found if isinstance(found, list | tuple) else [found])):
            raise TypeError(f"{op} does not return tensors")
        return found


def _runs(instance: RecordedInstance) -> bool:
    """Whether calls run on the values that they come with."""
    try:
        with torch.no_grad():
            return instance.run(_Eager(), {name: value.clone() for name, value in instance.names.items()}) is not None
    except INSTANCE_ERRORS:
        return False


def _writes(node: Node) -> bool:
    return isinstance(node.target, OpOverload) and node.target._schema.is_mutable


def _instance(name: str, program: ExportedProgram, inputs: Sequence[torch.Tensor]) -> RecordedInstance:
    signature = program.graph_signature
    if any(one.kind is not OutputKind.USER_OUTPUT for one in signature.output_specs):
        raise _rejected(name, "it writes to buffers or inputs", "call `.eval()` of a module before")
    given = iter(inputs)
    names: dict[str, torch.Tensor] = {}
    kinds: dict[str, Kind] = {}
    for spec in signature.input_specs:
        if spec.kind not in _KINDS:
            raise _rejected(name, f"it takes something else than tensors: {spec.arg.name}")
        kinds[spec.arg.name] = _KINDS[spec.kind]
        value = next(given, None) if spec.kind is InputKind.USER_INPUT else _stored(program, str(spec.target))
        if not isinstance(value, torch.Tensor):
            raise _rejected(name, f"{spec.arg.name} is not a tensor")
        names[spec.arg.name] = value.detach()
    calls: list[RecordedCall] = []
    refs: dict[Node, Ref] = {}
    results: tuple[Any, ...] = ()
    for node in program.graph.nodes:
        if node.op == "placeholder":
            refs[node] = Ref(node.name)
        elif node.target is torch.ops.aten._assert_tensor_metadata.default:
            # What `x.to(dtype)` is exported with; it returns nothing.
            continue
        elif node.op == "output":
            results = tuple(_written(name, one, refs) for one in node.args[0])
        else:
            _call(name, node, refs, calls)
    tensors = tuple(one for one in results if isinstance(one, Ref))
    if not calls or not tensors:
        raise _rejected(name, "it calls nothing, or returns no tensor")
    return RecordedInstance(names, kinds, tuple(calls), tensors)


def _call(name: str, node: Node, refs: dict[Node, Ref], calls: list[RecordedCall]) -> None:
    if getattr(node.target, "__name__", "") == "getitem":
        base, index = node.args
        refs[node] = Ref(refs[base].name, int(index))  # type: ignore[index, arg-type]
        return
    op = underlying(node.target) if node.op == "call_function" else None
    if not isinstance(op, OpOverload):
        raise _rejected(name, f"it calls {node.target}, which is not an operator of a program")
    args = tuple(_written(name, one, refs) for one in node.args)
    kwargs = {key: _written(name, one, refs) for key, one in node.kwargs.items() if key not in LEFT_OUT}
    refs[node] = Ref(node.name)
    calls.append(RecordedCall(node.name, op, args, kwargs))


def _written(name: str, argument: Any, refs: Mapping[Node, Ref]) -> Any:
    if isinstance(argument, Node):
        if argument not in refs:
            raise _rejected(name, f"{argument.name} is not a tensor")
        return refs[argument]
    if isinstance(argument, list | tuple):
        return [_written(name, one, refs) for one in argument]
    return argument


def _stored(program: ExportedProgram, target: str) -> Any:
    return program.state_dict.get(target, program.constants.get(target))


def _rejected(name: str, why: str, hint: str | None = None) -> UsageError:
    return UsageError(
        Diagnostic(
            code="EK875",
            message=f"the example {name} cannot be inserted in programs: {why}",
            hint=hint or "give a model that takes tensors, returns tensors and calls operators of torch only",
        )
    )


# Other values.


def _revalued(whole: RecordedInstance, rng: random.Random) -> RecordedInstance:
    """Return an instance with other values, on a grid; floats have the signs that those of the example have.

    Integers may be indices, which must be in range: only where calls take others too, they are not the same numbers in
    another order.
    """
    names = {name: _redrawn(tensor, rng) for name, tensor in whole.names.items()}
    signed = {name: _with_signs(tensor, rng) for name, tensor in names.items() if whole.kinds[name] == "input"}
    made = replace(whole, names=_laid_out_as(whole.names, {**names, **signed}))
    is_signed = rng.random() < _SIGNED_SHARE and _runs(made)
    return made if is_signed else replace(whole, names=_laid_out_as(whole.names, names))


def _laid_out_as(given: Mapping[str, torch.Tensor], drawn: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return values in the layouts of the example: a pass may be mistaken about them."""
    return {name: torch.empty_like(given[name]).copy_(value) for name, value in drawn.items()}


def _redrawn(tensor: torch.Tensor, rng: random.Random) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    if not tensor.numel():
        return tensor
    if not tensor.is_floating_point():
        # They may be indices: the same numbers in another order.
        return tensor.flatten()[torch.randperm(tensor.numel(), generator=generator)].reshape(tensor.shape)
    low, high = float(tensor.min()), float(tensor.max())
    if low > 0:
        low, high = low / 2, high * 2
    elif low == high == 0:
        low, high = -1.0, 1.0
    elif low >= 0:
        low, high = 0.0, 2 * high
    else:
        high = max(abs(low), abs(high))
        low = -high
    drawn = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * (high - low) + low
    places = FINE if rng.random() < FINE_SHARE and tensor.dtype in (torch.float32, torch.float64) else COARSE
    step = 2.0**-places if high - low > 0.25 else (high - low) / 64
    # Rounding to the grid must not lead out of the interval, to zero above all.
    return (drawn / step).round().mul(step).clamp(low, high).to(tensor.dtype)


def _with_signs(tensor: torch.Tensor, rng: random.Random) -> torch.Tensor:
    """Return integers with other signs, or any other tensor as it is."""
    if tensor.dtype not in SIGNED:
        return tensor
    generator = torch.Generator().manual_seed(rng.randrange(2**31))
    return torch.where(torch.rand(tensor.shape, generator=generator) < 0.5, -tensor, tensor)


def _resized(whole: RecordedInstance, size: int) -> RecordedInstance:
    """Return an instance whose inputs have another size in the first dim, where all of them have the same one."""
    inputs = [tensor for name, tensor in whole.names.items() if whole.kinds[name] == "input"]
    if not inputs or len({tuple(one.shape[:1]) for one in inputs}) != 1 or not inputs[0].dim():
        return whole
    names = {
        name: torch.cat([tensor] * size)[:size] if whole.kinds[name] == "input" else tensor
        for name, tensor in whole.names.items()
    }
    return replace(whole, names=names)
