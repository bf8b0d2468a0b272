"""Records calls of operators for generated programs: `python -m tools.operator_samples [--operators NAME ...]`.

PyTorch tests its operators with samples of its own (`op_db`). Each is exported, and the calls of the program are kept:
the operator, what its tensors are and its other arguments. Beside each call stand some that differ in one argument: a
number that compilers take for nothing (0, 1, -0.0), a place that is counted from the end, a factor that was left out;
and some on larger tensors.
A call is kept if eager PyTorch takes it and our compiler agrees; where it does not is printed. Elements of a tensor
that may not be drawn stand beside its type.

It writes `fuzz/generation/operators/samples.jsonl`, one call a line, which `exirkit.fuzz.generation` reads.

With `--varied` it writes `variations.jsonl` beside it: calls that differ from those in up to three respects, drawn and
examined in the same way, and more of operators whose calls reach lines that few others reach.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import coverage
import torch
from benchmarks.operator_samples import CalledSample, chosen, samples_of
from rich.console import Console
from rich.progress import track
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.examination import Examination
from exirkit.fuzz.generation import Plan, Policy
from exirkit.fuzz.generation.acts.samples import NUMBERS, method_of
from exirkit.fuzz.generation.choices import SeededChoices
from exirkit.fuzz.generation.generating import finished
from exirkit.fuzz.generation.method.building import Building
from exirkit.fuzz.generation.method.values import DTYPES
from exirkit.fuzz.generation.operators.samples import (
    RECORDED,
    VARIED,
    Sample,
    TensorSample,
    read_lines,
    read_sample,
)
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import Contents, make_tensor
from exirkit.fuzz.programs.inference import operator_named
from exirkit.patterns import name_of

from .changes import LEFT_OUT_ARGUMENTS, changed_calls, enlarged, in_order, twice_changed_calls, with_tensor
from .variations import variations

FURTHER = Path(__file__).with_name("further.jsonl")
"""Calls of operators of our decompositions that none of PyTorch's samples makes, and sorts that keep equal elements in
order: the operator, its arguments, and those by name at the end."""
_SAMPLES = 12
_MOST_ELEMENTS = 64
_SIZES = {20: 5, 10: 4, 5: 3, 15: 4, 25: 5, 8: 2}
"""PyTorch's sizes, and smaller ones that do as well for most operators."""
_DTYPES = (torch.float32, torch.int64, torch.bool)
_MOST_RECORDED, _MOST_CHANGED, _MOST_LARGER, _MOST_OF_TWO = 5, 16, 2, 8
"""Calls of one operator that are kept, at most."""
_ROOMS = ("emit", "ir", "passes", "patterns", "runtime_ref", "verifiers")
_LEAST_VARIED, _MOST_VARIED, _VARIED_BY_RARITY, _ATTEMPTS, _TOGETHER = 10, 60, 6, 8, 16
"""Variations of one operator that are kept, more of them the rarer what its calls reach; how many are drawn for each;
and how many are examined in one program."""
_COMMON = 0.05
"""What is measured for the rarity of calls, and the share of calls from which on a line that they reach is not rare."""
_RETRACED = 200
"""What it costs, in calls, that torch traces the whole program again."""
# Of elements that are not numbers, they give what their implementation happens to.
_PLAIN = frozenset(
    [
        "aten.mode.default",
        "aten._softmax_backward_data.default",
        *(f"aten.adaptive_max_pool{dims}d.default" for dims in (1, 2, 3)),
    ]
)
# Beyond the limits of integers, kernels give what their conversion of floats happens to.
_QUANTIZING = tuple(f"quantized_decomposed.{name}" for name in ("quantize_", "dequantize_", "fake_quant"))
# What they give is not the same twice, is not initialised, has a size that data decide, or is ill-conditioned.
_LEFT_OUT = (
    "rand", "bernoulli", "dropout", "alpha_dropout", "feature_", "normal", "multinomial", "poisson", "uniform",
    "exponential", "cauchy", "geometric", "empty", "new_empty", "nonzero", "masked_select", "unique", "_assert", "sym_",
    "item", "_local_scalar", "rrelu", "bincount", "histogram.bins_tensor", "kthvalue", "triplet_margin", "argwhere",
    "logspace", "combinations", "histogramdd", "_unsafe_masked_index", "repeat_interleave.self_Tensor",
    # They write to running statistics, which their schemas do not say.
    "batch_norm", "native_batch_norm", "instance_norm",
    "set_", "resize", "to_sparse", "_fused_rms_norm_backward",
)  # fmt: skip
# Of matrices that are singular, or nearly, they give what rounding happens to.
_OF_REGULAR_MATRICES = ("aten.linalg_inv", "aten.linalg_cond")
_MOST_RESULTS = 500
_DRAWS = 12
_EXAMINED, _MEASURED = 6, 2


def recorded(module: CalledSample) -> Iterator[Sample]:
    """Yield the calls that a sample makes."""
    tensors = module.tensors
    if not tensors or any(one.is_complex() or one.layout != torch.strided for one in tensors):
        return
    torch.manual_seed(0)
    try:
        program = torch.export.export(module, tensors, strict=False)
    except Exception:
        return
    interpreter = _Recording(program.module())
    try:
        interpreter.run(*(one.clone() for one in tensors))
    except Exception:
        return
    for target, args, kwargs in interpreter.calls:
        for cut in (_smaller, lambda one: one):
            made = sample_of(target, *pytree.tree_map_only(torch.Tensor, cut, (args, kwargs)))
            if made is not None and _results(made):
                yield made
                break


def _smaller(tensor: torch.Tensor) -> torch.Tensor:
    """Return a part of a tensor."""
    return tensor[tuple(slice(_SIZES.get(size, size)) for size in tensor.shape)]


class _Recording(torch.fx.Interpreter):
    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.calls: list[tuple[Any, Any, Any]] = []

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(target, torch._ops.OpOverload):
            copied = pytree.tree_map(lambda one: one.clone() if isinstance(one, torch.Tensor) else one, (args, kwargs))
            self.calls.append((target, *copied))
        return super().call_function(target, args, kwargs)


def sample_of(target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Sample | None:
    """Return a call as it is written down; None if it is none for programs."""
    name = name_of(target)
    if not name.startswith("aten.") or name.removeprefix("aten.").startswith(_LEFT_OUT) or target._schema.is_mutable:
        return None
    tensors: list[TensorSample] = []

    def written(one: Any) -> Any:
        if isinstance(one, torch.Tensor):
            numbers = one.detach().flatten().tolist()
            tensors.append(TensorSample(one.dtype, tuple(one.shape), tuple(numbers), is_free=False))
            return tensors[-1]
        return [written(each) for each in one] if isinstance(one, list | tuple) else one

    made_args = tuple(written(one) for one in args)
    made_kwargs = {key: written(one) for key, one in kwargs.items() if key not in LEFT_OUT_ARGUMENTS}
    fine = tensors and all(len(one.numbers) <= _MOST_ELEMENTS and one.dtype in DTYPES for one in tensors)
    return Sample(name, made_args, made_kwargs, ()) if fine else None


def checked(sample: Sample, *, is_recorded: bool = True) -> Sample | None:
    """Return a call with its results and with what its tensors may contain; None if eager PyTorch does not take it.

    Elements of a call that was not recorded, but varied, may be drawn only where they may in what it was made of, and
    the types of its results are those that `torch.export` would note.
    """
    found = _results(sample)
    if not found or not all(isinstance(one, torch.Tensor) for one in found):
        return None
    if any(one.dtype not in DTYPES or one.layout != torch.strided or one.numel() > _MOST_RESULTS for one in found):
        return None
    again = _results(sample)
    if not all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in zip(found, again, strict=True)):
        return None
    if not is_recorded and _noted_types(sample) != _types(found):
        return None
    made = replace(sample, results=_types(found)).mapped(lambda one: replace(one, is_free=False))
    if sample.op.startswith(_OF_REGULAR_MATRICES):
        return made
    # Scales are positive, and zero points lie within limits.
    count_of_free = 1 if sample.op.startswith(_QUANTIZING) else len(sample.tensors)
    for place, given in enumerate(sample.tensors[:count_of_free]):
        if not is_recorded and not given.is_free:
            continue
        freed = with_tensor(made, place, lambda one: replace(one, is_free=True))
        drawn = (_filled(freed, seed) for seed in range(_DRAWS))
        same = (freed.mapped(partial(_same, number=number)) for number in (0, 1, 2**63 - 1))
        if all(_types(_results(one)) == made.results for one in chain(drawn, same)):
            made = freed
    return made


def _filled(sample: Sample, seed: int) -> Sample:
    """Return a call with elements where they may be drawn."""
    choices = SeededChoices(seed)
    draw = list(NUMBERS.values())[seed % len(NUMBERS)]

    def filled(one: TensorSample) -> TensorSample:
        return replace(one, numbers=draw(choices, one.dtype, math.prod(one.sizes))) if one.is_free else one

    return sample.mapped(filled)


def _same(one: TensorSample, number: int) -> TensorSample:
    """Return a tensor all of whose elements are one number, or the greatest of its dtype."""
    if not one.is_free:
        return one
    most = 1 if one.dtype == torch.bool else number if one.dtype.is_floating_point else torch.iinfo(one.dtype).max
    return replace(one, numbers=(min(number, most),) * math.prod(one.sizes))


def _noted_types(sample: Sample) -> tuple[Any, ...] | None:
    """Return dtype and sizes of what PyTorch infers for a call; None if it does not take it."""
    with FakeTensorMode():
        called = sample.mapped(lambda one: torch.empty(one.sizes, dtype=one.dtype))
        try:
            return _types(pytree.tree_leaves(operator_named(sample.op)(*called.args, **called.kwargs)))
        except Exception:
            return None


def _types(results: Sequence[Any]) -> tuple[Any, ...]:
    return tuple((one.dtype, tuple(one.shape)) for one in results if isinstance(one, torch.Tensor))


def _results(sample: Sample) -> list[Any]:
    """Return what eager PyTorch computes; nothing if it does not take the call, or writes to what it is given."""
    given: list[tuple[torch.Tensor, torch.Tensor]] = []

    def made(one: TensorSample) -> torch.Tensor:
        tensor = make_tensor(Contents("numbers", numbers=one.numbers), one.dtype, one.sizes)
        given.append((tensor, tensor.clone()))
        return tensor

    try:
        called = sample.mapped(made)
        found = pytree.tree_leaves(operator_named(sample.op)(*called.args, **called.kwargs))
    except Exception:
        return []
    return found if all(torch.equal(one.nan_to_num(), before.nan_to_num()) for one, before in given) else []


def examined(samples: Sequence[Sample]) -> list[Sample]:
    """Return those of some calls that our compiler takes, with what it is known to compute as eager PyTorch does.

    What it does not is printed: it is a defect, or something that PyTorch leaves open.
    """
    samples = [
        replace(one, is_plain=one.is_plain or one.op in _PLAIN or one.op.startswith(_QUANTIZING)) for one in samples
    ]
    if not samples or not _wrong(samples):
        return samples
    if len(samples) > 1:
        middle = len(samples) // 2
        return [*examined(samples[:middle]), *examined(samples[middle:])]
    plain = replace(samples[0], is_plain=True)
    # Bins that are to be sorted, matrices that are to be regular, and others that eager PyTorch does not examine.
    fixed = samples[0].mapped(lambda one: replace(one, is_free=False))
    for kind, one in (("special", samples[0]), ("plain", plain), ("recorded", fixed)):
        wrong = _wrong([one])
        if not wrong:
            return [one]
        print(f"{kind}: {json.dumps(one.as_json())}: {wrong}", flush=True)
        if wrong.startswith("EK"):
            return []
    return []


def _wrong(samples: Sequence[Sample], times: int = _EXAMINED) -> str:
    for seed in range(times):
        building = Building(SeededChoices(seed), Plan(Policy(), frozenset(), (torch.float32,), 1, 0.0, 0))
        method, runs = method_of(building, samples, [list(NUMBERS)[seed % len(NUMBERS)]])
        compiler = ExirkitCompiler(level=1, kernels="any" if seed % 2 else "official")
        try:
            verdict = check(finished(building, runs, [method]), compiler=compiler, seed=seed)
        except Exception as error:  # elements or sizes that cannot be
            return f"raised {type(error).__name__}: {error}"[:300].replace("\n", " ")
        if verdict.unsupported:
            return verdict.unsupported
        if verdict.failures:
            return f"{verdict.failures[0].oracle}: {verdict.failures[0].message}"[:300].replace("\n", " ")
    return ""


def edge_calls(samples: Sequence[Sample]) -> int:
    """Return how many calls of the Edge dialect each of some calls becomes, on average, rounded up."""
    building = Building(SeededChoices(0), Plan(Policy(), frozenset(), (torch.float32,), 1, 0.0, 0))
    method, runs = method_of(building, samples, ["plain"])
    made = Examination(finished(building, runs, [method]), ExirkitCompiler())
    made.lowering  # noqa: B018
    nodes = made.trace.edge["forward"].graph.nodes
    retraced = _RETRACED if "decompose-whole-graph" in made.trace.worked else 0
    return retraced - (-sum(node.op == "call_function" for node in nodes) // len(samples))


def kept(groups: Sequence[Sequence[Sample]], most: int) -> list[Sample]:
    """Return calls of an operator that eager PyTorch and our compiler take, of each group in turn."""
    fine: dict[str, Sample] = {}
    left = [filter(None, map(checked, group)) for group in groups]
    while left and len(fine) < most:
        for group in tuple(left):
            made = next(group, None)
            if made is None:
                left.remove(group)
            elif len(fine) < most:
                fine.setdefault(json.dumps(made.as_json()), made)
    return examined(list(fine.values()))


def recorded_calls(names: Sequence[str]) -> dict[str, dict[str, Sample]]:
    """Return the calls that samples of some operators of `op_db` make, by operator and pattern."""
    found: dict[str, dict[str, Sample]] = defaultdict(dict)
    for op in track(chosen(names), "recorded", console=Console(stderr=True)):
        for dtype in _DTYPES:
            try:
                for sample in samples_of(op, dtype, _SAMPLES):
                    for one in recorded(CalledSample(op, sample)):
                        found[one.op].setdefault(one.pattern, one)
            except Exception as error:
                print(f"{op.name} {dtype}: {type(error).__name__}: {error}"[:200], file=sys.stderr)
    return found


def further_calls() -> dict[str, list[Sample]]:
    """Return calls of operators of which PyTorch has no samples, by operator."""
    found: dict[str, list[Sample]] = defaultdict(list)
    for line in FURTHER.read_text(encoding="utf-8").splitlines():
        op, *args = json.loads(line)
        kwargs = args.pop()["kwargs"] if isinstance(args[-1], dict) and "kwargs" in args[-1] else {}
        sample = read_sample(json.dumps({"op": op, "args": args, "kwargs": kwargs, "results": [], "calls": 0}))
        found[op].append(sample.mapped(_plainly_filled))
    return found


def _plainly_filled(one: TensorSample) -> TensorSample:
    """Return a tensor with small numbers, some of which are equal, unless it has its own."""
    if not one.is_free:
        return one
    numbers = tuple(place * 7 % 5 - (one.dtype.is_signed and 2) for place in range(math.prod(one.sizes)))
    return replace(one, numbers=numbers, is_free=False)


def lines_of(
    name: str,
    recorded: Sequence[Sample],
    changes: Sequence[Sequence[Sample]],
    pairs: Sequence[Sequence[Sample]],
) -> list[str]:
    """Return what is written of an operator: calls as they were recorded, changed ones and larger ones."""

    def examine() -> Iterator[Sample]:
        larger = [other for one in recorded for other in enlarged(one)]
        found = [*kept([recorded], _MOST_RECORDED), *kept(changes, _MOST_CHANGED), *kept([larger], _MOST_LARGER)]
        found += kept(pairs, _MOST_OF_TWO)
        calls = edge_calls(found) if found else 0
        return (replace(one, calls=calls) for one in found)

    lines, has_died = in_child(name, examine)
    # The calls as they were recorded are tried alone.
    return lines_of(name, recorded, (), ()) if has_died and (changes or pairs) else lines


def in_child(name: str, examine: Callable[[], Iterator[Sample]]) -> tuple[list[str], bool]:
    """Return lines of the calls that a function yields in a process of its own, and whether a call has ended that."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w") as stream:
            for one in examine():
                print(line_of(one), file=stream, flush=True)
        sys.stdout.flush()
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        lines = stream.read().splitlines()
    _, status = os.waitpid(child, 0)
    if status:
        print(f"died: status {status}: {name}", flush=True)
    return lines, bool(status)


def line_of(sample: Sample) -> str:
    return json.dumps(sample.as_json(), separators=(",", ":"))


def varied_lines(name: str, samples: Sequence[Sample]) -> list[str]:
    """Return variations of the calls of an operator, with what the calls themselves were measured to reach."""
    rarity = max(one.rarity for one in samples)
    most = min(_LEAST_VARIED + round(_VARIED_BY_RARITY * rarity), _MOST_VARIED)

    def filled(one: TensorSample) -> TensorSample:
        return replace(_plainly_filled(one), is_free=one.is_free)

    def examine() -> Iterator[Sample]:
        drawn = variations([one.mapped(filled) for one in samples], _ATTEMPTS * most)
        fine = islice(filter(None, (checked(one, is_recorded=False) for one in drawn)), most)
        tried = found = 0
        while some := list(islice(fine, _TOGETHER)):
            for one in examined(some):
                found += 1
                yield one
            tried += len(some)
            # Arguments that belong together: eager PyTorch takes others, and what it makes of them is of no use.
            if found < tried / 2:
                return

    lines, has_died = in_child(name, examine)
    # Where kernels of eager PyTorch write beyond their memory, calls that did not end the process may have done so too.
    return [] if has_died else lines


def with_rarity(lines: Sequence[str]) -> list[str]:
    """Return lines with how many lines of exirkit few other calls reach."""
    rooms = [str(RECORDED.parents[3] / one) for one in _ROOMS]
    measured = coverage.Coverage(data_file=None, source=rooms, config_file=False, messages=False)
    found = []
    for line in track(lines, "reached", console=Console(stderr=True)):
        measured.erase()
        with measured.collect():
            _wrong([read_sample(line)], _MEASURED)
        data = measured.get_data()
        found.append({(file, place) for file in data.measured_files() for place in data.lines(file) or ()})
    counts = Counter(place for one in found for place in one)
    rare = {place: 1 / number for place, number in counts.items() if number < _COMMON * len(lines)}
    sums = (round(sum(rare.get(place, 0) for place in sorted(one)), 2) for one in found)
    return [line_of(replace(read_sample(line), rarity=each)) for line, each in zip(lines, sums, strict=True)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--operators", nargs="*", default=[], help="names in `op_db`; all, if there are none. Calls of others stay"
    )
    parser.add_argument(
        "--further", action="store_true", help="with --operators: those without samples of PyTorch, too"
    )
    parser.add_argument("--varied", action="store_true", help="variations of the calls that are there")
    parser.add_argument("--file", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    if args.varied:
        return _write_varied(args.operators, args.file or VARIED)
    return _write_recorded(args.operators, args.further, args.file or RECORDED)


def _write_varied(operators: Sequence[str], file: Path) -> int:
    """Write variations of the calls of some operators, by their names in the file, or of all; those of others stay."""
    recorded = read_lines(RECORDED)
    before = read_lines(VARIED)
    # Scales, zero points and limits belong together.
    names = operators or sorted(name for name in recorded if not name.startswith("quantized_decomposed."))
    made = {} if not operators else {name: lines for name, lines in before.items() if name not in names}
    for name in track(names, "varied", console=Console(stderr=True)):
        made[name] = sorted(set(varied_lines(name, [read_sample(line) for line in recorded[name]])))
    lines = [line for name in sorted(made) for line in made[name]]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} variations of calls of {len(made)} operators in {file}")
    return 0


def _write_recorded(operators: Sequence[str], with_further: bool, file: Path) -> int:
    found = recorded_calls(operators)
    for name, further in further_calls().items():
        if not operators or with_further:
            found[name] |= {one.pattern: one for one in further}
    changes = changed_calls(found)
    pairs = twice_changed_calls(changes)
    lines: list[str] = []
    for name in track(sorted({*found, *changes}), "examined", console=Console(stderr=True)):
        lines += lines_of(name, in_order(found.get(name, {}).values()), changes.get(name, ()), pairs.get(name, ()))
    made = with_rarity(sorted(set(lines)))
    if operators:
        before = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        made = sorted([*made, *(line for line in before if read_sample(line).op not in {*found, *changes})])
    file.write_text("\n".join(made) + "\n", encoding="utf-8")
    print(f"{len(lines)} calls of {len(found)} operators, {len(made)} calls in {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
