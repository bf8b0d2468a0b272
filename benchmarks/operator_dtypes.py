"""Find out which dtypes operators take and return, by running them, and write the catalogue of the Edge verifier.

    python -m benchmarks.operator_dtypes [--output verifiers/operator_dtypes.yaml] [--check]

Every operator is called on real tensors with every combination of dtypes of its arguments (with more than three such
arguments: all equal, and one at a time other). What raises is not legal. Numbers are given as integers and as floats.
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

from benchmarks.dtype_rules import rules_for
from benchmarks.dtype_samples import Tensor, operators, sample_call
from exirkit.verifiers import ALL_DTYPES, argument_names

CATALOGUE = Path(__file__).resolve().parents[1] / "verifiers" / "operator_dtypes.yaml"
_MOST_FREE = 3

Combination = tuple[str, ...]


def combinations(op: Any) -> tuple[list[Combination], bool]:
    """Return the dtypes to try for the arguments of an operator, and whether these are only some of all."""
    choices = []
    for name in argument_names(op):
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
    call = sample_call(op)
    names = argument_names(op)
    numbers = [one.name for one in op._schema.arguments if "number" in str(one.real_type) and one.name in call]
    seen: set[Combination] = set()
    for combination in combinations(op)[0]:
        for kind in (int, float) if numbers else (int,):
            given = {**call, **{name: kind(call[name]) for name in numbers if call[name] is not None}}
            returned = _run(op, given, dict(zip(names, combination, strict=True)))
            whole = None if returned is None else (*combination, *returned)
            if whole is not None and whole not in seen:
                seen.add(whole)
                yield whole


def _run(op: Any, call: Mapping[str, Any], dtypes: Mapping[str, str]) -> Combination | None:
    """Return the dtypes of the results, or None if the operator refuses."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for place, argument in enumerate(op._schema.arguments):
        name = argument.name
        if name in dtypes:
            value = None if dtypes[name] == "none" else _made(call.get(name), getattr(torch, dtypes[name]))
        elif name in call:
            value = call[name]
        else:
            continue
        if argument.kwarg_only or len(args) < place:
            kwargs[name] = value
        else:
            args.append(value)
    try:
        result = op(*args, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError):
        return None
    results = result if isinstance(result, list | tuple) else (result,)
    several = len(op._schema.returns) > 1
    return tuple(str(one.dtype).removeprefix("torch.") for one in (results if several else results[:1]))


def _made(sample: Any, dtype: torch.dtype) -> Any:
    if isinstance(sample, list):
        return [_made(one, dtype) for one in sample]
    if isinstance(sample, Tensor):
        return torch.full(sample.sizes, sample.fill, dtype=dtype)
    # The argument is a dtype itself.
    return dtype


def catalogue() -> str:
    """Return the text of the file."""
    lines = [
        "# Which dtypes operators take and return. Made by `python -m benchmarks.operator_dtypes`, not by hand; how to",
        "# read it: verifiers/dtype_catalogue.py. `sampled`: not all combinations were tried.",
        f"torch: {torch.__version__.partition('+')[0]}",
        "operators:",
    ]
    for name, op in operators().items():
        rules = rules_for(list(outcomes(op)), len(argument_names(op)))
        if not rules:
            print(f"{name}: no dtypes at all; its sample call is wrong", file=sys.stderr)
            continue
        lines.append(f"  {name}:")
        lines.append(f"    arguments: [{', '.join(argument_names(op))}]")
        if combinations(op)[1]:
            lines.append("    sampled: true")
        lines.append("    torch:")
        lines += [f'    - "{rule}"' for rule in rules]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=CATALOGUE)
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    start = time.perf_counter()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        text = catalogue()
    print(f"{text.count('arguments:')} operators in {time.perf_counter() - start:.0f} s")
    if options.check:
        return int(options.output.read_text() != text)
    options.output.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
