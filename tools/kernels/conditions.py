"""Find out what the kernels of the official runtime ask of calls by running them: the registry of the target.

    python -m tools.kernels.conditions [--calls N] [--seed N] [--only NAME ...] [--verbose]

Calls are drawn by changing calls that torch takes: ranks, sizes, orders of dims, numbers, lists, options. Each runs
in a program of one instruction in a worker process. In further rounds every condition is attacked by calls that break
it: one that the runtime takes refutes it. Which dtypes kernels take comes from `tools.dtypes.measure`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml

from exirkit.ir import known_dtypes, operator_name
from exirkit.verifiers import KernelCondition, read_condition
from tools.kernels.calls import (
    Call,
    Drawing,
    Kernels,
    KernelUnderTest,
    Made,
    facts_of,
    kernels_under_test,
    made_of,
    order_of,
)
from tools.kernels.inference import Inferred, Tried, infer
from tools.kernels.samples import SAMPLES

REGISTRY = Path(__file__).resolve().parents[2] / "patterns" / "targets" / "registries" / "official_host.yaml"
_ROUNDS = 8
# Operators of torch that read beyond their tensors when sizes do not agree, and take the process with them.
_DEADLY = ("aten::_pdist_forward.out", "aten::_native_batch_norm_legit.no_stats_out")
# What a run does not show reliably: with tensors in other orders the kernel writes beyond them, and may come back.
_STATED = {"aten::topk.values": ["contiguous(self, values, indices)"]}
# Kernels are tried with the dtypes that most of them take. Of these it is known that they take no others, which is what
# a program with weights in float8 meets first; those that only move bytes, such as `slice_copy`, do.
_COMMON_DTYPES = {
    "aten::_to_copy.out": "common_dtypes(self, out)",
    "aten::cat.out": "common_dtypes(tensors)",
    "aten::full.out": "common_dtypes(out)",
    "aten::permute_copy.out": "common_dtypes(self)",
    "dim_order_ops::_to_dim_order_copy.out": "common_dtypes(self, out)",
}
# Starting a worker takes longer than a thousand calls.
_MOST_CRASHES = 100
_ATTACKS = 24
# Of the calls that attack a condition, so many are repeated with sizes of zero.
_EMPTIED = 6
_EXPLORED = 8
_NEIGHBOURS = 8
_VARYING = 0.1
"""Share of calls whose results are to be resized."""
_HEAD = """\
# Written by tools/kernels/conditions.py: what the official runtime registers, and what its kernels ask of calls,
# found by running them. `docs/reference/verifiers.md` explains the conditions.
"""


class Probe:
    """Runs calls of one kernel and remembers which of them it took.

    Args:
        kernels: Runs them.
        kernel: The kernel.
        seed: Of the draws.
    """

    def __init__(self, kernels: Kernels, kernel: KernelUnderTest, seed: int) -> None:
        self.kernels = kernels
        self.kernel = kernel
        self.drawing = Drawing(kernel, f"{seed} {kernel.name}")
        self.tried: list[Tried] = []
        self.calls: list[Call] = []
        self.messages: list[str] = []
        self.crashes = 0

    def start(self) -> bool:
        """Run the samples; return whether the kernel takes any."""
        self.drawing.start(SAMPLES.get(self.kernel.name, ()))
        for call in list(self.drawing.pool):
            self._run_plain(call)
        for call in list(self.drawing.pool):
            for other in self.drawing.ranks(call):
                if self._run_plain(other):
                    self.drawing.keep(other)
            for other in self.drawing.empties(call):
                self._run_plain(other)
        for call in list(self.drawing.pool):
            self._run_in_layouts(call)
            self._run_resized(call)
        return any(one.taken for one in self.tried)

    def _run_plain(self, call: Call) -> bool:
        results = self.drawing.results(call)
        return results is not None and self.run(call, results, plain=True)

    def _run_in_layouts(self, call: Call) -> None:
        for other, kinds in self.drawing.layouts(call):
            results = self.drawing.results(other)
            for kind in kinds if results is not None else ():
                places = [made_of(one, order_of(one.dim(), kind)) for one in results or ()]
                if self._run(other, places):
                    self.drawing.keep(other)

    def _run_resized(self, call: Call) -> None:
        results = self.drawing.results(call) or []
        if any(one.dim() for one in results):
            self._run(call, [made_of(one, order_of(one.dim(), "plain"), varies=True) for one in results])

    def run(self, call: Call, results: Sequence[torch.Tensor], *, plain: bool = False) -> bool:
        """Run a call and remember it; return whether the kernel took it."""
        return self._run(call, self._places(call, results, plain))

    def _run(self, call: Call, places: list[Made]) -> bool:
        if self.crashes >= _MOST_CRASHES:
            return False
        failure = self.kernels.failure(self.kernel, call, places)
        self.crashes += failure is not None and failure.startswith(("crash", "timeout"))
        self.tried.append(Tried(facts_of(self.kernel, call, places), failure is None))
        self.calls.append(call)
        self.messages.append(failure or "")
        return failure is None

    def _places(self, call: Call, results: Sequence[torch.Tensor], plain: bool = False) -> list[Made]:
        near = next((one.dims for one in call.values() if isinstance(one, Made)), ())
        if plain:
            return [made_of(one, order_of(one.dim(), "plain")) for one in results]
        varies = self.drawing.random.random() < _VARYING
        return [made_of(one, self.drawing.order(one.dim(), near), varies=varies) for one in results]

    def draw(self, calls: int) -> None:
        """Run so many calls."""
        for _ in range(calls):
            found = self.drawing.next()
            if found is not None and self.run(*found):
                self.drawing.keep(found[0])

    def explore(self, unexplained: Sequence[Tried]) -> None:
        """Run calls like those that are rejected and that no condition explains."""
        wanted = {id(one) for one in unexplained[:_EXPLORED]}
        for call in [call for one, call in zip(self.tried, self.calls, strict=True) if id(one) in wanted]:
            for _ in range(_NEIGHBOURS):
                found = self.drawing.next(call)
                if found is not None:
                    self.run(*found)

    def attack(self, conditions: Sequence[str], calls: int = _ATTACKS) -> None:
        """Run so many calls for each condition that break it and no other."""
        read = [read_condition(text) for text in conditions]
        wanted = dict.fromkeys(conditions, calls)
        for _ in range(12 * calls * len(read)):
            if not any(wanted.values()):
                return
            found = self.drawing.next()
            if found is None:
                return
            broken = self._attack(found, read, wanted)
            if broken is not None and wanted[broken] > calls - _EMPTIED:
                # Kernels that write nothing often check little.
                for other in self.drawing.empties(found[0]):
                    results = self.drawing.results(other)
                    if results is not None:
                        self._attack((other, results), read, {broken: 1})

    def _attack(
        self, found: tuple[Call, list[torch.Tensor]], read: Sequence[KernelCondition], wanted: dict[str, int]
    ) -> str | None:
        """Run a call that breaks one of the conditions that are wanted, and no other; return it."""
        places = self._places(*found)
        facts = facts_of(self.kernel, found[0], places)
        broken = [one.text for one in read if one.holds(facts) is False]
        if len(broken) != 1 or not wanted.get(broken[0]):
            return None
        wanted[broken[0]] -= 1
        self._run(found[0], places)
        return broken[0]


def conditions_of(probe: Probe, calls: int) -> Inferred | None:
    """Return the conditions of a kernel, or None if it takes no sample."""
    if not probe.start():
        return None
    probe.draw(calls)
    found = infer(probe.tried)
    for _ in range(_ROUNDS):
        before = found.conditions
        probe.explore(found.unexplained)
        probe.attack(found.conditions)
        found = infer(probe.tried)
        if found.conditions == before:
            break
    return found


def _trusted(kernel: KernelUnderTest, conditions: Sequence[str]) -> list[str]:
    """Return conditions without those on layouts where an argument says the layout of the result."""
    if all(one.name != "memory_format" for one in kernel.out._schema.arguments):
        return list(conditions)
    return [one for one in conditions if not one.startswith(("contiguous", "one_layout", "same_order"))]


def _dtypes(kernel: KernelUnderTest) -> list[str]:
    """Return the condition on dtypes, if the kernel takes others than torch."""
    name = operator_name(kernel.functional)
    entry, whole = known_dtypes(runtime=True).get(name), known_dtypes().get(name)
    if entry is None or whole is None or not entry.rules or entry.rules == whole.rules:
        return []
    if not set(entry.arguments) <= {one.name for one in kernel.out._schema.arguments}:
        return []
    rules = ", ".join(repr(f"{rule.partition('->')[0].strip()};{rule.partition(';')[2]}") for rule in entry.rules)
    function = "sampled_dtypes" if entry.is_sampled else "dtypes"
    return [f"{function}([{rules}], {', '.join(entry.arguments)})"]


def text_of(registry: Mapping[str, Sequence[str]]) -> str:
    """Return the text of the file."""
    lines = [f"{_HEAD}runtime: executorch {importlib.metadata.version('executorch')}", "operators:"]
    for name, conditions in sorted(registry.items()):
        lines.append(f"  {name}:{'' if conditions else ' []'}")
        lines += [f'    - "{one}"' for one in conditions]
    return "\n".join(lines) + "\n"


def read_registry(path: Path) -> dict[str, list[str]]:
    """Return the conditions of a file by operator."""
    found: dict[str, list[str]] = yaml.safe_load(path.read_text())["operators"]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the registry."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=REGISTRY)
    parser.add_argument("--calls", type=int, default=60, help="calls of each kernel in the first round")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=(), metavar="NAME", help="only kernels with this in their names")
    parser.add_argument("--verbose", action="store_true", help="show rejected calls that no condition explains")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _write(options)
    print(f"{time.perf_counter() - start:.0f} s, seed {options.seed}")
    return 0


def _write(options: argparse.Namespace) -> None:
    # A whole run owes nothing to the runs before it.
    known: dict[str, Any] = read_registry(options.output) if options.only and options.output.is_file() else {}
    with Kernels() as kernels:
        # Kernels of quantized operators end the process; what they ask is written by hand.
        names = [name for name in kernels.names if not name.startswith("quantized_decomposed::")]
        registry = {name: list(known.get(name) or _common(name)) for name in names}
        for kernel in kernels_under_test(names):
            # Where an argument says the order of the result, results in other orders say nothing about the kernel.
            if kernel.name.startswith("dim_order_ops::"):
                continue
            if kernel.name in _STATED:
                registry[kernel.name] = _STATED[kernel.name]
                continue
            if kernel.name in _DEADLY or (options.only and not any(part in kernel.name for part in options.only)):
                continue
            probe = Probe(kernels, kernel, options.seed)
            found = conditions_of(probe, options.calls)
            if found is None:
                print(f"{kernel.name}: takes no sample call", flush=True)
                continue
            registry[kernel.name] = [*_common(kernel.name), *_dtypes(kernel), *_trusted(kernel, found.conditions)]
            _report(kernel.name, probe, found, options.verbose)
            options.output.write_text(text_of(registry))


def _common(name: str) -> list[str]:
    return [_COMMON_DTYPES[name]] if name in _COMMON_DTYPES else []


def _report(name: str, probe: Probe, found: Inferred, verbose: bool) -> None:
    rejected = sum(not one.taken for one in probe.tried)
    print(
        f"{name}: {len(probe.tried)} calls, {rejected} rejected, {len(found.unexplained)} unexplained; "
        f"{'; '.join(found.conditions)}",
        flush=True,
    )
    if verbose:
        for one in found.unexplained[:6]:
            message = probe.messages[next(place for place, each in enumerate(probe.tried) if each is one)]
            print("   ", {key: str(value) for key, value in one.call.items()})
            print("       ", message[:400].replace("\n", " / "))


if __name__ == "__main__":
    sys.exit(main())
