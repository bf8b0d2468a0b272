"""Take architectures through the chain and say which do not go, and why.

Usage: python -m benchmarks.architectures [NAME ...] [--library NAME] [--official] [--results FILE] [--table FILE]

Each architecture is exported, lowered at `-O1` and `-O2`, run on the reference runtime and on the official one, and
compared with eager PyTorch, in processes of its own. NAME is a part of `library/name`. Results are kept in a file, so
that some can be measured again without the others.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from benchmarks.architectures.building import Architecture, import_torchvision, read_library
from benchmarks.architectures.measuring import Outcome, as_json, measure
from benchmarks.architectures.table import page
from exirkit.fuzz.official import OfficialRuntime

_OFFICIAL = "official exporter"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names; all architectures when absent")
    parser.add_argument("--library", choices=("transformers", "timm", "torchvision"), help="only those of one library")
    parser.add_argument("--failed", action="store_true", help="only those that did not go the last time")
    parser.add_argument("--new", action="store_true", help="only those without a result")
    parser.add_argument("--official", action="store_true", help="lower with the official exporter too")
    parser.add_argument("--seconds", type=int, default=240, help="limit for each architecture and chain")
    parser.add_argument("--results", type=Path, default=Path("build/architectures.json"))
    parser.add_argument(
        "--table", type=Path, help="write docs/reference/architectures.md, or another file, from the results"
    )
    parser.add_argument("--table-only", action="store_true", help="try nothing")
    options = parser.parse_args()
    results = {}
    if options.results.exists():
        results = {name: Outcome(**one) for name, one in json.loads(options.results.read_text()).items()}
    library = read_library()
    chosen = {name: one for name, one in library.items() if _is_chosen(name, one, options, results)}
    if chosen and not options.table_only:
        _import_once(chosen)
        with OfficialRuntime() as runtime:
            for position, (name, one) in enumerate(chosen.items()):
                started = time.monotonic()
                outcome = measure(name, one, runtime, options.seconds, options.official)
                if not options.official and name in results:
                    _keep_official(results[name], outcome)
                results[name] = outcome
                _save(results, options.results)
                took = time.monotonic() - started
                print(f"{position + 1}/{len(chosen)} {took:5.1f} s  {_line(outcome)}", file=sys.stderr, flush=True)
    if options.table:
        options.table.write_text(page({name: results[name] for name in library if name in results}))
    return 0


def _is_chosen(name: str, one: Architecture, options: argparse.Namespace, results: dict[str, Outcome]) -> bool:
    if options.names and not any(part in name for part in options.names):
        return False
    if options.failed and name in results and results[name].goes:
        return False
    if options.new and name in results:
        return False
    return options.library in (None, one.library)


def _import_once(chosen: dict[str, Architecture]) -> None:
    """Import what the forks need, which takes longer than most models do."""
    import_module("exirkit.runtime_ref")
    libraries = {one.library for one in chosen.values()}
    # transformers imports torchvision where there is one.
    if find_spec("torchvision") is not None:
        import_torchvision()
    for library in libraries - {"torchvision"}:
        import_module(library)


def _keep_official(before: Outcome, outcome: Outcome) -> None:
    outcome.passed |= {stage: value for stage, value in before.passed.items() if stage.startswith(_OFFICIAL)}
    outcome.failures |= {stage: value for stage, value in before.failures.items() if stage.startswith(_OFFICIAL)}


def _save(results: dict[str, Outcome], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps({name: as_json(one) for name, one in results.items()}, indent=1))
    partial.replace(path)


def _line(outcome: Outcome) -> str:
    return f"{outcome.name}: " + "; ".join(
        ["goes"] * outcome.goes + [f"{stage}: {why}" for stage, why in outcome.failures.items()]
    )


if __name__ == "__main__":
    sys.exit(main())
