"""How many bugs of another list than the one that comes with exirkit are found, how soon, and which part is blamed.

    python -m benchmarks.mutants.fresh_mutants [--only ID] [--seconds N] [--first-seed N] [--workers N]
        [--focus | --witnesses] [--file FILE.json]

The bugs are those of `mutants_second_set.yaml`, or of `--list`: `mutants_third_set.yaml`, `mutants_fourth_set.yaml`,
`mutants_fifth_set.yaml`, `mutants_sixth_set.yaml` and `mutants_seventh_set.yaml` beside it have fifty others each. All
were written by someone who had read neither the generator nor the oracles. With `--witnesses` only the program that
comes with each bug is tried, which tells in a minute or two which parts are blamed wrongly. With `--file` a run that
was interrupted goes on. The exit code is 0 if at least 90 % are found, and the right part is blamed for at least 95 %
of these.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from exirkit.fuzz.mutants import Mutant, MutantResult, MutationBenchOptions, mutant_table, run_mutation_bench
from exirkit.fuzz.mutants.model import named

LIST = Path(__file__).with_name("mutants_second_set.yaml")
LEAST_KILLED = 0.90
LEAST_BLAMED_RIGHT = 0.95


def read_mutants(path: Path = LIST) -> tuple[Mutant, ...]:
    """Return the bugs of a list, in its order."""
    return tuple(Mutant.model_validate(entry) for entry in yaml.safe_load(path.read_text(encoding="utf-8")))


def summary(results: Sequence[MutantResult]) -> str:
    """Return the survivors by kind of part, and what is blamed wrongly."""
    survivors = [one for one in results if not one.killed_by]
    wrong = [one for one in results if one.killed_by and not one.is_blame_right]
    lines = [f"survivor: {one.id} ({one.part}){f', {one.note}' if one.note else ''}" for one in survivors]
    lines += [f"blamed wrongly: {one.id} ({one.part}): {one.blamed or one.note}" for one in wrong]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the bench, and print a line as each bug is done, then the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", type=Path, default=LIST, metavar="FILE.yaml")
    parser.add_argument("--only", action="append", default=[], metavar="ID")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seeds", type=int, default=100_000)
    parser.add_argument("--first-seed", type=int, default=0)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--focus", action="store_true", help="programs that reach the function that a bug changes")
    which.add_argument("--witnesses", action="store_true", help="only the program that comes with each bug")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--file", type=Path, metavar="FILE.json")
    options = parser.parse_args(arguments)
    listed = read_mutants(options.list)
    for name in options.only:
        named(name, listed)
    results = run_mutation_bench(
        MutationBenchOptions(
            seconds=options.seconds,
            seeds=options.seeds,
            first_seed=options.first_seed,
            is_focused=options.focus,
            only_witnesses=options.witnesses,
        ),
        only=options.only,
        mutants=listed,
        file=options.file,
        listen=lambda one: print(f"{one.id}: {one.killed_by or 'not killed'}, {one.seconds:.1f} s", flush=True),
        workers=options.workers,
    )
    killed = [one for one in results if one.killed_by]
    right = sum(bool(one.is_blame_right) for one in killed)
    print(mutant_table(results), summary(results), sep="\n")
    is_enough = len(killed) >= LEAST_KILLED * len(results) and right >= LEAST_BLAMED_RIGHT * len(killed)
    return 0 if is_enough else 1


if __name__ == "__main__":
    sys.exit(main())
