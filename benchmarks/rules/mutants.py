"""Mutants of shipped backend rules, and which of them `exirkit rule check --strict` rejects.

    python -m benchmarks.rules.mutants [--only RULE] [--results FILE.jsonl] [--control]

The mutants are listed in `mutants.yaml`: each drops one guard of a rule, or changes one constant or argument. A
mutant is checked as a book with that rule alone. With `--results` a run that was interrupted goes on. The exit code is
0 if at most one mutant is accepted. With `--control` the rules are checked as they are in the same way, and the exit
code is 0 if all are accepted.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from exirkit.patterns import backend_books, book_text, check_book, parse_book

LIST = Path(__file__).with_suffix(".yaml")
MOST_ACCEPTED = 1


def mutants() -> list[dict[str, str]]:
    """Return the list: `rule`, and `drop`, how a guard begins, or `field`, `old` and `new`."""
    listed: list[dict[str, str]] = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    return listed


def mutated_book(mutant: Mapping[str, str], *, is_control: bool = False) -> tuple[str, str]:
    """Return the text of a book with the mutant alone, or the rule as it is, and the name of the book that has it.

    Raises:
        ValueError: The rule, the guard or the text is not there.
    """
    for name in backend_books():
        book: dict[str, Any] = yaml.safe_load(book_text(name))
        for rule in book["rules"]:
            if rule["id"] == mutant["rule"]:
                if not is_control:
                    _mutate(rule, mutant)
                return yaml.safe_dump({**book, "rules": [rule]}, sort_keys=False, width=1000), name
    raise ValueError(f"there is no rule {mutant['rule']}")


def _mutate(rule: dict[str, Any], mutant: Mapping[str, str]) -> None:
    if "drop" in mutant:
        guards = rule["where"] if isinstance(rule["where"], list) else [rule["where"]]
        kept = [one for one in guards if not _text(one).startswith(mutant["drop"])]
        if len(kept) != len(guards) - 1:
            raise ValueError(f"{mutant['rule']} has not one guard {mutant['drop']!r}")
        rule["where"] = kept
        return
    text = str(rule[mutant["field"]])
    if mutant["old"] not in text:
        raise ValueError(f"{mutant['rule']} has no {mutant['old']!r} in {mutant['field']}")
    rule[mutant["field"]] = text.replace(mutant["old"], mutant["new"], 1)


def _text(guard: Any) -> str:
    return str(guard["expr"] if isinstance(guard, dict) else guard)


def checked(mutant: Mapping[str, str], *, is_control: bool = False) -> dict[str, Any]:
    """Check a mutant, or its rule as it is; return whether it is rejected, by which codes, and after how long."""
    start = time.perf_counter()
    text, name = mutated_book(mutant, is_control=is_control)
    verdict = check_book(parse_book(text, f"{name}.yaml"), is_strict=True, is_complete=False)
    found = [*verdict.found, *(one for rule in verdict.rules for one in rule.found)]
    errors = sorted({one.code for one in found if one.severity == "error"})
    seconds = round(time.perf_counter() - start, 2)
    return {**mutant, "rejected": not verdict.is_accepted, "codes": errors, "seconds": seconds}


def main(arguments: Sequence[str] | None = None) -> int:
    """Check all mutants, print one line for each, and how many are rejected."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="RULE")
    parser.add_argument("--results", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--control", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done: dict[str, dict[str, Any]] = {}
    if options.results is not None and options.results.is_file():
        done = {one["rule"]: one for one in map(json.loads, options.results.read_text().splitlines())}
    results = []
    for mutant in mutants():
        if options.only and mutant["rule"] not in options.only:
            continue
        known = done.get(mutant["rule"])
        result = (
            known
            if known is not None and mutant.items() <= known.items()
            else checked(mutant, is_control=options.control)
        )
        results.append(result)
        if result is not known and options.results is not None:
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
        said = ", ".join(result["codes"]) or "ACCEPTED"
        print(f"{result['rule']:50} {said:30} {result['seconds']:6.1f} s", flush=True)
    accepted = [one["rule"] for one in results if not one["rejected"]]
    if options.control:
        print(f"{len(accepted)} of {len(results)} rules are accepted as they are")
        return 0 if len(accepted) == len(results) else 1
    print(f"{len(results) - len(accepted)} of {len(results)} mutants are rejected")
    return 0 if len(accepted) <= MOST_ACCEPTED else 1


if __name__ == "__main__":
    sys.exit(main())
