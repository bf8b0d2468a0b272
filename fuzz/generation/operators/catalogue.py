"""The operators that programs are made of: `generate` in the entries of the operator catalogue, or files of users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
import yaml

from exirkit.fuzz.generation.method.values import DTYPES, FLOATS, INTEGERS
from exirkit.ir import Diagnostic, Location, UsageError, generator_entries

_SETS: Mapping[str, tuple[torch.dtype, ...]] = {
    "float": FLOATS,
    "wide": (torch.float32, torch.float64),
    "single": (torch.float32,),
    "integer": INTEGERS,
    "index": (torch.int64, torch.int32),
    "long": (torch.int64,),
    "signed": (*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8),
    "number": (*FLOATS, *INTEGERS),
    "exact": (*INTEGERS, torch.bool),
    "bool": (torch.bool,),
    "all": DTYPES,
}

_FIELDS = {"op", "dtypes", "weight", "portable", "without", "unsupported"}


@dataclass(frozen=True, eq=False)
class Operator:
    """One operator of the catalogue.

    Attributes:
        name: `aten.add.Tensor`.
        family: What proposes calls of it.
        dtypes: Of its main operand.
        options: All that its family wants to know of it.
        weight: How often it is proposed, against 1 for the common ones.
        is_portable: Whether the official runtime has a portable kernel for what it is lowered to.
        is_unsupported: Whether our own chain rejects programs with it.
    """

    name: str
    family: str
    dtypes: tuple[torch.dtype, ...]
    options: Mapping[str, Any]
    weight: float = 1.0
    is_portable: bool = True
    is_unsupported: bool = False

    def option(self, name: str, default: Any = None) -> Any:
        """Return one of the options."""
        return self.options.get(name, default)


@cache
def shipped_operators() -> tuple[Operator, ...]:
    """Return the operators that the operator catalogue lists for generated programs, in its order."""
    place = Path("the operator catalogue")
    return tuple(_operator(place, family, {"op": name, **row}) for family, name, row in generator_entries())


def read_operators(path: Path) -> tuple[Operator, ...]:
    """Read a file of operators.

    Args:
        path: A mapping from families to lists of operators; each with `op`, `dtypes` and options of the family.

    Raises:
        UsageError: EK820: it is not such a file.
    """
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise _wrong(path, str(error).splitlines()[0]) from error
    if not isinstance(content, dict):
        raise _wrong(path, "it is not a mapping from families to operators")
    return tuple(_operator(path, family, row) for family, rows in content.items() for row in _rows(path, family, rows))


def _rows(path: Path, family: str, rows: Any) -> Iterable[Any]:
    if not isinstance(rows, list):
        raise _wrong(path, f"family {family!r} is not a list of operators")
    return rows


def _operator(path: Path, family: str, row: Any) -> Operator:
    if not isinstance(row, dict) or not isinstance(row.get("op"), str):
        raise _wrong(path, f"family {family!r} has an entry without `op`")
    name = row["op"]
    options = {key: value for key, value in row.items() if key not in _FIELDS}
    weight = row.get("weight", 1.0)
    if not isinstance(weight, int | float) or weight < 0:
        raise _wrong(path, f"the weight of {name} is not a number of at least 0")
    dtypes = _dtypes(path, name, row.get("dtypes", "float"))
    left_out = _dtypes(path, name, row["without"]) if "without" in row else ()
    kept = tuple(dtype for dtype in dtypes if dtype not in left_out)
    flags = bool(row.get("portable", True)), bool(row.get("unsupported", False))
    return Operator(name, str(family), kept, options, float(weight), *flags)


def _dtypes(path: Path, name: str, written: Any) -> tuple[torch.dtype, ...]:
    """Return the dtypes of words such as `float bool`; sets and single dtypes may stand side by side."""
    found: list[torch.dtype] = []
    for word in str(written).split():
        known = _SETS.get(word)
        if known is None:
            dtype = getattr(torch, word, None)
            if dtype not in DTYPES:
                raise _wrong(path, f"{name} has dtypes {word!r}, which are not known")
            known = (dtype,)
        found += [dtype for dtype in known if dtype not in found]
    return tuple(found)


def _wrong(path: Path, message: str) -> UsageError:
    return UsageError(
        Diagnostic(
            code="EK820",
            message=f"cannot read a catalogue of operators: {message}",
            location=Location(file=str(path)),
            expected="a mapping from families to lists of operators, each with `op` and `dtypes`",
        )
    )
