"""Test-case reduction: a program becomes smaller as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import torch

from exirkit.fuzz.compilers import Compiler, ExirkitCompiler, simpler_choices
from exirkit.fuzz.examination import Failure
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import (
    Call,
    Contents,
    Dim,
    Input,
    Method,
    Program,
    Ref,
    Size,
    TensorType,
    check_program,
    mapped,
    names_in,
    program_text,
    run_eagerly,
)
from exirkit.fuzz.programs.sizes import size_value
from exirkit.ir import DiagnosticError


def reduce(program: Program, is_bad: Callable[[Program], bool], *, trials: int = 2000) -> Program:
    """Return a small program that is still bad.

    Runs, outputs, calls, stored tensors, symbols, sizes and contents are taken away one after another, until nothing
    can be taken away any more. The same program is never tried twice.

    Args:
        program: A bad program.
        is_bad: Checks a program, which need not be valid. It should be true for programs that fail in the same way
            only: see `same_failure`.
        trials: How many programs are tried in total.
    """
    cuts = [partial(_tidied_cuts, cut) for cut in CUTS]
    return smallest(program, cuts, is_bad, key=program_text, trials=trials)


def _tidied_cuts(cut: Cut, program: Program) -> Iterator[Program]:
    return (tidied(one) for one in cut(program) if one.runs)


T = TypeVar("T")


def smallest(
    value: T,
    cuts: Sequence[Callable[[T], Iterator[T]]],
    is_bad: Callable[[T], bool],
    *,
    key: Callable[[T], Hashable],
    trials: int = 2000,
) -> T:
    """Return a small value that is still bad: each cut is taken as long as it leads to one.

    Args:
        value: A bad value.
        cuts: Each yields values that are smaller in one way, from the largest step to the smallest.
        is_bad: Whether a value is bad; it is asked once for each key.
        key: What makes two values the same.
        trials: How often `is_bad` is asked in total.
    """
    seen = {key(value)}

    def accepts(one: T) -> bool:
        nonlocal trials
        if trials <= 0 or key(one) in seen:
            return False
        seen.add(key(one))
        trials -= 1
        return is_bad(one)

    has_changed = True
    while has_changed and trials > 0:
        has_changed = False
        for cut in cuts:
            while trials > 0 and (smaller := next(filter(accepts, cut(value)), None)) is not None:
                value, has_changed = smaller, True
    return value


def same_failure(failure: Failure, *, compiler: Compiler | None = None, seed: int = 0) -> Callable[[Program], bool]:
    """Return what tests whether a program fails in the same way: found by the same oracle, with the same symptom.

    Args:
        failure: The failure.
        compiler: As for `check`.
        seed: As for `check`.
    """
    oracles = ("eager-run", failure.oracle)

    def is_bad(program: Program) -> bool:
        try:
            check_program(program)
        except DiagnosticError:
            return False
        verdict = check(program, compiler=compiler, oracles=oracles, seed=seed)
        return any(_is_alike(one, failure) for one in verdict.failures)

    return is_bad


def with_fewer_choices(program: Program, failure: Failure, compiler: Compiler, seed: int = 0) -> Compiler:
    """Return a compiler with as few choices of the chain as show a failure still.

    Args:
        program: A program that fails.
        failure: How.
        compiler: What it fails with; anything but our own chain comes back as it is.
        seed: As for `check`.
    """
    others = simpler_choices(compiler) if isinstance(compiler, ExirkitCompiler) else iter(())
    for other in others:
        if same_failure(failure, compiler=other, seed=seed)(program):
            return with_fewer_choices(program, failure, other, seed)
    return compiler


def _is_alike(one: Failure, other: Failure) -> bool:
    return (one.oracle, one.symptom) == (other.oracle, other.symptom)


Cut: TypeAlias = Callable[[Program], Iterator[Program]]
"""Yields programs that are smaller in one way. Some may be no valid programs any more."""


def without_methods(program: Program) -> Iterator[Program]:
    """Leave out a method and its runs."""
    for method in program.methods if len(program.methods) > 1 else ():
        yield replace(
            program,
            methods=tuple(one for one in program.methods if one is not method),
            runs=tuple(one for one in program.runs if one.method != method.name),
        )


def without_runs(program: Program) -> Iterator[Program]:
    """Keep one run, or leave out one."""
    if len(program.runs) > 2:
        yield from (replace(program, runs=(one,)) for one in program.runs)
    for at in range(len(program.runs) if len(program.runs) > 1 else 0):
        yield replace(program, runs=(*program.runs[:at], *program.runs[at + 1 :]))


def without_outputs(program: Program) -> Iterator[Program]:
    """Keep one output of a method, or leave out one; leave out what is written to a buffer."""
    for method in program.methods:
        if len(method.outputs) > 2:
            yield from (_with(program, method, outputs=(one,)) for one in method.outputs)
        for at in range(len(method.outputs) if len(method.outputs) > 1 else 0):
            yield _with(program, method, outputs=(*method.outputs[:at], *method.outputs[at + 1 :]))
        for at in range(len(method.updates)):
            yield _with(program, method, updates=(*method.updates[:at], *method.updates[at + 1 :]))


def without_dead_calls(program: Program) -> Iterator[Program]:
    """Leave out all calls whose results are not used, or one of them."""
    for method in program.methods:
        alive: list[Call] = []
        used = set(names_in(method.outputs)) | {ref.name for _, ref in method.updates}
        for call in reversed(method.steps):
            if any(one in used for one in call.results if one is not None):
                alive.append(call)
                used.update(names_in(call.arguments))
        if len(alive) < len(method.steps):
            yield _with(program, method, steps=tuple(alive[::-1]))
            for at, call in enumerate(method.steps):
                if call not in alive:
                    yield _with(program, method, steps=(*method.steps[:at], *method.steps[at + 1 :]))


def returning_earlier(program: Program) -> Iterator[Program]:
    """Return the result of one call, and nothing else."""
    for method in program.methods:
        for at, call in enumerate(method.steps):
            for name in call.results:
                if name is not None:
                    yield _with(program, method, steps=method.steps[: at + 1], outputs=(Ref(name),), updates=())


def without_calls(program: Program) -> Iterator[Program]:
    """Replace the results of a call by an argument, or by fresh inputs of the same type."""
    for method in program.methods:
        for at in range(len(method.steps) - 1, -1, -1):
            call = method.steps[at]
            rest = replace(method, steps=(*method.steps[:at], *method.steps[at + 1 :]))
            names = [one for one in call.results if one is not None]
            operands = list(dict.fromkeys(names_in(call.args)))
            for operand in operands:
                renamed = dict.fromkeys(names, operand)
                yield _put(program, method, _renamed(rest, renamed))
            fresh = _as_inputs(program, rest, names)
            if fresh is not None:
                yield fresh


def without_symbols(program: Program) -> Iterator[Program]:
    """Write numbers for sizes that callers choose."""
    for symbol in program.symbols:
        for value in dict.fromkeys(run.sizes[symbol.name] for run in program.runs):
            if all(run.sizes[symbol.name] == value for run in program.runs):
                yield _fixed(program, symbol.name, value)


def without_stored(program: Program) -> Iterator[Program]:
    """Leave out what is stored and not used, or make an input of it."""
    used = {name for method in program.methods for name in _names_of(method)}
    for one in program.stored:
        rest = tuple(other for other in program.stored if other is not one)
        if one.name not in used:
            yield replace(program, stored=rest)
        elif not any(one.name == name for method in program.methods for name, _ in method.updates):
            changed = replace(program, stored=rest)
            for method in program.methods:
                if one.name in _names_of(method):
                    given = dict.fromkeys(range(len(program.runs)), one.contents)
                    changed = _with_input(changed, method.name, Input(one.name, one.type), given)
            yield changed


def without_inputs(program: Program) -> Iterator[Program]:
    """Leave out inputs that are not used."""
    for method in program.methods:
        used = _names_of(method)
        unused = {one.name for one in method.inputs if one.name not in used}
        if unused:
            kept = tuple(one for one in method.inputs if one.name not in unused)
            yield _without_given(_with(program, method, inputs=kept), method.name, unused)


def without_options(program: Program) -> Iterator[Program]:
    """Leave out keyword arguments, and positional ones at the end."""
    for method in program.methods:
        for at, call in enumerate(method.steps):
            shorter = [
                replace(call, kwargs=tuple(one for one in call.kwargs if one is not gone)) for gone in call.kwargs
            ]
            if len(call.args) > 1 and not call.bodies:
                shorter.append(replace(call, args=call.args[:-1]))
            for one in shorter:
                yield _with(program, method, steps=(*method.steps[:at], one, *method.steps[at + 1 :]))


def with_simpler_contents(program: Program) -> Iterator[Program]:
    """Make the contents of tensors simpler: dense, zeros, few."""
    for at, stored in enumerate(program.stored):
        for one in _simpler(stored.contents):
            changed = replace(stored, contents=one)
            yield replace(program, stored=(*program.stored[:at], changed, *program.stored[at + 1 :]))
    for at, run in enumerate(program.runs):
        for name, contents in run.inputs.items():
            for one in _simpler(contents):
                changed_run = replace(run, inputs={**run.inputs, name: one})
                yield replace(program, runs=(*program.runs[:at], changed_run, *program.runs[at + 1 :]))


def with_smaller_sizes(program: Program) -> Iterator[Program]:
    """Write a smaller number wherever a size stands, in types and in arguments."""
    listed = [size for one in program.stored for size in one.type.sizes]
    listed += [size for method in program.methods for one in method.inputs for size in one.type.sizes]
    for size in sorted({one for one in listed if isinstance(one, int) and one > 1}, reverse=True):
        for smaller in (1, 2, 3, size // 2):
            if smaller < size:
                yield _resized(program, size, smaller)


CUTS: tuple[Cut, ...] = (
    without_methods,
    without_runs,
    returning_earlier,
    without_outputs,
    without_dead_calls,
    without_calls,
    without_symbols,
    without_stored,
    without_inputs,
    without_options,
    with_smaller_sizes,
    with_simpler_contents,
)
"""In the order in which they are tried."""


def tidied(program: Program) -> Program:
    """Return a program without symbols, marks and contents that stand for nothing."""
    texts = [str(size) for one in program.stored for size in one.type.sizes]
    texts += [str(size) for method in program.methods for one in method.inputs for size in one.type.sizes]
    texts += [one.text for method in program.methods for one in method.reads() if isinstance(one, Size)]
    words = {word for text in texts for word in _words(text)}
    symbols = tuple(one for one in program.symbols if one.name in words)
    kept = {one.name for one in symbols}
    names = {one.name for one in program.stored}
    for method in program.methods:
        names |= {one.name for one in method.inputs}
        names |= {name for call in method.steps for name in call.results if name is not None}
    runs = tuple(replace(run, sizes={key: run.sizes[key] for key in run.sizes if key in kept}) for run in program.runs)
    return replace(
        program,
        symbols=symbols,
        runs=runs,
        inexact=program.inexact & names,
        undecided=program.undecided & names,
    )


def _with(program: Program, method: Method, **changes: Any) -> Program:
    return _put(program, method, replace(method, **changes))


def _put(program: Program, old: Method, new: Method) -> Program:
    return replace(program, methods=tuple(new if one.name == old.name else one for one in program.methods))


def _names_of(method: Method) -> set[str]:
    return method.names_read | {target for target, _ in method.updates}


def _renamed(method: Method, names: Mapping[str, str]) -> Method:
    def renamed(one: Any) -> Any:
        return Ref(names.get(one.name, one.name)) if isinstance(one, Ref) else one

    steps = tuple(call.with_arguments(renamed) for call in method.steps)
    updates = tuple((target, renamed(ref)) for target, ref in method.updates)
    return replace(method, steps=steps, outputs=mapped(method.outputs, renamed), updates=updates)


def _as_inputs(program: Program, rest: Method, names: list[str]) -> Program | None:
    """Make inputs of results, with the values that they have, where their sizes are the same in all runs."""
    used = _names_of(rest)
    wanted = [name for name in names if name in used]
    try:
        results = run_eagerly(program, keep_values=True)
    except Exception:  # a program that cannot be run is not made smaller in this way
        return None
    changed = replace(program, methods=tuple(rest if one.name == rest.name else one for one in program.methods))
    for name in wanted:
        values = {
            at: result.values[name]
            for at, (run, result) in enumerate(zip(program.runs, results, strict=True))
            if run.method == rest.name
        }
        if not all(isinstance(one, torch.Tensor) and one.numel() <= 4096 for one in values.values()):
            return None
        types = {(one.dtype, tuple(one.shape)) for one in values.values()}
        if len(types) != 1:
            return None
        dtype, sizes = types.pop()
        given = {at: _contents_of(one) for at, one in values.items()}
        changed = _with_input(changed, rest.name, Input(name, TensorType(dtype, sizes)), given)
    return changed


def _contents_of(tensor: torch.Tensor) -> Contents:
    return Contents("numbers", numbers=tuple(tensor.reshape(-1).tolist()))


def _with_input(program: Program, method: str, input: Input, given: Mapping[int, Contents]) -> Program:
    found = next(one for one in program.methods if one.name == method)
    runs = tuple(
        replace(run, inputs={**run.inputs, input.name: given[at]}) if run.method == method else run
        for at, run in enumerate(program.runs)
    )
    return replace(_with(program, found, inputs=(*found.inputs, input)), runs=runs)


def _without_given(program: Program, method: str, names: set[str]) -> Program:
    runs = tuple(
        replace(run, inputs={key: one for key, one in run.inputs.items() if key not in names})
        if run.method == method
        else run
        for run in program.runs
    )
    return replace(program, runs=runs)


def _fixed(program: Program, symbol: str, value: int) -> Program:
    known = {symbol: value}

    def sizes(listed: tuple[Dim, ...]) -> tuple[Dim, ...]:
        return tuple(_size(one, known) for one in listed)

    def typed(one: Any) -> Any:
        return replace(one, type=replace(one.type, sizes=sizes(one.type.sizes)))

    def leaf(one: Any) -> Any:
        made = _size(one.text, known) if isinstance(one, Size) else one
        return Size(made) if isinstance(one, Size) and isinstance(made, str) else made

    return _mapped(replace(program, symbols=tuple(one for one in program.symbols if one.name != symbol)), typed, leaf)


def _size(size: Dim, known: Mapping[str, int]) -> Dim:
    try:
        return int(size_value(size, known))
    except (KeyError, ValueError, TypeError):
        if isinstance(size, int):
            return size
        # Numbers may stand in expressions, whose other symbols stay.
        return " ".join(str(known.get(word, word)) for word in size.split())


def _resized(program: Program, old: int, new: int) -> Program:
    def typed(one: Any) -> Any:
        return replace(
            one, type=replace(one.type, sizes=tuple(new if size == old else size for size in one.type.sizes))
        )

    def leaf(one: Any) -> Any:
        return new if type(one) is int and one == old else one

    return _mapped(program, typed, leaf)


def _mapped(program: Program, typed: Callable[[Any], Any], leaf: Callable[[Any], Any]) -> Program:
    methods = tuple(
        replace(
            method,
            inputs=tuple(typed(one) for one in method.inputs),
            steps=tuple(call.with_arguments(leaf) for call in method.steps),
            outputs=mapped(method.outputs, leaf),
        )
        for method in program.methods
    )
    return replace(program, stored=tuple(typed(one) for one in program.stored), methods=methods)


def _simpler(contents: Contents) -> Iterator[Contents]:
    if contents.layout != "dense":
        yield replace(contents, layout="dense")
    if contents.kind != "zeros":
        yield Contents("zeros", layout=contents.layout)
    if contents.kind == "special":
        yield replace(contents, kind="dyadic")
    if contents.kind in ("dyadic", "numbers") and (contents.kind, contents.seed, contents.bits) != ("dyadic", 0, 0):
        yield Contents("dyadic", low=-2, high=2, bits=0, layout=contents.layout)


def _words(text: str) -> list[str]:
    return "".join(each if each.isalnum() or each == "_" else " " for each in text).split()
