"""Count how often lowering has torch decompose a whole program again, and say why.

Usage: python -m benchmarks.architectures.fall_backs [NAME ...] [--library NAME] [--most N]

Each architecture is exported and lowered to Edge. NAME is a part of `library/name`.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from importlib.util import find_spec

from benchmarks.architectures.building import Architecture, read_library
from exirkit import to_edge
from exirkit.passes import noted_fall_backs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--library", choices=("transformers", "timm", "torchvision"))
    parser.add_argument("--most", type=int, default=10**6, help="try so many, spread over the library")
    options = parser.parse_args()
    chosen = {
        name: one
        for name, one in read_library().items()
        if (not options.names or any(part in name for part in options.names))
        and options.library in (None, one.library)
        and find_spec(one.library) is not None
    }
    step = max(1, len(chosen) // options.most)
    counted = {name: fall_backs(one) for name, one in list(chosen.items())[::step]}
    tried = {name: why for name, why in counted.items() if why is not None}
    falling = {name: why for name, why in tried.items() if why}
    print(f"{len(tried)} architectures were lowered; torch decomposed {len(falling)} of them as a whole")
    for name, why in falling.items():
        print(f"{name}: {'; '.join(why)}")
    return int(bool(falling))


def fall_backs(architecture: Architecture) -> list[str] | None:
    """Return why torch decomposed an architecture as a whole, or None where it is not exported or not lowered."""
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program, _, _ = architecture.export()
            exported = time.process_time()
            with noted_fall_backs() as noted:
                to_edge(program)
        # What does not get this far is the matter of the sweep.
        except Exception as error:
            print(f"{architecture.name}: {type(error).__name__}", file=sys.stderr, flush=True)
            return None
    times = f"export {exported - started:.1f} s, to_edge {time.process_time() - exported:.1f} s"
    print(f"{architecture.name}: {times} {list(noted)}", file=sys.stderr, flush=True)
    return list(noted)


if __name__ == "__main__":
    sys.exit(main())
