"""Makes the programs that campaigns start with, from many generated ones, by what each reaches in the compiler.

    python -m tools.seed_corpus collect POOL.jsonl --first 100000 --count 5000
    python -m tools.seed_corpus trim SMALL.jsonl POOL.jsonl ... --part 0/2
    python -m tools.seed_corpus choose SMALL.jsonl ... --seconds 30
    python -m tools.seed_corpus collect CORPUS.jsonl --shipped
    python -m tools.seed_corpus reach POOL.jsonl ... --corpus CORPUS.jsonl

`collect` checks programs as campaigns do, and records of each that passes what it reaches: the outcomes of the
compiler's conditions, the rules and passes that changed it, and its operators with the kinds of their arguments. `trim`
takes, time and again, the program that adds the most for the time that it takes, and leaves out of it what does not
matter for that. Both go on where they were stopped. `choose` puts the smaller programs in order, those first that add
the most for their time, and writes `fuzz/generation/seed_corpus.txt`. `reach` finds what operators and features the
programs have that reach a function, and writes `fuzz/generation/reach.json`, by which campaigns with a focus go; it has
to see the code with which the programs were collected, whose lines it counts.
"""

from __future__ import annotations

import heapq
import json
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import track

from . import probes
from .entries import Entry, number_of

if TYPE_CHECKING:
    from exirkit.fuzz.campaigns.standard import StandardBench
    from exirkit.fuzz.programs import Program

app = typer.Typer(add_completion=False, help=__doc__)
_WARM_UP = range(10**6, 10**6 + 20)
_TRIALS = 24


@app.command()
def collect(
    file: Path,
    first: int = 100_000,
    count: int = 1000,
    level: int = 1,
    shipped: Annotated[bool, typer.Option(help="Those of the seed corpus instead.")] = False,
) -> None:
    """Check the programs of some seeds at a level of optimization, and record what each reaches."""
    bench = _bench(level)
    from exirkit.fuzz.generation.seed_corpus import corpus
    from exirkit.fuzz.programs import parse_program

    done = {entry.seed for entry in _entries([file])}
    texts = dict(corpus()) if shipped else {}
    left = [seed for seed in texts or range(first, first + count) if seed not in done]
    with file.open("a", encoding="utf-8") as records:
        for seed in track(left, "checking programs"):
            program = parse_program(texts[seed]) if texts else bench.make(seed).program
            records.write(_checked(bench, seed, program).line())
            records.flush()


@app.command()
def trim(file: Path, pools: list[Path], part: str = "0/1", most: int = 800) -> None:
    """Make programs smaller that together reach the most, as long as they reach what they add."""
    bench = _bench()
    from exirkit.fuzz.programs import check_program, parse_program, program_text
    from exirkit.fuzz.triage import smallest
    from exirkit.ir import DiagnosticError

    from .cuts import CUTS

    place, parts = map(int, part.split("/"))
    done = {entry.seed for entry in _entries([file])}
    left = chosen([one for one in _entries(pools) if one.verdict == "passed"])[:most][place::parts]
    with file.open("a", encoding="utf-8") as records:
        for entry, added in track([one for one in left if one[0].seed not in done], "making programs smaller"):
            program = parse_program(entry.program)
            # What is made once in a process is not reached again.
            wanted = added & _checked(bench, entry.seed, program).reached

            def is_enough(one: Program, seed: int = entry.seed, wanted: frozenset[int] = wanted) -> bool:
                try:
                    check_program(one)
                except DiagnosticError:
                    return False
                found = _checked(bench, seed, one)
                return found.verdict == "passed" and wanted <= found.reached

            if wanted:
                small = smallest(program, CUTS, is_enough, key=program_text, trials=_TRIALS)
                records.write(_checked(bench, entry.seed, small).line())
                records.flush()


@app.command()
def choose(files: list[Path], seconds: float = 30.0, target: Annotated[Path | None, typer.Option()] = None) -> None:
    """Write the programs that reach the most in so many CPU seconds, those first that add the most for their time."""
    from exirkit.fuzz.generation.seed_corpus import FILE, corpus_text

    entries = [one for one in _entries(files) if one.verdict == "passed"]
    kept, covered, spent = list[Entry](), set[int](), 0.0
    for entry, added in chosen(entries):
        spent += entry.seconds
        if spent > seconds:
            break
        kept.append(entry)
        covered |= added
        if len(kept) % 50 == 0:
            print(f"{len(kept)} programs reach {len(covered)} in {spent:.1f} s")
    (target or FILE).write_text(corpus_text((one.seed, one.program) for one in kept), encoding="utf-8")
    everything = frozenset[int]().union(*(one.reached for one in entries))
    print(f"{len(kept)} of {len(entries)} programs reach {len(covered)} of {len(everything)}")


@app.command()
def reach(pools: list[Path], corpus: Annotated[list[Path] | None, typer.Option()] = None) -> None:
    """Write what the programs have that reach a function, by function."""
    from exirkit.fuzz.generation.focus import FILE

    from .reaching import reach_text

    whole = [one for one in _entries(pools) if one.verdict == "passed"]
    FILE.write_text(reach_text(whole, list(_entries(corpus or []))), encoding="utf-8")
    print(f"{len(whole)} programs; {FILE.stat().st_size:,} bytes in {FILE}")


def _bench(level: int = 1) -> StandardBench:
    probes.install()
    import torch

    from exirkit.fuzz.campaigns import CampaignConfig
    from exirkit.fuzz.campaigns.standard import StandardBench

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    bench = StandardBench(CampaignConfig(optimization_levels=(level,)))
    # What is made once in a process must not count for the first program.
    for seed in _WARM_UP:
        bench.check(bench.make(seed))
    return bench


def _checked(bench: StandardBench, seed: int, program: Program) -> Entry:
    from exirkit.fuzz.campaigns.bench import Case
    from exirkit.fuzz.generation import features_of
    from exirkit.fuzz.programs import program_text

    steps = sum(len(method.steps) for method in program.methods)
    case = Case(seed, program, program_text(program), steps, frozenset(features_of(program)))
    probes.take()
    start = time.process_time()
    checked = bench.check(case)
    seconds = time.process_time() - start
    calls = _calls_of(program) if checked.verdict == "passed" else ()
    reached = {*probes.take(), *checked.features, *calls}
    numbers = frozenset(map(number_of, reached))
    return Entry(seed, case.text, round(seconds, 4), checked.verdict, numbers)


def chosen(entries: Sequence[Entry]) -> list[tuple[Entry, frozenset[int]]]:
    """Return the programs that add something, those first that add the most for their time, and what each adds."""
    covered, found = set[int](), list[tuple[Entry, frozenset[int]]]()
    # What a program adds only becomes less, so what it was when last asked is a bound.
    bounds = [(-math.inf, index) for index in range(len(entries))]
    heapq.heapify(bounds)
    while bounds:
        index = heapq.heappop(bounds)[1]
        added = entries[index].reached - covered
        gain = len(added) / entries[index].cost
        if bounds and gain < -bounds[0][0]:
            heapq.heappush(bounds, (-gain, index))
        elif added:
            covered |= added
            found.append((entries[index], added))
    return found


def _entries(files: Sequence[Path]) -> Iterator[Entry]:
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
            found = json.loads(line)
            yield Entry(**found | {"reached": frozenset(found["reached"])})


def _calls_of(program: Program) -> Iterator[str]:
    """Yield the operators that are called, each with the kinds of each of its arguments."""
    from torch.fx import GraphModule

    from exirkit.fuzz.programs import build

    for built in build(program).values():
        for module in built.graph_module.modules():
            for node in module.graph.nodes if isinstance(module, GraphModule) else ():
                if node.op == "call_function":
                    named = [*((str(place), one) for place, one in enumerate(node.args)), *node.kwargs.items()]
                    yield from (f"{node.target} {name}: {kind}" for name, one in named for kind in _kinds(one))


def _kinds(argument: Any) -> Iterator[str]:
    """Yield what is told apart of an argument."""
    import torch

    value = argument.meta.get("val") if isinstance(argument, torch.fx.Node) else argument
    if isinstance(value, torch.Tensor):
        yield from (str(value.dtype), f"{value.dim()} dims")
        # Sizes that vary must not be asked.
        if not all(isinstance(size, int) for size in value.shape):
            yield "sizes that vary"
        elif not value.numel():
            yield "no elements"
        elif not value.is_contiguous():
            yield "strides of its own"
    elif isinstance(value, list | tuple):
        yield f"{min(len(value), 5)} of {'one' if len(set(map(str, value))) < 2 else 'several'}"
        yield from dict.fromkeys(f"has {kind}" for one in value for kind in _kinds(one))
    elif isinstance(value, bool | str | torch.dtype | torch.layout | torch.memory_format) or value is None:
        yield str(value)
    elif isinstance(value, int):
        yield str(max(-3, min(value, 3)))
    elif isinstance(value, float):
        yield f"float {value if value in (0.0, 1.0, -1.0) or not math.isfinite(value) else 'other'}"
    else:
        yield type(value).__name__


if __name__ == "__main__":
    app()
