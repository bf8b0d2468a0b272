"""Reports about tensor data files."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from os import PathLike
from pathlib import Path

from exirkit.emit import FileKind, file_kind, open_data_file

from .console import nbytes_text, print_line, print_table, shape_text


@dataclass(frozen=True)
class DataEntryReport:
    """One entry of a data file.

    Attributes:
        key: What it is found by: the name of a tensor in the model, or what a backend calls its data.
        dtype: Element type of a tensor as torch spells it, without the prefix `torch.`; None for a blob.
        shape: Sizes of a tensor.
        dim_order: Dimensions of a tensor from the outermost to the innermost in memory.
        nbytes: Size of its segment.
        segment: Index of its segment; entries with one index have equal data, which is stored once.
    """

    key: str
    dtype: str | None
    shape: list[int] | None
    dim_order: list[int] | None
    nbytes: int
    segment: int


@dataclass(frozen=True)
class DataFileReport:
    """The document of `exirkit inspect` for a data file.

    Attributes:
        nbytes: Size of the file.
        data_nbytes: Size of the data in it, each segment once.
    """

    file: str
    nbytes: int
    data_nbytes: int
    entries: list[DataEntryReport]
    ok: bool = True


def kind_of_file(path: str | PathLike[str]) -> FileKind | None:
    """Return the kind of a file by its first bytes (raises OSError if it cannot be read)."""
    with open(path, "rb") as file:
        return file_kind(file.read(16))


def inspect_data_file(path: str | PathLike[str]) -> DataFileReport:
    """Read a data file and report what is in it.

    Raises:
        ProgramFormatError: It is damaged.
        OSError: It cannot be read.
    """
    opened = open_data_file(path)
    entries = []
    for entry in opened.table.named_data:
        layout = entry.tensor_layout
        entries.append(
            DataEntryReport(
                key=entry.key,
                dtype=None if layout is None else str(layout.scalar_type.dtype).removeprefix("torch."),
                shape=None if layout is None else list(layout.sizes),
                dim_order=None if layout is None else list(layout.dim_order),
                nbytes=len(opened.segments[entry.segment_index]),
                segment=entry.segment_index,
            )
        )
    return DataFileReport(str(path), Path(path).stat().st_size, sum(map(len, opened.segments)), entries)


def print_data_file(report: DataFileReport) -> None:
    """Print what is in a data file."""
    print_line(f"{report.file} ({nbytes_text(report.nbytes)} bytes, {nbytes_text(report.data_nbytes)} of data)")
    print_line()
    first: dict[int, str] = {}
    rows = []
    for each in report.entries:
        same = first.setdefault(each.segment, each.key)
        kind = "blob" if each.shape is None else f"{each.dtype} {shape_text(each.shape)}{_order(each)}"
        elements = "" if each.shape is None else f"{prod(each.shape):,}"
        rows.append((each.key, kind, elements, nbytes_text(each.nbytes), "" if same == each.key else f"as {same}"))
    print_table(["key", "type", ">elements", ">bytes", ""], rows)


def _order(entry: DataEntryReport) -> str:
    order = entry.dim_order or []
    return f", dim order {order}" if order != sorted(order) else ""
