"""Find out which dtypes operators take and return, by running them, and write the catalogue of the Edge verifier.

    python -m tools.dtypes.measure [--runtime] [--check] [--only NAME ...]

Every operator is called on real tensors with every combination of dtypes of its arguments (with more than three such
arguments: all equal, and one at a time other). What raises is not legal. Numbers are given as integers and as floats.
With `--runtime` the kernels of the official runtime are called with what torch takes, in programs of one call; without,
what the file says of them stays as it is.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from torch._ops import OpOverload

from exirkit.ir import ALL_DTYPES, AS_TORCH, OperatorDtypes, dtype_arguments, split_arguments, without_machine_libraries
from tools.dtypes.rules import rules_for
from tools.dtypes.samples import Tensor, operators, sample_call

CATALOGUE = Path(__file__).resolve().parents[2] / "ir" / "operators" / "measured" / "dtypes.yaml"
_MOST_FREE = 3
_MOST_FOR_RUNTIME = 130
_HEAD = """\
# Which dtypes operators take and return. Made by `python -m tools.dtypes.measure`, not by hand; how to read it:
# ir/operators/catalogue.py. `torch`: kernels of torch; `runtime`: kernels of the official runtime, for what
# torch takes; an empty list there means that it has none, and no entry that it was not asked.
# `sampled`: not all combinations were tried.
"""

Combination = tuple[str, ...]
Entry = dict[str, Any]


def combinations(op: Any) -> tuple[list[Combination], bool]:
    """Return the dtypes to try for the arguments of an operator, and whether these are only some of all."""
    choices = []
    for name in dtype_arguments(op):
        kind = str(next(one.real_type for one in op._schema.arguments if one.name == name))
        is_optional = kind.startswith("Optional")
        choices.append((*ALL_DTYPES, "none") if is_optional else ALL_DTYPES)
    if len(choices) <= _MOST_FREE:
        return list(itertools.product(*choices)), False
    found: dict[Combination, None] = {}
    for absent in itertools.product(*(((False, True) if "none" in one else (False,)) for one in choices)):
        for base in ALL_DTYPES:
            whole = tuple("none" if gone else base for gone in absent)
            found[whole] = None
            for place, gone in enumerate(absent):
                if not gone:
                    for other in ALL_DTYPES:
                        found[(*whole[:place], other, *whole[place + 1 :])] = None
    return list(found), True


def outcomes(op: Any) -> Iterator[Combination]:
    """Yield what is legal: dtypes of the arguments followed by dtypes of the results, each once."""
    seen: set[Combination] = set()
    for combination in combinations(op)[0]:
        for given in calls(op, combination):
            returned = _run(op, given)
            whole = None if returned is None else (*combination, *returned)
            if whole is not None and whole not in seen:
                seen.add(whole)
                yield whole


def calls(op: Any, combination: Combination) -> Iterator[dict[str, Any]]:
    """Yield the arguments of calls with these dtypes, by name: with integers and, where it takes numbers, floats."""
    call = sample_call(op)
    dtypes = dict(zip(dtype_arguments(op), combination, strict=True))
    made = {name: None if one == "none" else _made(call.get(name), getattr(torch, one)) for name, one in dtypes.items()}
    numbers = [
        one.name for one in op._schema.arguments if "number" in str(one.real_type) and call.get(one.name) is not None
    ]
    for kind in (int, float) if numbers else (int,):
        yield {**call, **{name: kind(call[name]) for name in numbers}, **made}


def kernel_outcomes(kernels: Any, op: Any, legal: Sequence[Combination]) -> Iterator[Combination]:
    """Yield those of the combinations that torch takes which the kernel of the runtime takes as well."""
    width = len(dtype_arguments(op))
    for each in legal:
        results = _number_of_results(op, each, width)
        # An integer as a number and a float lead to different results; a kernel may take the one and not the other.
        made = [one for one in calls(op, each[:width]) if (*each[:width], *(_run(op, one) or ())) == each]
        if any(kernels.takes(op, given, results) for given in made):
            yield each


def _number_of_results(op: Any, each: Combination, width: int) -> int:
    if str(op._schema.returns[0].type) == "Tensor":
        return len(each) - width
    return len(op(**next(calls(op, each[:width]))))


def _run(op: Any, call: Mapping[str, Any]) -> Combination | None:
    """Return the dtypes of the results, or None if the operator rejects."""
    try:
        with without_machine_libraries():
            result = _called(op, call)
    except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError):
        return None
    results = result if isinstance(result, list | tuple) else (result,)
    several = len(op._schema.returns) > 1
    return tuple(str(one.dtype).removeprefix("torch.") for one in (results if several else results[:1]))


def _called(op: Any, call: Mapping[str, Any]) -> Any:
    # By position, because `self` is the name of an argument.
    args, kwargs = split_arguments(op, call)
    return op(*args, **kwargs)


def _made(sample: Any, dtype: torch.dtype) -> Any:
    if isinstance(sample, list):
        return [_made(one, dtype) for one in sample]
    if isinstance(sample, Tensor):
        return torch.full(sample.sizes, sample.fill, dtype=dtype)
    # The argument is a dtype itself.
    return dtype


def torch_entry(op: Any) -> Entry:
    """Return what torch takes, as an entry of the catalogue."""
    entry: Entry = {"arguments": list(dtype_arguments(op))}
    if combinations(op)[1]:
        entry["sampled"] = True
    entry["torch"] = rules_for(list(outcomes(op)), len(entry["arguments"]))
    return entry


def runtime_columns(kernels: Any, op: Any, entry: Entry) -> Entry:
    """Return what the kernel of the runtime takes, as additions to an entry."""
    if not isinstance(op, OpOverload):
        return {}
    if not kernels.has(op):
        return {"runtime": []}
    legal = [
        (*given, *one) for given, many in OperatorDtypes((), tuple(entry["torch"])).results.items() for one in many
    ]
    narrow = OperatorDtypes((), (), is_sampled=True)
    width = len(entry["arguments"])
    tried = [each for each in sorted(legal) if len(legal) <= _MOST_FOR_RUNTIME or narrow.is_known(each[:width])]
    found = {"runtime-sampled": True} if len(tried) < len(legal) else {}
    taken = list(kernel_outcomes(kernels, op, tried))
    return {**found, "runtime": AS_TORCH if len(taken) == len(legal) else rules_for(taken, width)}


def catalogue(known: Mapping[str, Entry], kernels: Any = None, only: Sequence[str] = ()) -> dict[str, Entry]:
    """Return all entries.

    Args:
        known: Entries as they are, from which columns are taken that are not made again.
        kernels: Kernels of the runtime, if these are to be tried.
        only: Parts of names of operators to try; all when empty.
    """
    made: dict[str, Entry] = {}
    for name, op in operators().items():
        if only and not any(part in name for part in only):
            made.update({name: known[name]} if name in known else {})
            continue
        entry = torch_entry(op)
        if not entry["torch"]:
            print(f"{name}: no dtypes at all; its sample call is wrong", file=sys.stderr)
            continue
        kept = {key: value for key, value in known.get(name, {}).items() if key.startswith("runtime")}
        made[name] = {**entry, **(kept if kernels is None else runtime_columns(kernels, op, entry))}
    return made


def text_of(entries: Mapping[str, Entry]) -> str:
    """Return the text of the file."""
    lines = [f"{_HEAD}torch: {torch.__version__.partition('+')[0]}", "operators:"]
    for name, entry in entries.items():
        lines.append(f"  {name}:")
        for key, value in entry.items():
            if key == "arguments":
                lines.append(f"    arguments: [{', '.join(value)}]")
            elif value is True or value == AS_TORCH:
                lines.append(f"    {key}: {str(value).lower()}")
            else:
                lines.append(f"    {key}:{'' if value else ' []'}")
                lines += [f'    - "{rule}"' for rule in value]
    return "\n".join(lines) + "\n"


def read_entries(path: Path) -> dict[str, Entry]:
    """Return the entries of a file; none if there is no file."""
    found: dict[str, Entry] = yaml.safe_load(path.read_text())["operators"] if path.is_file() else {}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=CATALOGUE)
    parser.add_argument("--runtime", action="store_true", help="try the kernels of the official runtime, too")
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    parser.add_argument("--only", nargs="*", default=(), metavar="NAME", help="only operators with this in their names")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    start = time.perf_counter()
    known = read_entries(options.output)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        if options.runtime:
            from tools.dtypes.kernels import Kernels

            with Kernels() as kernels:
                entries = catalogue(known, kernels, options.only)
        else:
            entries = catalogue(known, None, options.only)
    text = text_of(entries)
    print(f"{len(entries)} operators in {time.perf_counter() - start:.0f} s")
    if options.check:
        return int(options.output.read_text() != text)
    options.output.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
