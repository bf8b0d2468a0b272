"""`Inspector`: one object that reads a trace, what was kept of the lowering and the values, and answers questions."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, TextIO

from torch.export import ExportedProgram

from exirkit.devtools.etrecord import ETRecord, parse_etrecord
from exirkit.emit import ExecutionTrace, open_trace, read_trace
from exirkit.ir import Diagnostic, UsageError

from .events import Event, EventBlock, TimeScale, event_blocks
from .numeric_gap import Comparator, NumericalComparatorBase, comparator_of, numeric_gap

_COLUMNS = (
    "event_block_name", "event_name", "raw", "p10", "p50", "p90", "avg", "min", "max", "op_types",
    "delegate_debug_identifier", "stack_traces", "module_hierarchy", "is_delegated_op", "delegate_backend_name",
    "debug_data", "start_time",
)  # fmt: skip
_TIMES = ("raw", "p10", "p50", "p90", "avg", "min", "max")
_TOO_LONG = frozenset({"raw", "stack_traces", "module_hierarchy", "debug_data", "delegate_debug_identifier"})
_CALL = "OPERATOR_CALL"
# What torch calls a module in the names of attributes.
_ROOT = "L__self__"


class Inspector:
    """Reads a trace of a runtime and says what it means.

    Runs that did the same are one block, whatever their inputs were. With a record, events have operators, source lines
    and modules.

    Args:
        etdump_path: File of the trace (`.etdp`).
        etdump_data: The trace itself, as bytes; one of both is given.
        etrecord: The record of the lowering, or its file.
        source_time_scale: Unit of times in the trace.
        target_time_scale: Unit of times in answers.
        debug_buffer_path: File with the values of the trace.
        delegate_metadata_parser: Reads what delegates say of their events.
        delegate_time_scale_converter: Is given the name of an event of a delegate and a time, and returns the time in
            the unit of the trace.
        enable_module_hierarchy: Taken for compatibility: modules are always there if a record is.
        reference_graph_name: Taken for compatibility; programs are compared with their Edge programs.
        debug_buffer: The values themselves, as bytes, instead of a file.

    Attributes:
        event_blocks: The blocks, in the order of the trace.

    Raises:
        UsageError: EK729, no trace or two; EK730, units that cannot be converted.
        ProgramFormatError: The trace is damaged.
        ModelError: EK745, the file of the record is none.
        OSError: A file cannot be read.

    Source: `executorch.devtools.Inspector` of the ExecuTorch documentation.
    """

    def __init__(
        self,
        etdump_path: str | PathLike[str] | None = None,
        etdump_data: bytes | None = None,
        etrecord: ETRecord | str | PathLike[str] | None = None,
        source_time_scale: TimeScale = TimeScale.NS,
        target_time_scale: TimeScale = TimeScale.MS,
        debug_buffer_path: str | PathLike[str] | None = None,
        delegate_metadata_parser: Callable[[list[bytes]], Any] | None = None,
        delegate_time_scale_converter: Callable[[Any, float], float] | None = None,
        enable_module_hierarchy: bool = False,
        reference_graph_name: str = "edge_dialect_graph_module",
        *,
        debug_buffer: bytes | bytearray | memoryview | None = None,
    ) -> None:
        del enable_module_hierarchy, reference_graph_name
        if (etdump_path is None) == (etdump_data is None):
            message = "an Inspector takes one trace: a file or its bytes"
            raise UsageError(Diagnostic.of("EK729", message, expected="etdump_path or etdump_data"))
        self.record = parse_etrecord(etrecord) if isinstance(etrecord, str | PathLike) else etrecord
        self.trace: ExecutionTrace = open_trace(etdump_path) if etdump_path is not None else read_trace(etdump_data)
        if debug_buffer is None and debug_buffer_path is not None:
            debug_buffer = Path(fspath(debug_buffer_path)).read_bytes()
        self.event_blocks: list[EventBlock] = event_blocks(
            self.trace, debug_buffer, self.record, source_time_scale, target_time_scale
        )
        for event in self._events():
            if event.is_delegated_op and delegate_metadata_parser is not None:
                event.delegate_debug_metadatas = list(delegate_metadata_parser(event.delegate_debug_metadatas))
            if event.is_delegated_op and delegate_time_scale_converter is not None:
                times = event.perf_data.raw
                times[:] = [delegate_time_scale_converter(event.delegate_debug_identifier, one) for one in times]

    def _events(self) -> Iterator[Event]:
        return (event for block in self.event_blocks for event in block.events)

    def to_dataframe(self, include_units: bool = True, include_delegate_debug_data: bool = False) -> Any:
        """Return all events as a pandas table; needs pandas.

        Args:
            include_units: Add the unit of times to the names of columns.
            include_delegate_debug_data: Add what delegates say of their events.
        """
        import pandas

        names = self._names(include_units, include_delegate_debug_data)
        rows = list(self._rows(include_delegate_debug_data))
        return pandas.DataFrame({title: [row[name] for row in rows] for name, title in names.items()})

    def print_data_tabular(
        self,
        file: TextIO | None = None,
        include_units: bool = True,
        include_delegate_debug_data: bool = False,
    ) -> None:
        """Print a table of the events, without what is long, and without the rows that repeat kernels as calls.

        Args:
            file: Where to print; standard output by default.
            include_units: Add the unit of times to the names of columns.
            include_delegate_debug_data: Add what delegates say of their events.
        """
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False)
        titles, rows = self._table(include_units, include_delegate_debug_data)
        for title in titles:
            table.add_column(title, no_wrap=True)
        for row in rows:
            table.add_row(*(Text(f"{cell:.6g}" if isinstance(cell, float) else str(cell)) for cell in row))
        Console(file=file or sys.stdout, width=1000, highlight=False, markup=False).print(table)

    def save_data_to_tsv(
        self, file: TextIO, include_units: bool = True, include_delegate_debug_data: bool = False
    ) -> None:
        """Write the same table with tabs between its columns."""
        titles, rows = self._table(include_units, include_delegate_debug_data)
        writer = csv.writer(file, dialect="excel-tab")
        writer.writerows([titles, *rows])

    def find_total_for_module(self, module_name: str) -> float:
        """Return the average time of a run that is spent in a module and the modules in it.

        Each instruction counts once. A record has to be given.

        Args:
            module_name: Path of the module, such as `features.3`, or its name in traces of torch,
                `L__self___features_3`.
        """
        return sum(
            event.perf_data.avg
            for event in self._events()
            if event.is_whole_instruction
            and any(_is_in(path, module_name) for each in event.module_hierarchy.values() for path in each)
        )

    def get_exported_program(self, graph: str | None = None) -> ExportedProgram | None:
        """Return an Edge program of the record, None if it has none.

        Args:
            graph: Name of the method; `forward`, or the only one, by default.
        """
        programs = self.record.programs if self.record is not None else {}
        if graph is None and len(programs) == 1:
            return next(iter(programs.values()))
        return programs.get(graph or "forward")

    def calculate_numeric_gap(
        self,
        distance: str | NumericalComparatorBase | Comparator,
        disable_debug_handle_valdiation: bool = False,
        reference_graph: str | None = None,
        *,
        method: str | None = None,
    ) -> Any:
        """Return, as a pandas table, how far the value of each instruction is from that of the Edge program.

        The Edge program runs in eager PyTorch on the representative inputs of the record. An instruction is compared
        with the last of its nodes that computes as many elements.

        Args:
            distance: `MSE`, `L1` (a sum), `SNR` (dB), a `NumericalComparatorBase`, or a function of the value of the
                reference and that of the runtime.
            disable_debug_handle_valdiation: Taken for compatibility, with its spelling.
            reference_graph: Taken for compatibility.
            method: The method, if the trace has runs of several.

        Raises:
            UsageError: EK747, the record, its programs or inputs, or values of the trace are missing; EK748, there is
                no such distance.
        """
        del disable_debug_handle_valdiation, reference_graph
        import pandas

        return pandas.DataFrame(self.numeric_gap_rows(distance, method=method))

    def numeric_gap_rows(
        self, distance: str | NumericalComparatorBase | Comparator, *, method: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the rows of `calculate_numeric_gap`, which needs pandas, as dicts.

        Raises:
            UsageError: As there.
        """
        comparator = comparator_of(distance)
        if self.record is None:
            raise UsageError(Diagnostic.of("EK747", "there is no record", hint="Inspector(..., etrecord=record)"))
        return numeric_gap(self.event_blocks, self.record, comparator, method)

    def _names(self, units: bool, delegate_data: bool) -> dict[str, str]:
        """Return the titles of columns."""
        unit = self.event_blocks[0].target_time_scale.value if self.event_blocks else TimeScale.MS.value
        names = {name: f"{name} ({unit})" if units and name in _TIMES else name for name in _COLUMNS}
        if delegate_data:
            names["delegate_debug_metadatas"] = "delegate_debug_metadatas"
        return names

    def _rows(self, delegate_data: bool) -> Iterator[dict[str, Any]]:
        for block in self.event_blocks:
            for event in block.events:
                times = {name: getattr(event.perf_data, name) for name in _TIMES}
                row = {"event_block_name": block.name, "event_name": event.name, **times}
                row |= {name: getattr(event, name) for name in _COLUMNS if name not in row}
                if delegate_data:
                    row["delegate_debug_metadatas"] = event.delegate_debug_metadatas
                yield row

    def _table(self, units: bool, delegate_data: bool) -> tuple[list[str], list[list[Any]]]:
        names = {name: title for name, title in self._names(units, delegate_data).items() if name not in _TOO_LONG}
        rows = [row for row in self._rows(delegate_data) if row["event_name"] != _CALL]
        return list(names.values()), [[row[name] for name in names] for row in rows]


def _is_in(path: str, wanted: str) -> bool:
    """Return whether a module is the wanted one or in it."""
    parts = path.split(".") if path else []
    above: Sequence[str] = ["", *(".".join(parts[: count + 1]) for count in range(len(parts)))]
    return any(wanted in (one, f"{_ROOT}_{one.replace('.', '_')}" if one else _ROOT) for one in above)
