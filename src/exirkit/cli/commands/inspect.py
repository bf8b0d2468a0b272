"""`exirkit inspect`: what is in a program file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.console import counted, nbytes_text, print_json, print_line, print_table, shape_text
from exirkit.cli.options import InspectedFile, Json, Libraries, MethodName, OperatorBooks
from exirkit.cli.root import app

if TYPE_CHECKING:
    from exirkit.cli.program_file import InspectReport, MethodReport, ValueReport


@app.command()
def inspect(
    file: InspectedFile,
    method: MethodName = None,
    instructions: Annotated[bool, typer.Option("--instructions", help="List the instructions.")] = False,
    values: Annotated[bool, typer.Option("--values", help="List the value table.")] = False,
    rules: OperatorBooks = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Show what is in a program file, a bundled program, or a tensor data file."""
    from exirkit.cli import data_files, program_file
    from exirkit.emit import FileKind

    if data_files.kind_of_file(file) is FileKind.TENSOR_DATA:
        found = data_files.inspect_data_file(file)
        if json:
            print_json(found)
        else:
            data_files.print_data_file(found)
        return
    report = program_file.inspect_file(file, method=method, instructions=instructions, values=values, rules=rules)
    if json:
        print_json(report)
    else:
        print_inspected(report)


def print_inspected(report: InspectReport) -> None:
    """Print what is in a file."""
    from exirkit.cli.program_file import print_book_operators, print_bytes

    print_line(f"{report.file} ({nbytes_text(report.nbytes)} bytes)")
    print_bytes(report.bytes_by_kind)
    for name, count in (report.test_cases or {}).items():
        print_line(f"{counted(count, 'test case')} of {name}")
    print_book_operators(report.book_operators)
    if report.external_constants:
        count, nbytes = len(report.external_constants), sum(each.nbytes for each in report.external_constants)
        print_line()
        print_line(f"{counted(count, 'constant')} of {nbytes_text(nbytes)} bytes in data files: --values names them")
    if report.largest_constants:
        rows = [
            (each.index, f"{each.dtype} {shape_text(each.shape)}", nbytes_text(each.nbytes), each.method)
            for each in report.largest_constants
        ]
        print_line()
        print_table([">constant", "type", ">bytes", "method"], rows, title="largest constants")
    for method in report.methods:
        print_line()
        _print_method(method)


def _print_method(method: MethodReport) -> None:
    from exirkit.cli.program_file import arenas_text, print_operators

    counts = f"{method.instruction_count} instructions, {method.value_count} values"
    arenas = f", arenas of {arenas_text(method.arenas)} bytes" if any(method.arenas) else ", no planned memory"
    print_line(f"method {method.name}: {counts}{arenas}", style="bold")
    rows = [
        (role, index, _type(value), _place(value))
        for role, values in (("input", method.inputs), ("output", method.outputs))
        for index, value in enumerate(values)
    ]
    print_table(["", ">#", "type", "memory"], rows)
    if method.operators:
        print_operators(method.operators, len(method.operators))
    if method.delegates:
        print_line(f"delegates: {', '.join(method.delegates)}")
    if method.listing is not None:
        print_line()
        print_table([">step", "instruction"], list(enumerate(method.listing)))
    if method.values is not None:
        print_line()
        listed = [(f"%{value.index}", _type(value), _place(value)) for value in method.values]
        print_table([">value", "type", "memory or content"], listed)


def _type(value: ValueReport) -> str:
    if value.dtype is None:
        return value.kind
    bound = {"bound": " at most", "unbound": " without bound"}.get(value.dynamism or "", "")
    order = value.dim_order or []
    layout = f", dim order {order}" if order != sorted(order) else ""
    return f"{value.dtype} {shape_text(value.shape)}{bound}{layout}"


def _place(value: ValueReport) -> str:
    if value.dtype is None:
        return "" if value.content is None else str(value.content)
    if value.arena is None:
        return (value.role or "") if value.name is None else f"{value.role}, {value.name}"
    return f"{value.role}, arena {value.arena} at {value.offset}"
