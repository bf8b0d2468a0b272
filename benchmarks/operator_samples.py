"""Operators one by one, with the samples that PyTorch tests its own operators with, on the official runtime.

`python -m benchmarks.operator_samples` takes `op_db`, PyTorch's list of operators with arguments to try, none of
them written here. Each sample is exported, lowered, and run on the official runtime, and its results are compared
with eager PyTorch. Each operator has a process of its own, so that one that ends it takes no other along.

A sample is *right*, *wrong*, *rejected* (a diagnostic of the model), *failed* (any other exception while lowering), or
does not *run*; *left out* are those that torch.export rejects or traces wrongly, that have no tensors, or complex ones.
Exit code 1 if anything is wrong, failed or does not run.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import signal
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from exirkit import ExecutorchBackendConfig, ModelError, to_edge

BAD = ("wrong", "failed", "does not run", "died")
_SECONDS = 300
# Which of equal elements an index names is left open by these.
_OPEN_INDICES = frozenset({"kthvalue", "mode", "sort", "topk", "median", "nanmedian", "msort", "argsort"})
_TOLERANCES = {torch.float32: 2e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2, torch.float64: 1e-5}


@dataclass(frozen=True)
class Outcome:
    """What became of one sample."""

    operator: str
    dtype: str
    sample: int
    verdict: str
    why: str = ""


class CalledSample(torch.nn.Module):
    """Calls an operator with a sample's tensors, and what else the sample has."""

    def __init__(self, op: Any, sample: Any) -> None:
        super().__init__()
        self._op = op
        self._leaves, self._spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        self._places = [place for place, one in enumerate(self._leaves) if isinstance(one, torch.Tensor)]

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        return tuple(self._leaves[place].detach() for place in self._places)

    def forward(self, *tensors: torch.Tensor) -> tuple[Any, ...]:
        leaves = list(self._leaves)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return tuple(pytree.tree_leaves(self._op(first, *args, **kwargs)))


def outcome_of(
    op: Any, sample: Any, level: int, run: Callable[[bytes, Sequence[torch.Tensor]], list[Any]]
) -> tuple[str, str]:
    """Lower and run one sample; return the verdict and the reason.

    Args:
        op: An `OpInfo`.
        sample: A `SampleInput` of it.
        level: Of optimization.
        run: Runs a program on a runtime.
    """
    module = CalledSample(op, sample)
    left_out, exported, wanted = _exported(module)
    if exported is None:
        return "left out", left_out
    try:
        config = ExecutorchBackendConfig(optimization_level=level)
        program = bytes(to_edge(exported).to_executorch(config).buffer)
    except ModelError as error:
        return "rejected", str(error)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    try:
        got = run(program, _copies(module.tensors))
    except Exception as error:
        return "does not run", f"{type(error).__name__}: {error}"
    has_open_indices = op.name in _OPEN_INDICES
    if len(got) != len(wanted):
        return "wrong", f"{len(got)} results instead of {len(wanted)}"
    for place, (one, want) in enumerate(zip(got, wanted, strict=True)):
        if (
            has_open_indices
            and isinstance(want, torch.Tensor)
            and want.dtype is torch.int64
            and (place or len(got) == 1)
        ):
            continue
        if not _agree(one, want):
            return "wrong", f"result {place}: {_text(one)} instead of {_text(want)}"
    return "right", ""


def _exported(module: CalledSample) -> tuple[str, ExportedProgram | None, list[Any]]:
    """Return why a sample is left out, or its program and what eager PyTorch computes."""
    tensors = module.tensors
    if not tensors:
        return "no tensors", None, []
    try:
        torch.manual_seed(0)
        wanted = list(module(*_copies(tensors)))
    except Exception as error:
        return f"eager PyTorch: {error}", None, []
    if any(
        isinstance(one, torch.Tensor) and (one.is_complex() or one.layout != torch.strided)
        for one in (*wanted, *tensors)
    ):
        return "complex or sparse", None, []
    if not all(isinstance(one, torch.Tensor | int | float | bool) for one in wanted):
        return "other results than tensors", None, []
    try:
        exported = torch.export.export(module, tensors, strict=False)
        traced = pytree.tree_leaves(exported.module()(*_copies(tensors)))
    except Exception as error:
        return f"torch.export: {type(error).__name__}: {error}", None, []
    if not all(_agree(one, want) for one, want in zip(traced, wanted, strict=True)):
        return "torch.export traces something else, or chance decides", None, []
    return "", exported, wanted


def _copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [one.clone() for one in tensors]


def _agree(got: Any, want: Any) -> bool:
    if not isinstance(want, torch.Tensor):
        return bool(got == want) or (isinstance(want, float) and math.isnan(want) and math.isnan(got))
    if not isinstance(got, torch.Tensor) or got.dtype != want.dtype or got.shape != want.shape:
        return False
    tolerance = _TOLERANCES.get(want.dtype, 0.0)
    return (
        torch.allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
        if tolerance
        else torch.equal(got, want)
    )


def _text(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return str(value)
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} {value.flatten()[:4].tolist()}"


def samples_of(op: Any, dtype: torch.dtype, count: int) -> list[Any]:
    """Return some of the samples of an operator, spread over all that it has."""
    if dtype not in op.supported_dtypes("cpu"):
        return []
    torch.manual_seed(1)
    found = [one for one, _ in zip(op.sample_inputs("cpu", dtype, requires_grad=False), range(60), strict=False)]
    return found[:: max(1, len(found) // count)][:count]


def outcomes_of(op: Any, dtype: torch.dtype, count: int, level: int) -> Iterator[Outcome]:
    """Try samples in a child of this process."""
    name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(_SECONDS)
        with os.fdopen(writer, "w") as stream:
            _report(op, dtype, count, level, stream)
        os._exit(0)
    os.close(writer)
    at = 0
    with os.fdopen(reader) as stream:
        for line in stream:
            entry = json.loads(line)
            at = entry["sample"]
            if entry["verdict"] != "started":
                yield Outcome(name, str(dtype).removeprefix("torch."), **entry)
    _, status = os.waitpid(child, 0)
    if status:
        yield Outcome(name, str(dtype).removeprefix("torch."), at, "died", f"status {status}")


def _report(op: Any, dtype: torch.dtype, count: int, level: int, stream: Any) -> None:
    """Write a line before each sample, so that the one that ends the process is known, and one behind it."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    for number, sample in enumerate(samples_of(op, dtype, count)):
        for verdict, why in _steps(op, sample, level):
            print(json.dumps({"sample": number, "verdict": verdict, "why": why}), file=stream, flush=True)


def _steps(op: Any, sample: Any, level: int) -> Iterator[tuple[str, str]]:
    yield "started", ""
    yield outcome_of(op, sample, level, _run)


def _run(program: bytes, tensors: Sequence[torch.Tensor]) -> list[Any]:
    from executorch.runtime import Runtime

    return list(Runtime.get().load_program(program).load_method("forward").execute(list(tensors)))


def chosen(names: Sequence[str], every: int = 1) -> list[Any]:
    """Return operators of PyTorch's list, all or by name, or one of several."""
    from torch.testing._internal.common_methods_invocations import op_db

    return [one for one in op_db if not names or one.name in names][::every]


def report(outcomes: Sequence[Outcome], console: Console) -> None:
    """Print counts, what is bad, and which operators are rejected with which code."""
    for one in outcomes:
        if one.verdict in BAD:
            console.print(f"{one.operator} {one.dtype} #{one.sample}: {one.verdict}: {one.why[:400]}", markup=False)
    table = Table(title="samples of operators", title_justify="left")
    for title in ("verdict", "samples", "operators"):
        table.add_column(title, justify="left" if title == "verdict" else "right")
    counts = Counter(one.verdict for one in outcomes)
    for verdict, count in counts.most_common():
        operators = {one.operator for one in outcomes if one.verdict == verdict}
        table.add_row(verdict, f"{count:,}", f"{len(operators):,}")
    console.print(table)
    by_code: dict[str, set[str]] = defaultdict(set)
    for one in outcomes:
        if one.verdict == "rejected":
            by_code[one.why[6:11]].add(one.operator)
    for code, operators in sorted(by_code.items()):
        console.print(f"{code}: {len(operators)} operators: {', '.join(sorted(operators))}", markup=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", help="names; all, if there are none")
    parser.add_argument("--level", type=int, default=1, help="of optimization")
    parser.add_argument("--samples", type=int, default=6, help="of each operator and dtype, at most")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "int64", "bool"])
    parser.add_argument("--every", type=int, default=1, help="take one of so many operators")
    parser.add_argument("--json", help="write the outcomes to this file")
    args = parser.parse_args()
    prepare()
    outcomes = [
        outcome
        for op in track(chosen(args.operators, args.every), "operators", console=Console(stderr=True))
        for dtype in args.dtypes
        for outcome in outcomes_of(op, getattr(torch, dtype), args.samples, args.level)
    ]
    if args.json:
        with open(args.json, "w", encoding="utf-8") as stream:
            json.dump([asdict(one) for one in outcomes], stream, indent=1)
    report(outcomes, Console(width=150))
    return 1 if any(one.verdict in BAD for one in outcomes) else 0


def prepare() -> None:
    """Load once what every child would load, and keep quiet what torch says while it traces."""
    import executorch.runtime  # noqa: F401

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    to_edge(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))).to_executorch()


if __name__ == "__main__":
    sys.exit(main())
