"""`python -m exirkit.fuzz.mutants`: run the bench, and print what was found and what was not."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .bench import BenchOptions, run_bench, run_mutant
from .model import mutant
from .results import MutantResult, table_of


def main() -> int:
    """Read the options, run the bench; exit code 0 if every bug was found."""
    parser = argparse.ArgumentParser(prog="python -m exirkit.fuzz.mutants", description=__doc__)
    usual = BenchOptions()
    parser.add_argument("--only", action="append", default=[], metavar="ID", help="only this bug; repeatable")
    parser.add_argument("--seconds", type=float, default=usual.seconds, help="time for each bug")
    parser.add_argument("--seeds", type=int, default=usual.seeds, help="most programs for each bug")
    parser.add_argument("--first-seed", type=int, default=usual.first_seed, help="seed of the first program")
    parser.add_argument("--rungs", default=",".join(usual.rungs), help="oracles that are asked")
    parser.add_argument("--file", type=Path, metavar="FILE.json", help="keep results here, and go on from there")
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    options = BenchOptions(given.seconds, given.seeds, given.first_seed, tuple(given.rungs.split(",")))
    if given.worker:
        sys.stdout.write(run_mutant(mutant(given.only[0]), options).model_dump_json() + "\n")
        return 0
    for name in given.only:
        mutant(name)
    results = run_bench(options, only=given.only, file=given.file, listen=None if given.json else _say)
    if given.json:
        sys.stdout.write("[" + ",\n".join(one.model_dump_json() for one in results) + "]\n")
    else:
        sys.stdout.write("\n" + table_of(results) + "\n")
    return 0 if all(one.killed_by for one in results) else 1


def _say(one: MutantResult) -> None:
    found = f"killed by {one.killed_by} after {one.programs} programs" if one.killed_by else "not killed"
    sys.stderr.write(f"{one.id}: {found}\n")


if __name__ == "__main__":
    raise SystemExit(main())
