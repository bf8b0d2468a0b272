"""The reports as text for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from rich.console import Console
from rich.text import Text

from .console import nbytes_text, shape_text, stdout_console, table
from .failures import printable
from .reports import (
    BookOperatorReport,
    BytesByKind,
    CodeReport,
    DemoReport,
    InspectReport,
    LowerReport,
    MethodReport,
    OperatorReport,
    OutputReport,
    RunReport,
    ValueReport,
    VerifyReport,
)

_MOST_CALLED = 8


def print_lowered(report: LowerReport) -> None:
    """Print what `exirkit lower` did."""
    _print_lowered(report, report.file)


def _print_lowered(report: LowerReport, file: str) -> None:
    console = stdout_console()
    _say(console, f"{report.target} -> {file} ({nbytes_text(report.nbytes)} bytes)")
    rows = [
        (
            method.name,
            f"{method.nodes_exported} -> {method.nodes_edge} -> {method.nodes_lowered}",
            method.instructions,
            _arenas(method.arenas),
        )
        for method in report.methods
    ]
    console.print()
    console.print(table(["method", "nodes: exported -> edge -> lowered", ">instructions", ">arenas (bytes)"], rows))
    for method in report.methods:
        counts = Counter(method.delegates)
        if counts:
            shown = ", ".join(f"{name} ({count})" for name, count in counts.items())
            _say(console, f"delegates of {method.name}: {shown}")
    _print_bytes(console, report.bytes_by_kind)
    _print_book_operators(console, report.book_operators)
    console.print()
    seconds = ", ".join(f"{name} {value:.2f}" for name, value in report.seconds.items())
    _say(console, f"seconds: {seconds}; together {sum(report.seconds.values()):.2f}")


def _print_book_operators(console: Console, operators: Sequence[BookOperatorReport]) -> None:
    if operators:
        books = " ".join(f"--rules {book}" for book in dict.fromkeys(one.book for one in operators))
        console.print()
        console.print(table(["operator of a book", "book"], [(one.name, one.book) for one in operators]))
        _say(console, f"`exirkit run`, `verify`, `inspect` and `memory` know them with {books}")


def print_inspected(report: InspectReport) -> None:
    """Print what `exirkit inspect` found."""
    console = stdout_console()
    _say(console, f"{report.file} ({nbytes_text(report.nbytes)} bytes)")
    _print_bytes(console, report.bytes_by_kind)
    _print_book_operators(console, report.book_operators)
    if report.largest_constants:
        rows = [
            (each.index, f"{each.dtype} {shape_text(each.shape)}", nbytes_text(each.nbytes), each.method)
            for each in report.largest_constants
        ]
        console.print()
        console.print(table([">constant", "type", ">bytes", "method"], rows, title="largest constants"))
    for method in report.methods:
        console.print()
        _print_method(console, method)


def print_run(report: RunReport) -> None:
    """Print what `exirkit run` computed."""
    console = stdout_console()
    rows = [
        (
            each.index,
            each.dtype or each.kind,
            shape_text(each.shape) if each.shape is not None else "",
            _first(each),
        )
        for each in report.outputs
    ]
    seed = f" with seed {report.seed}" if report.seed is not None else ""
    _say(console, f"{report.method} of {report.file} on {', '.join(report.inputs) or 'no'} inputs{seed}")
    console.print()
    console.print(table([">output", "dtype", "shape", "first values"], rows))
    console.print()
    _say(console, _times(report.seconds))
    if report.saved is not None:
        _say(console, f"outputs are in {report.saved}")


def print_verified(report: VerifyReport, texts: Sequence[str]) -> None:
    """Print the findings of `exirkit verify`, each as a whole."""
    console = stdout_console()
    for text in texts:
        for line in text.splitlines():
            _say(console, line)
        console.print()
    count = len(report.diagnostics)
    methods = f"{len(report.methods)} method{'s' if len(report.methods) != 1 else ''}"
    verdict = f"{count} finding{'s' if count != 1 else ''}" if count else f"nothing wrong with {methods}"
    _say(console, f"{report.file}: {verdict}")


def print_demo(report: DemoReport) -> None:
    """Print what `exirkit demo` did."""
    _print_lowered(report.lowering, report.lowering.file if report.kept else "a program file, removed again")
    console = stdout_console()
    console.print()
    console.print(_operators(report.lowering.methods[0].operators))
    rows = [
        ("model", f"{report.model}, {report.parameters:,} parameters"),
        ("arena", f"{_arenas(report.lowering.methods[0].arenas)} bytes"),
        ("one run on the reference runtime", f"{report.run_seconds:.3f} s"),
        ("largest output of eager PyTorch", f"{report.max_abs_output:.3g}"),
        ("largest difference from it", f"{report.max_abs_error:.1e} (at most {report.tolerance:.0e})"),
    ]
    console.print()
    console.print(table(["result", ""], rows))


def print_codes(codes: Sequence[CodeReport]) -> None:
    """Print the text of one code, or the titles of several."""
    console = stdout_console()
    if len(codes) != 1:
        console.print(table(["code", "title"], [(each.code, each.title) for each in codes]))
        return
    (code,) = codes
    _say(console, f"{code.code}: {code.title}")
    console.print()
    for line in code.text.splitlines():
        _say(console, line)


def _print_bytes(console: Console, kinds: BytesByKind) -> None:
    rows = [(kind.replace("_", " "), nbytes_text(size)) for kind, size in kinds.model_dump().items() if size]
    console.print()
    console.print(table(["part of the file", ">bytes"], rows))


def _print_method(console: Console, method: MethodReport) -> None:
    counts = f"{method.instruction_count} instructions, {method.value_count} values"
    arenas = f", arenas of {_arenas(method.arenas)} bytes" if any(method.arenas) else ", no planned memory"
    _say(console, f"method {method.name}: {counts}{arenas}", style="bold")
    rows = [
        (role, index, _type(value), _place(value))
        for role, values in (("input", method.inputs), ("output", method.outputs))
        for index, value in enumerate(values)
    ]
    console.print(table(["", ">#", "type", "memory"], rows))
    if method.operators:
        console.print()
        console.print(_operators(method.operators, len(method.operators)))
    if method.delegates:
        _say(console, f"delegates: {', '.join(method.delegates)}")
    if method.listing is not None:
        console.print()
        console.print(table([">step", "instruction"], list(enumerate(method.listing))))
    if method.values is not None:
        console.print()
        values = [(f"%{value.index}", _type(value), _place(value)) for value in method.values]
        console.print(table([">value", "type", "memory or content"], values))


def _operators(operators: Sequence[OperatorReport], most: int = _MOST_CALLED) -> object:
    rows = [(each.name, each.calls) for each in operators[:most]]
    rest = operators[most:]
    if rest:
        rows.append((f"{len(rest)} others", sum(each.calls for each in rest)))
    return table(["operator", ">calls"], rows)


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
        return value.role or ""
    return f"{value.role}, arena {value.arena} at {value.offset}"


def _arenas(arenas: Sequence[int]) -> str:
    return " + ".join(nbytes_text(size) for size in arenas) or "0"


def _first(output: OutputReport) -> str:
    texts = [f"{value:.6g}" if isinstance(value, float) else str(value) for value in output.first]
    more = output.shape is not None and prod(output.shape) > len(texts)
    return " ".join(texts) + (" ..." if more else "")


def _times(seconds: Sequence[float]) -> str:
    ordered = sorted(seconds)
    if len(ordered) == 1:
        return f"{ordered[0]:.4f} s"
    return f"{len(ordered)} runs: fastest {ordered[0]:.4f} s, median {ordered[len(ordered) // 2]:.4f} s"


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(printable(text), style=style), soft_wrap=True)
