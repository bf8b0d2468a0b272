"""Measure what each kernel of a runtime costs, and write that as a target description.

Usage: python -m tools.kernels.costs [--output FILE.yaml] [--rounds N] [--only OPERATOR ...]
       python -m tools.kernels.costs --programs FOLDER [--only OPERATOR ...]
       python -m tools.kernels.costs --traces FOLDER --name NAME [--doc TEXT] [--output FILE.yaml]

Every kernel runs in small programs of several sizes; the runtime itself states how long each call took. The costs in
the file are the ones that explain those times best: so much for a call, for an element, a multiplication, a run of
memory. They are not exact and need not be: rules compare them with each other.

The first form measures the runtime of the installed wheel. For another runtime or device, the second form writes the
programs and a list of them; run each there, and bring back what took how long: `NAME.etdump` beside `NAME.pte`, a
trace of one or more runs, or `times.yaml`, nanoseconds of the measured kernel by NAME. The third form reads these.
"""

from __future__ import annotations

import argparse
import logging
import platform
import sys
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from pydantic import TypeAdapter
from rich.console import Console
from rich.progress import Progress

import exirkit
from exirkit.emit import open_trace
from exirkit.ir import find_out_variant, underlying
from exirkit.patterns import Target, Work, name_of, work_of
from tools.kernels.experiments import Experiment, Function, experiments

FEATURES = ("call_ns", "element_ns", "broadcast_ns", "dim_broadcast_ns", "mac_ns", "weight_ns", "run_ns")
# Edge has copies of its own, which the runtime makes in the same way.
DIM_ORDER = {
    "dim_order_ops._to_dim_order_copy.default": "aten._to_copy.default",
    "dim_order_ops._clone_dim_order.default": "aten.clone.default",
    "dim_order_ops._empty_dim_order.default": "aten.empty.memory_format",
}
RESHAPE = {"call_ns": 0.0, "note": "memory planning lets it share the memory of its source"}
UNMEASURED = {"call_ns": 1000.0, "element_ns": 5.0, "note": "not measured: costs of a plain loop are assumed"}


LIST = "experiments.yaml"
TIMES = "times.yaml"

Times = dict[str, list[tuple[Work, float]]]
"""Work of calls by operator, and the nanoseconds that each took."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="write the description to this file; standard output when absent")
    parser.add_argument("--rounds", type=int, default=9, help="calls of each program; the fastest counts")
    parser.add_argument("--only", nargs="*", default=[], help="measure these operators only")
    parser.add_argument("--programs", type=Path, metavar="FOLDER", help="measure nothing; write the programs here")
    parser.add_argument("--traces", type=Path, metavar="FOLDER", help="read what was measured with such programs")
    parser.add_argument("--name", help="name of the target that the traces are of")
    parser.add_argument("--ns-per-tick", type=float, default=1.0, help="nanoseconds of a unit of times in the traces")
    parser.add_argument("--doc", help="what it is, and on what it was measured")
    options = parser.parse_args()
    if options.traces and not options.name:
        parser.error("--traces needs --name: descriptions have names")
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    if options.programs:
        write_programs(options.programs, options.only)
        return 0
    if options.traces:
        description = described(times_of_traces(options.traces, options.ns_per_tick), options.name, options.doc)
    else:
        description = host_description(measured_here(options.only, options.rounds), whole=not options.only)
    text = "# Written by tools/kernels/costs.py from measurements.\n" + yaml.safe_dump(description, sort_keys=False)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


def chosen(only: Sequence[str]) -> list[Experiment]:
    """Return the experiments with some operators, or all."""
    found = [one for one in experiments() if not only or name_of(one.operator) in only]
    if missing := set(only) - {name_of(one.operator) for one in found}:
        raise SystemExit(f"no experiment measures {', '.join(sorted(missing))}")
    return found


def measured_here(only: Sequence[str], rounds: int) -> Times:
    """Measure the runtime of the installed wheel."""
    times: Times = defaultdict(list)
    with Progress(console=Console(stderr=True)) as progress:
        for one in progress.track(chosen(only), description="kernels"):
            prepared = prepare(one)
            times[prepared.operator].append((prepared.work, kernel_time(prepared, one.inputs, rounds)))
    return times


def write_programs(folder: Path, only: Sequence[str]) -> None:
    """Write the program of each experiment, and a list of them with the work of the calls that are measured."""
    folder.mkdir(parents=True, exist_ok=True)
    entries: dict[str, Any] = {}
    with Progress(console=Console(stderr=True)) as progress:
        for index, one in enumerate(progress.track(chosen(only), description="programs")):
            prepared = prepare(one)
            name = f"{index:04}_{prepared.operator.replace('.', '_')}"
            (folder / f"{name}.pte").write_bytes(prepared.program)
            entries[name] = {"operator": prepared.operator, "work": asdict(prepared.work)}
    (folder / LIST).write_text(yaml.safe_dump(entries, sort_keys=False), encoding="utf-8")


def times_of_traces(folder: Path, ns_per_tick: float = 1.0) -> Times:
    """Read what programs of `write_programs` took elsewhere; those without a trace or a time are left out, and named.

    Args:
        folder: Where the programs, their list, and traces or times are.
        ns_per_tick: Nanoseconds of a unit of times in traces; `times.yaml` has nanoseconds.

    Raises:
        SystemExit: The folder has no list, or nothing was measured.
    """
    if not (folder / LIST).is_file():
        raise SystemExit(f"{folder} has no {LIST}: `--programs FOLDER` writes it beside the programs")
    entries = yaml.safe_load((folder / LIST).read_text(encoding="utf-8"))
    stated = folder / TIMES
    given = yaml.safe_load(stated.read_text(encoding="utf-8")) if stated.is_file() else {}
    if unknown := sorted(set(given) - set(entries)):
        raise SystemExit(f"{stated}: {LIST} does not list {', '.join(map(str, unknown))}")
    times: Times = defaultdict(list)
    missing = []
    for name, entry in entries.items():
        operator, work = entry["operator"], TypeAdapter(Work).validate_python(entry["work"])
        trace = folder / f"{name}.etdump"
        if name in given:
            times[operator].append((work, float(given[name])))
        elif trace.is_file():
            times[operator].append((work, traced_time(trace, operator, ns_per_tick)))
        else:
            missing.append(name)
    if not times:
        raise SystemExit(f"{folder} has neither traces (NAME.etdump) nor a {TIMES} with times")
    if missing:
        print(f"not measured: {', '.join(missing)}", file=sys.stderr)
    return times


def traced_time(path: Path, operator: str, ns_per_tick: float = 1.0) -> float:
    """Return the shortest time of the kernel of an operator in a trace, over its runs, in nanoseconds.

    Args:
        path: The trace.
        operator: Name of the operator, `aten.add.Tensor`.
        ns_per_tick: Nanoseconds of a unit of the clock of the runtime.
    """
    kernel = operator.split(".")[1]
    ticks: dict[int, int] = defaultdict(int)
    for index, run in enumerate(open_trace(path).run_data):
        for one in (event.profile_event for event in run.events):
            name = one.name or "" if one is not None else ""
            if one is not None and name.removeprefix("native_call_").partition(".")[0] == kernel:
                ticks[index] += one.end_time - one.start_time
    if not ticks:
        raise SystemExit(f"{path}: the runtime did not run {operator}")
    return min(ticks.values()) * ns_per_tick


def described(times: Times, name: str, doc: str | None) -> dict[str, Any]:
    """Return the description of a target that was measured elsewhere: it has what was measured, and reshapes."""
    kernels: dict[str, Any] = {operator: fitted(found) for operator, found in times.items()}
    kernels["aten.view_copy.default"] = dict(RESHAPE)
    _add_copies(kernels)
    description = {"target": 1, "name": name, "doc": doc, "kernels": dict(sorted(kernels.items()))}
    Target.model_validate(description)
    return {key: value for key, value in description.items() if value is not None}


def host_description(times: Times, *, whole: bool) -> dict[str, Any]:
    """Return the description of the runtime of the wheel; with `whole`, what it has beyond what was measured, too."""
    kernels: dict[str, dict[str, Any]] = {name: dict(UNMEASURED) for name in available()} if whole else {}
    kernels |= {name: fitted(found) for name, found in times.items()}
    kernels["aten.view_copy.default"] = dict(RESHAPE)
    _add_copies(kernels)
    description = {
        "target": 1,
        "name": "official_host",
        "doc": f"Official runtime on a host, its portable and optimized kernels, float32; {platform.machine()}.",
        # Written by tools/kernels/conditions.py.
        "registry": {"base": ["official_host", "quantized"]},
        "kernels": dict(sorted(kernels.items())),
    }
    Target.model_validate(description)
    return description


def _add_copies(kernels: dict[str, Any]) -> None:
    for name, other in DIM_ORDER.items():
        if other in kernels:
            kernels[name] = dict(kernels[other])


class Called(torch.nn.Module):
    """A function as a model."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


@dataclass(frozen=True)
class Prepared:
    """An experiment that is lowered.

    Attributes:
        operator: Name of the operator whose kernel is measured.
        work: The work of its call.
        program: Bytes of the program file.
    """

    operator: str
    work: Work
    program: bytes


def prepare(experiment: Experiment) -> Prepared:
    """Lower one experiment, as it is: nothing is optimized."""
    program = torch.export.export(Called(experiment.function), experiment.inputs, strict=False)
    config = exirkit.EdgeCompileConfig(
        preserve_ops=[experiment.operator], _check_ir_validity=False, _skip_dim_order=True
    )
    edge = exirkit.to_edge(program, compile_config=config)
    calls = [
        node
        for node in edge.exported_program().graph.nodes
        if node.op == "call_function" and underlying(node.target) is experiment.operator
    ]
    executorch = exirkit.ExecutorchBackendConfig(remove_view_copy=False, target=None, optimization_level=0)
    name = name_of(experiment.operator)
    if len(calls) != 1:
        raise SystemExit(f"{name}: {len(calls)} calls in its program")
    work = work_of(calls[0])
    if work is None:
        raise SystemExit(f"{name}: its work is not known")
    return Prepared(name, work, bytes(edge.to_executorch(executorch).buffer))


def kernel_time(prepared: Prepared, inputs: Sequence[torch.Tensor], rounds: int) -> float:
    """Return the shortest time of the measured kernel in nanoseconds, as the runtime of the wheel states it."""
    from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer

    module = _load_for_executorch_from_buffer(prepared.program, enable_etdump=True)
    for _ in range(rounds):
        module.forward(list(inputs))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.etdump"
        module.write_etdump_result_to_file(str(file))
        return traced_time(file, prepared.operator)


def fitted(times: Sequence[tuple[Work, float]]) -> dict[str, Any]:
    """Return costs of at least zero that explain times, with the least relative error."""
    rows = torch.tensor([_counts(work) for work, _ in times], dtype=torch.float64)
    seconds = torch.tensor([time for _, time in times], dtype=torch.float64)
    rows = rows / seconds[:, None]
    used = [index for index in range(len(FEATURES)) if bool(rows[:, index].any())]
    while True:
        solution = torch.linalg.lstsq(
            rows[:, used], torch.ones(len(times), dtype=torch.float64), driver="gelsd"
        ).solution
        worst = int(solution.argmin())
        if solution[worst] >= 0:
            break
        del used[worst]
    costs = {FEATURES[index]: float(f"{float(value):.3g}") for index, value in zip(used, solution, strict=True)}
    kept = ("broadcast_ns", "dim_broadcast_ns")
    return {key: value for key, value in costs.items() if value or key in kept} or {"call_ns": 0.0}


def _counts(work: Work) -> list[float]:
    """Return how often each of `FEATURES` counts."""
    elements = dict.fromkeys([None, "any", "dim"], 0) | {work.broadcast: work.elements}
    return [1.0, *map(float, elements.values()), work.macs, work.weights, work.runs]


def available() -> list[str]:
    """Return the operators of which the runtime has the out variant."""
    from executorch.extension.pybindings.portable_lib import _get_operator_names

    kernels = set(_get_operator_names())
    found = []
    for packet_name in sorted(
        {name.partition("::")[2].partition(".")[0] for name in kernels if name.startswith("aten::")}
    ):
        packet = getattr(torch.ops.aten, packet_name, None)
        for overload in packet.overloads() if packet is not None else ():
            op = getattr(packet, overload)
            out = None if op._schema.is_mutable else find_out_variant(op)
            if out is not None and out.name() in kernels:
                found.append(name_of(op))
    return found


if __name__ == "__main__":
    sys.exit(main())
