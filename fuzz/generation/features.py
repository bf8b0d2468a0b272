"""What programs contain, read off the programs themselves, and how often they do."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import torch

from exirkit.fuzz.programs import Argument, Call, Method, Program, Ref, Size, Stored, leaves_of, names_in
from exirkit.fuzz.programs.inference import operator_named

from .generating import generate
from .method.dims import has_dim_from_the_end
from .method.values import bits_of
from .operators.catalogue import shipped_operators
from .policy import FLOORS, Policy

_VIEWS = frozenset(
    operator.name
    for operator in shipped_operators()
    if operator.option("copy") is not None or operator.option("odd") or operator.option("views")
) | {"aten.narrow.default", "aten._unsafe_view.default", "aten.flatten.using_ints"}
_ENDLESS = 2**63 - 1
_GREAT = 2**31


@dataclass(frozen=True)
class _View:
    """A program, and what is looked up in it again and again.

    Attributes:
        program: The program.
        calls: Of all methods, with the method and the place in it.
        stored: By name.
        uses: Names that calls refer to, with the method and the place of the call.
    """

    program: Program
    calls: tuple[tuple[Method, int, Call], ...]
    stored: Mapping[str, Stored]
    uses: tuple[tuple[str, Method, int], ...]


def features_of(program: Program) -> frozenset[str]:
    """Return the features that a program has, by their names in `FLOORS`, and `op:NAME` for each operator in it."""
    calls = tuple((method, at, call) for method in program.methods for at, call in enumerate(method.steps))
    uses = tuple((name, method, at) for method, at, call in calls for name in names_in(call.arguments))
    view = _View(program, calls, {stored.name: stored for stored in program.stored}, uses)
    found = {name for name, test in _TESTS.items() if test(view)}
    found |= {call.op for _, _, call in calls if call.bodies}
    found |= set(_schemes(view))
    return frozenset(found | {f"op:{call.op}" for _, _, call in calls})


def _input_sizes(view: _View) -> list[int | str]:
    return [size for method in view.program.methods for each in method.inputs for size in each.type.sizes]


def _all_sizes(view: _View) -> list[tuple[int | str, ...]]:
    inputs = [each.type.sizes for method in view.program.methods for each in method.inputs]
    return [*inputs, *(stored.type.sizes for stored in view.program.stored)]


def _is_dynamic(view: _View) -> bool:
    return any(isinstance(size, str) for size in _input_sizes(view))


def _symbols_used(view: _View) -> set[str]:
    texts = [size for size in _input_sizes(view) if isinstance(size, str)]
    return {symbol.name for symbol in view.program.symbols for text in texts if symbol.name in text.split()}


def _has_derived(view: _View) -> bool:
    texts = [size for size in _input_sizes(view) if isinstance(size, str)]
    for _, _, call in view.calls:
        texts += [leaf.text for leaf in leaves_of(call.arguments) if isinstance(leaf, Size)]
    return any(" " in text for text in texts)


def _buffers_written(view: _View) -> list[tuple[Method, str, str]]:
    return [
        (method, target, source.name)
        for method in view.program.methods
        for target, source in method.updates
        if target in view.stored
    ]


def _producers(view: _View) -> dict[str, Call]:
    return {name: call for _, _, call in view.calls for name in call.results if name is not None}


def _copied_into(view: _View, name: str) -> tuple[str, str] | None:
    """Return target and source of the copy that makes a value, or None if another call does."""
    call = _producers(view).get(name)
    if call is None or call.op != "aten.copy.default":
        return None
    target, source = call.args[:2]
    return (target.name, source.name) if isinstance(target, Ref) and isinstance(source, Ref) else None


def _writes_twice(view: _View) -> bool:
    for _, buffer, source in _buffers_written(view):
        last = _copied_into(view, source)
        first = _copied_into(view, last[0]) if last is not None else None
        if first is not None and first[0] == buffer:
            return True
    return False


def _passed_on(view: _View) -> set[tuple[str, str]]:
    """Return the buffers that are written with what another value holds, with that value."""
    pairs = {(buffer, source) for _, buffer, source in _buffers_written(view)}
    pairs |= {
        (buffer, copied[1]) for _, buffer, source in _buffers_written(view) if (copied := _copied_into(view, source))
    }
    return {(one, other) for one, other in pairs if one != other}


def _swaps(view: _View) -> bool:
    pairs = _passed_on(view)
    return any((other, one) in pairs for one, other in pairs)


def _delays(view: _View) -> bool:
    pairs, written = _passed_on(view), {buffer for _, buffer, _ in _buffers_written(view)}
    return any(other in written and (other, one) not in pairs for one, other in pairs)


def _reads_late(view: _View) -> bool:
    made = {name: at for _, at, call in view.calls for name in call.results if name is not None}
    for method, buffer, source in _buffers_written(view):
        if any(name == buffer and where is method and at > made.get(source, -1) for name, where, at in view.uses):
            return True
    return False


def _has_equal_pair(view: _View) -> bool:
    seen = [(stored.type, stored.contents) for stored in view.program.stored]
    return any(count > 1 for count in Counter(seen).values())


def _outputs(view: _View) -> list[Argument]:
    return [output for method in view.program.methods for output in method.outputs]


def _returned(view: _View, names: Iterable[str]) -> bool:
    wanted = set(names)
    return any(isinstance(output, Ref) and output.name in wanted for output in _outputs(view))


def _returns_twice(view: _View) -> bool:
    return any(count > 1 for method in view.program.methods for count in Counter(names_in(method.outputs)).values())


def _returns_input(view: _View) -> bool:
    return _returned(view, (each.name for method in view.program.methods for each in method.inputs))


def _odd_outputs(view: _View) -> bool:
    outputs = _outputs(view)
    is_odd = any(output is None or isinstance(output, Size) for output in outputs)
    return is_odd or _returns_twice(view) or _returns_input(view) or _returned(view, view.stored)


def _uses_output_later(view: _View) -> bool:
    used = {name for name, _, _ in view.uses}
    results = set(_producers(view))
    return any(isinstance(output, Ref) and output.name in used & results for output in _outputs(view))


def _is_channels_last(view: _View) -> bool:
    layouts = [contents.layout for run in view.program.runs for contents in run.inputs.values()]
    is_asked = any(torch.channels_last in dict(call.kwargs).values() for _, _, call in view.calls)
    return is_asked or "channels_last" in layouts


def _dtypes(view: _View) -> set[torch.dtype]:
    inputs = {each.type.dtype for method in view.program.methods for each in method.inputs}
    casts = {leaf for _, _, call in view.calls for leaf in leaves_of(call.arguments) if isinstance(leaf, torch.dtype)}
    return inputs | casts | {stored.type.dtype for stored in view.program.stored}


def _numbers(view: _View) -> list[float]:
    return [leaf for _, _, call in view.calls for leaf in leaves_of(call.arguments) if isinstance(leaf, int | float)]


def _is_quantized(view: _View) -> bool:
    """Whether something is quantized: by operators of that name, or rounded and cast to eight bits."""
    if any(call.op.startswith("quantized_decomposed.") for _, _, call in view.calls):
        return True
    casts = [dict(call.kwargs).get("dtype") for _, _, call in view.calls if call.op == "aten._to_copy.default"]
    rounds = any(call.op == "aten.round.default" for _, _, call in view.calls)
    return rounds and bool({torch.int8, torch.uint8} & {one for one in casts if isinstance(one, torch.dtype)})


def _schemes(view: _View) -> Iterable[str]:
    """Yield the schemes of `QUANTIZATION` that calls of a program belong to, as far as their operators tell."""
    called = {
        call.op.partition(".")[2].partition(".")[0] for _, _, call in view.calls if call.op.startswith(_QUANTIZED)
    }
    for name, operators in _OPERATORS_OF_SCHEMES.items():
        if called & operators:
            yield f"quantized_{name}"


_QUANTIZED = "quantized_decomposed."
_OPERATORS_OF_SCHEMES = {
    "tensor": {"quantize_per_tensor"},
    "channel": {"quantize_per_channel"},
    "token": {"quantize_per_token"},
    "dynamic": {"choose_qparams"},
    "kernel": {"add", "mixed_linear", "mixed_mm", "embedding_byte", "embedding_4bit", "embedding_2bit"},
}


def _has_similar_calls(view: _View) -> bool:
    """Whether a method calls an operator twice with equal arguments, however their numbers are written."""
    return any(count > 1 for count in Counter((id(one), call.op, call.args) for one, _, call in view.calls).values())


def _has_great_integers(view: _View) -> bool:
    return any(abs(number) > _GREAT for stored in view.program.stored for number in stored.contents.numbers)


def _stored_beside_channels_last(view: _View) -> bool:
    """Whether a call takes an input that lies channels last and something stored of four dims."""
    last = {name for run in view.program.runs for name, one in run.inputs.items() if one.layout == "channels_last"}
    stored = {one.name for one in view.program.stored if len(one.type.sizes) == 4}
    used = [set(names_in(call.arguments)) for _, _, call in view.calls]
    return any(names & last and names & stored for names in used)


def _writes_whole_number(view: _View) -> bool:
    """Whether an operator that takes a float is given a whole number."""
    for _, _, call in view.calls:
        parameters = _float_parameters(call.op)
        if any(type(one) is int for one in itertools.compress(call.args, parameters)):
            return True
    return False


def _leaves_one_out(view: _View) -> bool:
    """Whether an argument is given by name behind one that is left out, and could have been given by its place."""
    return any(
        name in _names_by_place(call.op)[len(call.args) + 1 :] for _, _, call in view.calls for name, _ in call.kwargs
    )


@cache
def _names_by_place(op: str) -> tuple[str, ...]:
    found = operator_named(op)
    return () if found is None else tuple(one.name for one in found._schema.arguments if not one.kwarg_only)


@cache
def _float_parameters(op: str) -> tuple[bool, ...]:
    """Tell of each parameter of an operator whether it is a float."""
    found = operator_named(op)
    return () if found is None else tuple(str(one.real_type) == "float" for one in found._schema.arguments)


def _has_odd_state(view: _View) -> bool:
    """Whether a buffer that is written has no dims or no elements, or does not lie row by row."""
    written = [view.stored[name] for _, name, _ in _buffers_written(view)]
    return any(not one.type.sizes or 0 in one.type.sizes or one.contents.layout != "dense" for one in written)


def _has_stepped_size(view: _View) -> bool:
    """Whether a call is given a size that does not grow with its symbols."""
    texts = [leaf.text for _, _, call in view.calls for leaf in leaves_of(call.arguments) if isinstance(leaf, Size)]
    return any("//" in text or "- s" in text for text in texts)


def _has_strange_number(view: _View) -> bool:
    """Whether a call is given minus zero, an infinity, or a number that a smaller dtype does not have."""
    found = [number for number in _numbers(view) if type(number) is float]
    return any(
        math.isinf(one)
        or (one == 0 and math.copysign(1, one) < 0)
        or 0 < abs(one) < 2.0**-_FINE
        or (bits_of(one) or 0) > _FINE
        for one in found
    ) or any(_ENDLESS > abs(one) >= _GREAT for one in _numbers(view))


_FINE = 24

_DATA_SIZED = {"aten.nonzero.default", "aten.masked_select.default"}

_OPTIONAL = {"alpha", "beta", "correction", "keepdim", "rounding_mode", "memory_format", "approximate", "stable"}

_TESTS: Mapping[str, Callable[[_View], bool]] = {
    "dynamic": _is_dynamic,
    "two_symbols": lambda view: len(_symbols_used(view)) > 1,
    "derived_size": _has_derived,
    "views": lambda view: any(call.op in _VIEWS for _, _, call in view.calls),
    "several_results": lambda view: any(len(call.results) > 1 for _, _, call in view.calls),
    "unused_result": lambda view: any(len(call.results) > 1 and None in call.results for _, _, call in view.calls),
    "mutable_buffer": lambda view: bool(_buffers_written(view)),
    "two_writes": _writes_twice,
    "swapped_buffers": _swaps,
    "delayed_buffers": _delays,
    "old_value_read_late": _reads_late,
    "written_input": lambda view: any(
        target not in view.stored for method in view.program.methods for target, _ in method.updates
    ),
    "stored": lambda view: bool(view.stored),
    "equal_stored": _has_equal_pair,
    "odd_strides": lambda view: any(
        stored.contents.layout in ("transposed", "strided") for stored in view.program.stored
    ),
    "expanded_stored": lambda view: any(stored.contents.layout == "expanded" for stored in view.program.stored),
    "zero_size": lambda view: any(0 in sizes for sizes in _all_sizes(view)),
    "size_one": lambda view: any(1 in sizes for sizes in _all_sizes(view)),
    "odd_outputs": _odd_outputs,
    "input_returned": _returns_input,
    "stored_returned": lambda view: _returned(view, view.stored),
    "same_output_twice": _returns_twice,
    "none_returned": lambda view: None in _outputs(view),
    "size_returned": lambda view: any(isinstance(output, Size) for output in _outputs(view)),
    "channels_last": _is_channels_last,
    "mixed_dtypes": lambda view: len(_dtypes(view)) > 1,
    "several_methods": lambda view: len(view.program.methods) > 1,
    "quantized": _is_quantized,
    "equal_sizes": lambda view: any(
        len(sizes) > 1 and len(set(sizes)) < len(sizes) and set(sizes) != {1} for sizes in _all_sizes(view)
    ),
    "output_used_later": _uses_output_later,
    "other_optional_arguments": lambda view: any(
        name in _OPTIONAL for _, _, call in view.calls for name, _ in call.kwargs
    ),
    "great_integers": _has_great_integers,
    "endless_slice": lambda view: _ENDLESS in _numbers(view),
    "inexact_numbers": lambda view: any(
        isinstance(number, float) and bits_of(number) is None for number in _numbers(view)
    ),
    "similar_calls": _has_similar_calls,
    "stored_beside_channels_last": _stored_beside_channels_last,
    "data_sized": lambda view: any(call.op in _DATA_SIZED for _, _, call in view.calls),
    "whole_number_for_float": _writes_whole_number,
    "argument_left_out": _leaves_one_out,
    "dims_from_end": lambda view: any(
        has_dim_from_the_end(call.op, call.args, call.kwargs) for _, _, call in view.calls
    ),
    "odd_state": _has_odd_state,
    "stepped_size": _has_stepped_size,
    "strange_numbers": _has_strange_number,
}


@dataclass(frozen=True)
class Measurement:
    """How often programs have each feature.

    Attributes:
        programs: How many were made.
        shares: Of the programs that have a feature, for each in `FLOORS`.
        operators: How many programs have each operator.
        calls: Of operators, in all programs.
        inexact: Share of the outputs that may differ in their last bits.
        undecided: Share of the outputs that such a bit may change at will.
    """

    programs: int
    shares: Mapping[str, float]
    operators: Mapping[str, int]
    calls: int
    inexact: float
    undecided: float

    @property
    def missing(self) -> tuple[str, ...]:
        """Features that are below their floors."""
        return tuple(feature for feature, floor in FLOORS.items() if self.shares[feature] < floor)

    def table(self) -> str:
        """Return the figures as lines of text."""
        lines = [f"{'feature':<26}{'floor':>8}{'share':>8}"]
        for feature, floor in FLOORS.items():
            mark = "" if self.shares[feature] >= floor else "  below its floor"
            lines.append(f"{feature:<26}{floor:>8.1%}{self.shares[feature]:>8.1%}{mark}")
        lines.append("")
        lines.append(f"{self.programs} programs, {self.calls} calls of {len(self.operators)} operators")
        exact = 1 - self.inexact - self.undecided
        lines.append(f"outputs: {exact:.1%} exact, {self.inexact:.1%} inexact, {self.undecided:.1%} undecided")
        return "\n".join(lines)


def measure(seeds: Iterable[int], policy: Policy | None = None) -> Measurement:
    """Make the programs of some seeds and count what they contain."""
    features: Counter[str] = Counter()
    programs = calls = outputs = inexact = undecided = 0
    for seed in seeds:
        program = generate(seed, policy)
        programs += 1
        features.update(features_of(program))
        calls += sum(len(method.steps) for method in program.methods)
        names = [name for method in program.methods for name in names_in(method.outputs)]
        outputs += len(names)
        inexact += sum(name in program.inexact for name in names)
        undecided += sum(name in program.undecided for name in names)
    most = max(programs, 1)
    shares = {feature: features[feature] / most for feature in FLOORS}
    operators = {name[3:]: count for name, count in sorted(features.items()) if name.startswith("op:")}
    return Measurement(programs, shares, operators, calls, inexact / max(outputs, 1), undecided / max(outputs, 1))
