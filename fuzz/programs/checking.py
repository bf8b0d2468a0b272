"""What can be wrong with a program before anything is computed: names, contents and runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from exirkit.ir import Diagnostic, Location, ModelError

from .language import HIGHER_ORDER, is_name, is_operator_name
from .model import Argument, Body, Call, Contents, Method, Program, Ref, Run, Size, Stored, Symbol, TensorType
from .sizes import symbols_of

LARGEST = 2**27
"""Elements of the largest tensor that a program may store or be given."""


@dataclass(frozen=True)
class Finding:
    """Something wrong with a program.

    Attributes:
        code: Of the diagnostic.
        subject: The part of the program.
        message: As in a diagnostic.
        hint: As in a diagnostic.
    """

    code: str
    subject: object
    message: str
    hint: str | None = None


def check_program(program: Program) -> None:
    """Check the structure of a program that was not read from text.

    Raises:
        ModelError: EK802 to EK807 and EK810, all that was found.
    """
    found = findings_of(program)
    if found:
        places = [Location(node=_name_of(one.subject)) for one in found]
        raise ModelError(
            Diagnostic(code=one.code, message=one.message, hint=one.hint, location=place)
            for one, place in zip(found, places, strict=True)
        )


def findings_of(program: Program) -> list[Finding]:
    """Return what is wrong with the structure of a program."""
    return list(_Check(program).run())


def values_of(steps: Iterable[Call]) -> Iterator[str]:
    """Yield the names of all results of steps and of the bodies that they call, with the inputs of those."""
    for step in steps:
        for body in step.bodies:
            yield from body.inputs
            yield from values_of(body.steps)
        yield from (one for one in step.results if one is not None)


def _name_of(subject: object) -> str | None:
    if isinstance(subject, Call):
        return next((one for one in subject.results if one), subject.op)
    name = getattr(subject, "method" if isinstance(subject, Run) else "name", None)
    return name if isinstance(name, str) else None


class _Check:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.symbols = {one.name: one for one in program.symbols}
        self.stored = {one.name for one in program.stored}

    def run(self) -> Iterator[Finding]:
        yield from self._names()
        for symbol in self.program.symbols:
            if not 0 <= symbol.low <= symbol.high < 2**31 or symbol.low < symbol.high < 2:
                # Torch tells sizes of zero and one from all others when it traces.
                hint = "a range ends at 2 at least and below 2**31, or it is one number"
                yield Finding("EK804", symbol, f"{symbol.low}..{symbol.high} is not a range of sizes", hint)
        for stored in self.program.stored:
            yield from self._stored(stored)
        if not self.program.methods:
            yield Finding("EK801", self.program, "a program has at least one method")
        for method in self.program.methods:
            yield from self._method(method)
        for run in self.program.runs:
            yield from self._run(run)
        yield from self._marks()

    def _names(self) -> Iterator[Finding]:
        seen: set[str] = set()
        for subject, name in self._defined():
            if name in seen:
                yield Finding("EK802", subject, f"there is another {name}", "each name names one thing in the program")
            elif not is_name(name):
                yield Finding("EK802", subject, f"`{name}` cannot be a name")
            seen.add(name)

    def _defined(self) -> Iterator[tuple[object, str]]:
        yield from ((one, one.name) for one in self.program.symbols)
        yield from ((one, one.name) for one in self.program.stored)
        for method in self.program.methods:
            yield method, method.name
            yield from ((one, one.name) for one in method.inputs)
            yield from _defined_by(method.steps)

    def _stored(self, stored: Stored) -> Iterator[Finding]:
        if not all(isinstance(one, int) for one in stored.type.sizes):
            yield Finding("EK804", stored, f"the sizes of {stored.name} are not numbers")
            return
        if stored.kind == "parameter" and not (stored.type.dtype.is_floating_point or stored.type.dtype.is_complex):
            yield Finding("EK804", stored, f"{stored.name} cannot be a parameter: it has no floats")
        sizes = [one for one in stored.type.sizes if isinstance(one, int)]
        yield from self._contents(stored, stored.name, stored.contents, sizes)

    def _contents(self, subject: object, name: str, contents: Contents, sizes: list[int]) -> Iterator[Finding]:
        if any(one < 0 for one in sizes):
            yield Finding("EK804", subject, f"{name} has a negative size")
        elif math.prod(sizes) > LARGEST:
            yield Finding("EK807", subject, f"{name} has more than {LARGEST} elements")
        elif contents.kind == "numbers" and len(contents.numbers) != math.prod(sizes):
            yield Finding("EK805", subject, f"{name} has {math.prod(sizes)} elements, not {len(contents.numbers)}")
        if not -(2.0**63) <= contents.low <= contents.high <= 2.0**63 or not 0 <= contents.bits <= 30:
            yield Finding("EK805", subject, f"{name} has low above high, bits outside 0..30, or is not finite")
        if not 0 <= contents.seed < 2**63:
            yield Finding("EK805", subject, f"{name} has a seed of more than 63 bits, or a negative one")

    def _sizes(self, subject: object, type_: TensorType) -> Iterator[Finding]:
        for dim in type_.sizes:
            if isinstance(dim, int) and dim < 0:
                yield Finding("EK804", subject, "a size is negative")
            unknown = [one for one in symbols_of(dim) if one not in self.symbols]
            if unknown:
                yield Finding("EK803", subject, f"there is no symbol {unknown[0]}")

    def _method(self, method: Method) -> Iterator[Finding]:
        for one in method.inputs:
            yield from self._sizes(one, one.type)
        own = {one.name for one in method.inputs}
        known = self.stored | own
        yield from self._steps(method.steps, known)
        for output in method.outputs:
            yield from self._used(method, output, known)
        writable = own | {one.name for one in self.program.stored if one.kind == "buffer"}
        targets = [target for target, _ in method.updates]
        for target, source in method.updates:
            if target not in writable or targets.count(target) > 1:
                yield Finding("EK810", method, f"{target} is not a buffer or input of {method.name}, or written twice")
            yield from self._used(method, source, known)

    def _steps(self, steps: tuple[Call, ...], known: set[str]) -> Iterator[Finding]:
        """Check steps in order; `known` grows."""
        for step in steps:
            if not is_operator_name(step.op):
                yield Finding("EK801", step, f"`{step.op}` is not the name of an operator")
            for argument in (*step.args, *(value for _, value in step.kwargs)):
                yield from self._used(step, argument, known)
            wanted = HIGHER_ORDER.get(step.op)
            if len(step.bodies) != (wanted.bodies if wanted else 0) or (wanted and len(step.args) != wanted.args):
                yield Finding("EK801", step, f"{step.op} has other arguments and bodies")
            for body in step.bodies:
                yield from self._body(body)
            known.update(one for one in step.results if one is not None)

    def _body(self, body: Body) -> Iterator[Finding]:
        known = set(body.inputs)
        yield from self._steps(body.steps, known)
        for output in body.outputs:
            yield from self._used(body, output, known)

    def _used(self, subject: object, argument: Argument, known: set[str]) -> Iterator[Finding]:
        if isinstance(argument, tuple):
            for one in argument:
                yield from self._used(subject, one, known)
        elif isinstance(argument, Ref) and argument.name not in known:
            yield Finding("EK803", subject, f"nothing named {argument.name} is known here")
        elif isinstance(argument, Size):
            unknown = [one for one in symbols_of(argument.text) if one not in self.symbols]
            if unknown:
                yield Finding("EK803", subject, f"there is no symbol {unknown[0]}")

    def _run(self, run: Run) -> Iterator[Finding]:
        method = next((one for one in self.program.methods if one.name == run.method), None)
        if method is None:
            yield Finding("EK806", run, f"there is no method {run.method}")
            return
        if set(run.inputs) != {one.name for one in method.inputs}:
            yield Finding("EK806", run, f"not exactly the inputs of {run.method} have contents")
            return
        needed = symbols_in_inputs(method)
        if not needed <= set(run.sizes) <= set(self.symbols):
            yield Finding("EK806", run, f"not all of {', '.join(sorted(needed))} have a size, or others too")
            return
        yield from self._outside(run)
        first = next(one for one in self.program.runs if one.method == run.method)
        for name, contents in run.inputs.items():
            # The strides of an input are part of a compiled program.
            if name in first.inputs and contents.layout != first.inputs[name].layout:
                yield Finding("EK806", run, f"{name} has another layout than in the first run of {run.method}")

    def _outside(self, run: Run) -> Iterator[Finding]:
        for name, size in run.sizes.items():
            symbol: Symbol = self.symbols[name]
            if not symbol.low <= size <= symbol.high:
                yield Finding("EK806", run, f"{name} is {size}, not in {symbol.low}..{symbol.high}")

    def _marks(self) -> Iterator[Finding]:
        known = {name for method in self.program.methods for name in values_of(method.steps)}
        for name in sorted((self.program.inexact | self.program.undecided) - known):
            yield Finding("EK803", self.program, f"no step has the result {name}, which is marked inexact")


def symbols_in_inputs(method: Method) -> set[str]:
    """Return the symbols in the sizes of a method's inputs."""
    return {name for one in method.inputs for dim in one.type.sizes for name in symbols_of(dim)}


def _defined_by(steps: tuple[Call, ...]) -> Iterator[tuple[object, str]]:
    for step in steps:
        for body in step.bodies:
            yield body, body.name
            yield from ((body, one) for one in body.inputs)
            yield from _defined_by(body.steps)
        yield from ((step, one) for one in step.results if one is not None)
