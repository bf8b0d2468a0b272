"""Damage ten real files in every field and at random, and count what loading them ends with.

Usage: python -m tests.runtime_ref.damage_campaign [--mutations N] [--seed N] [--no-fields] [CASE ...]

Fields: each aligned word of header and flatbuffer in turn becomes each of a few words that readers trust too easily; of
large files every n-th.
Mutations: N damaged copies, shared between the files. The exit code is 1 unless every load ends with a program or with
one of the two documented errors, in time, and without memory that grows.
"""

from __future__ import annotations

import argparse
import gc
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import pack_into, unpack_from
from types import FrameType

from rich.console import Console
from rich.progress import Progress
from tests.models.zoo import CASES
from tests.runtime_ref.mutations import mutations

import exirkit
from exirkit import ProgramFormatError, ProgramVerifyError
from exirkit.cli.errors import CommandError
from exirkit.emit import read_program
from exirkit.runtime_ref import Limits, Runtime

FILES = (
    "simple_conv", "encode_decode", "multi_output", "mobilenet_v3", "gpt2", "lstm", "top_k", "kv_cache",
    "dynamic_sequence", "small_integers",
)  # fmt: skip
# The words that a field is replaced by: zero, one, small, the largest of each kind, and its neighbours.
WORDS = (0, 1, 0x40, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
# Of processor time.
PATIENCE_S = 10.0
GROWTH_BYTES = 64 << 20


def load_program(data: bytearray) -> None:
    """Load a program and every method of it."""
    program = Runtime.get().load_program(data, limits=Limits(jumps_back=1000))
    for name in sorted(program.method_names):
        program.load_method(name)


@dataclass
class Tally:
    """What the loads of damaged copies of one file ended with.

    Attributes:
        read: Reads a file completely.
        documented: The errors that it may raise.
        codes: The codes that these may have; empty for all.
        outcomes: `ok` or the code of the error, and how often.
        undocumented: What else was raised, by its text, and how often.
        slowest_s: The longest load, in seconds.
        grown_bytes: How much larger the process is after the campaign than after its first tenth.
    """

    read: Callable[[bytearray], object] = load_program
    documented: tuple[type[Exception], ...] = (ProgramFormatError, ProgramVerifyError)
    codes: frozenset[str] = frozenset()
    outcomes: Counter[str] = field(default_factory=Counter)
    undocumented: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    grown_bytes: int = 0

    @property
    def loads(self) -> int:
        return self.outcomes.total() + self.undocumented.total()

    @property
    def is_clean(self) -> bool:
        return not self.undocumented and self.slowest_s < PATIENCE_S and self.grown_bytes < GROWTH_BYTES

    def add(self, other: Tally) -> None:
        """Add what other loads of copies of the file ended with."""
        self.outcomes += other.outcomes
        self.undocumented += other.undocumented
        self.slowest_s = max(self.slowest_s, other.slowest_s)
        self.grown_bytes = max(self.grown_bytes, other.grown_bytes)

    def load(self, data: bytearray) -> None:
        """Load a file, and note the end."""
        started = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, PATIENCE_S)
        try:
            self.read(data)
            self.outcomes["ok"] += 1
        except Exception as error:  # The campaign is looking for what is not documented.
            code = error.finding.code if isinstance(error, CommandError) else getattr(error, "code", "")
            if isinstance(error, self.documented) and (not self.codes or code in self.codes):
                self.outcomes[code] += 1
            else:
                self.undocumented[f"{type(error).__name__}: {error}"[:200]] += 1
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        self.slowest_s = max(self.slowest_s, time.process_time() - started)


def real_file(name: str) -> tuple[bytes, int]:
    """Lower a case of the zoo; return the file, and how many of its bytes are header and flatbuffer."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = CASES[name].make().export()
        programs = exported["forward"] if set(exported) == {"forward"} else exported
        data = bytes(exirkit.to_edge(programs).to_executorch().buffer)
    header = read_program(data).header
    return data, header.program_size if header else len(data)


def damaged_fields(data: bytes, header_nbytes: int, *, every: int = 1) -> Iterator[bytearray]:
    """Yield copies with one aligned word replaced, or moved by one; of the words only each `every`-th."""
    for at in range(0, header_nbytes - 3, 4 * every):
        (old,) = unpack_from("<I", data, at)
        for new in {*WORDS, (old + 1) & 0xFFFFFFFF, (old - 1) & 0xFFFFFFFF} - {old}:
            damaged = bytearray(data)
            pack_into("<I", damaged, at, new)
            yield damaged


def campaign(copies: Iterator[bytearray], expected: int, tally: Tally | None = None) -> Tally:
    """Load all of `copies`, of which there are about `expected`; `tally` says how, and is returned."""
    tally, base = tally or Tally(), 0
    previous = signal.signal(signal.SIGPROF, _too_long)
    try:
        for count, damaged in enumerate(copies):
            tally.load(damaged)
            if count == expected // 10:
                base = resident_bytes()
    finally:
        signal.signal(signal.SIGPROF, previous)
    tally.grown_bytes = max(0, resident_bytes() - base) if base else 0
    return tally


def resident_bytes() -> int:
    """Return how much memory the process holds now, in bytes (Linux)."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def _too_long(_signal: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"a load took longer than {PATIENCE_S} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="CASE", help="cases of the zoo; ten of them when absent")
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--fields", type=int, default=40_000, help="most loads per file; of larger ones every n-th field"
    )
    parser.add_argument("--no-fields", action="store_true", help="leave out the campaign over every field")
    options = parser.parse_args()
    files, out = options.files or FILES, Console()
    totals: Counter[str] = Counter()
    is_clean = True
    out.print(f"seed {options.seed}")
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("files", total=len(files))
        for number, name in enumerate(files):
            progress.update(task, description=name)
            data, header_nbytes = real_file(name)
            share = options.mutations // len(files)
            kinds = {"mutations": mutations(data, share, options.seed + number, header_nbytes=header_nbytes)}
            if not options.no_fields:
                every = -(-header_nbytes * 2 // options.fields)
                kinds["fields"] = damaged_fields(data, header_nbytes, every=every)
            for kind, copies in kinds.items():
                started = time.monotonic()
                tally = campaign(copies, share if kind == "mutations" else header_nbytes)
                rate = tally.loads / (time.monotonic() - started)
                ok = tally.outcomes["ok"]
                out.print(
                    f"{name:16} {kind:9} {tally.loads:6} loads, {ok:6} load, slowest {tally.slowest_s * 1e3:5.1f} ms,"
                    f" memory +{tally.grown_bytes >> 20} MiB, {rate:5.0f}/s",
                    highlight=False,
                )
                for text, count in tally.undocumented.most_common(5):
                    out.print(f"    {count} times {text}", style="red", markup=False)
                totals += tally.outcomes
                totals["loads"] += tally.loads
                totals["undocumented"] += tally.undocumented.total()
                is_clean &= tally.is_clean
            progress.advance(task)
    codes = ", ".join(f"{code} {count}" for code, count in sorted(totals.items()) if code.startswith("EK"))
    out.print(f"{totals['loads']} loads: {totals['ok']} programs, {totals['undocumented']} undocumented; {codes}")
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
