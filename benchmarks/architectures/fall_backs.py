"""Count how often lowering has torch decompose a whole program again, and say why.

Usage: python -m benchmarks.architectures.fall_backs [NAME ...] [--library NAME] [--most N] [--new] [--failed]

Each architecture is exported and lowered to Edge. NAME is a part of `library/name`. Answers are kept in
`fall_backs.yaml`, beside those of earlier runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from benchmarks.architectures.building import Architecture, read_library
from exirkit import to_edge
from exirkit.passes import noted_fall_backs

RESULTS_FILE = Path(__file__).with_name("fall_backs.yaml")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--library", choices=("transformers", "timm", "torchvision"))
    parser.add_argument("--most", type=int, default=10**6, help="try so many, spread over the library")
    parser.add_argument("--new", action="store_true", help="only those without an answer")
    parser.add_argument("--failed", action="store_true", help="only those with a fall-back, or not lowered")
    options = parser.parse_args()
    library, results = read_library(), read_results()
    chosen = {
        name: one
        for name, one in library.items()
        if (not options.names or any(part in name for part in options.names))
        and options.library in (None, one.library)
        and find_spec(one.library) is not None
        and not (options.new and name in results)
        and not (options.failed and name in results and results[name] == {"fall_backs": []})
    }
    step = max(1, len(chosen) // options.most)
    for name, one in list(chosen.items())[::step]:
        results[name] = tried(one)
        print(f"{name}: {results[name]}", file=sys.stderr, flush=True)
        _save({name: results[name] for name in library if name in results})
    lowered = {name: one["fall_backs"] for name, one in results.items() if "fall_backs" in one}
    falling = {name: why for name, why in lowered.items() if why}
    print(f"{len(lowered)} architectures were lowered; torch decomposed {len(falling)} of them as a whole")
    for name, why in falling.items():
        print(f"{name}: {'; '.join(why)}")
    return int(bool(falling))


def read_results() -> dict[str, dict[str, Any]]:
    """Return what became of architectures, by `library/name`: `fall_backs`, or `fails` with the error's name."""
    return yaml.safe_load(RESULTS_FILE.read_text()) or {} if RESULTS_FILE.exists() else {}


def tried(architecture: Architecture) -> dict[str, Any]:
    """Export and lower an architecture, and say why torch decomposed it as a whole, or what failed."""
    stage = "export"
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program, _, _ = architecture.export()
            stage = "to_edge"
            exported = time.process_time()
            with noted_fall_backs() as noted:
                to_edge(program)
        # What does not get this far is the matter of the sweep.
        except Exception as error:
            return {"fails": f"{stage}: {getattr(error, 'code', None) or type(error).__name__}"}
    times = f"export {exported - started:.1f} s, to_edge {time.process_time() - exported:.1f} s"
    print(f"{architecture.name}: {times}", file=sys.stderr, flush=True)
    return {"fall_backs": list(noted)}


def _save(results: dict[str, dict[str, Any]]) -> None:
    partial = RESULTS_FILE.with_suffix(f".{os.getpid()}")
    partial.write_text(yaml.safe_dump(results, sort_keys=False, width=110))
    partial.replace(RESULTS_FILE)


if __name__ == "__main__":
    sys.exit(main())
