"""`exirkit diff`: in what two program files differ."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.console import counted, nbytes_text, print_json, print_line, print_table
from exirkit.cli.errors import CANNOT_HANDLE
from exirkit.cli.options import Json, Libraries, MethodName, OperatorBooks
from exirkit.cli.root import app

if TYPE_CHECKING:
    from exirkit.cli.program_file import BytesByKind
    from exirkit.emit import ConstantsDifference, MethodDifference, ProgramDifference


@dataclass(frozen=True)
class DiffReport:
    """The document of `exirkit diff`.

    Attributes:
        files: The two files.
        nbytes: Their sizes in bytes.
        bytes_by_kind: Where the bytes of each are.
        same_meaning: Whether both have the same methods, which compute outputs and states in the same way.
        only_first: Methods of the first file that the second does not have.
        only_second: Methods of the second file that the first does not have.
        methods: In what each method of both differs.
        constants: Numbers and bytes of constants in both files, and in one of them only.
    """

    files: tuple[str, str]
    nbytes: tuple[int, int]
    bytes_by_kind: tuple[BytesByKind, BytesByKind]
    same_meaning: bool
    only_first: Sequence[str]
    only_second: Sequence[str]
    methods: Sequence[MethodDifference]
    constants: ConstantsDifference
    ok: bool = True


@app.command()
def diff(
    first: Annotated[Path, typer.Argument(metavar="A.pte", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="B.pte", show_default=False)],
    method: MethodName = None,
    rules: OperatorBooks = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Show in what two program files differ: meaning, operators, arenas, constants, bytes.

    Values are compared by how they are computed, not by their numbers, so that files of two versions or levels of
    optimization can be compared. Nothing is run: `exirkit compare` says how far results are apart. Ends with exit code
    0 if both compute the same, and with 1 otherwise.
    """
    from exirkit.cli.program_file import bytes_by_kind, chosen_plans, register_operators
    from exirkit.emit import compare_programs, open_program

    register_operators(rules)
    sizes = (first.stat().st_size, second.stat().st_size)
    with open_program(first) as one, open_program(second) as two:
        for opened in (one, two):
            chosen_plans(opened.program, method)
        found = compare_programs(one, two, method=method)
        kinds = (bytes_by_kind(one, sizes[0]), bytes_by_kind(two, sizes[1]))
    report = DiffReport(
        files=(os.fspath(first), os.fspath(second)),
        nbytes=sizes,
        bytes_by_kind=kinds,
        same_meaning=found.is_same_meaning,
        only_first=found.only_first,
        only_second=found.only_second,
        methods=found.methods,
        constants=found.constants,
    )
    if json:
        print_json(report)
    else:
        print_difference(report, found)
    if not found.is_same_meaning:
        raise typer.Exit(CANNOT_HANDLE)


def print_difference(report: DiffReport, found: ProgramDifference) -> None:
    """Print in what two files differ."""
    verdict = "compute the same" if found.is_same_meaning else "do not compute the same way"
    print_line(f"{report.files[0]} and {report.files[1]} {verdict}", style="bold")
    for which, names in (("first", report.only_first), ("second", report.only_second)):
        if names:
            print_line(f"only in the {which}: {', '.join(names)}")
    print_line()
    totals = [("file", *report.nbytes)]
    totals += [
        (kind.replace("_", " "), size, asdict(report.bytes_by_kind[1])[kind])
        for kind, size in asdict(report.bytes_by_kind[0]).items()
        if size or asdict(report.bytes_by_kind[1])[kind]
    ]
    print_table(["part of the file", ">bytes of A", ">bytes of B", ">change"], [_row(*each) for each in totals])
    constants = report.constants
    listed = (("both", constants.shared), ("A only", constants.only_first), ("B only", constants.only_second))
    print_line()
    print_table(["constants in", ">number", ">bytes"], [(where, *map(nbytes_text, each)) for where, each in listed])
    for one in report.methods:
        print_line()
        _print_method(one)


def _print_method(method: MethodDifference) -> None:
    if method.is_same:
        same = counted(method.instructions[0], "instruction")
        print_line(f"method {method.name}: nothing differs in {same}", style="bold")
        return
    print_line(f"method {method.name}: {_meaning(method)}", style="bold")
    for what, differences in (("input", method.inputs), ("output", method.outputs)):
        for position, one, two in differences:
            print_line(f"{what} {position}: {one} in A, {two} in B")
    rows = [_row("instructions", *method.instructions)]
    arenas = [list(sizes) for sizes in method.arenas]
    for number in range(max(map(len, arenas))):
        sizes = [each[number] if number < len(each) else 0 for each in arenas]
        rows.append(_row(f"bytes of arena {number + 1}", sizes[0], sizes[1]))
    rows += [_row(name, *calls) for name, calls in method.operators.items()]
    print_table(["", ">A", ">B", ">change"], rows)
    first = method.first_difference
    if first is not None:
        print_line("first instructions that the other file does not have:")
        for side, at, text in (("A", first.first_at, first.first), ("B", first.second_at, first.second)):
            print_line(f"  {side}: none" if at is None else f"  {side} {at}: {text}")


def _meaning(method: MethodDifference) -> str:
    if method.is_same_meaning:
        return "the same meaning" if method.is_same_order else "the same meaning, instructions in another order"
    what = [f"output {position}" for position in method.differing_outputs]
    what += [f"state {name}" for name in method.differing_states]
    return f"{', '.join(what[:8])}{', ...' if len(what) > 8 else ''} computed in another way"


def _row(name: str, one: int, two: int) -> tuple[str, str, str, str]:
    change = two - one
    return name, nbytes_text(one), nbytes_text(two), f"{change:+,}" if change else ""
