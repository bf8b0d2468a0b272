"""Inputs of a run: from files, or made up from what the method declares."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from exirkit.emit import Bool, Double, ExecutionPlan, Int, Null, String, Tensor

from .errors import WRONG_USAGE, CommandError
from .program_file import dtype_text

Fill = Literal["random", "ones"]

# Integers may be indices into tables that are not known here; every table worth looking up has two rows.
_RANDOM_INTEGERS = 2

# More random numbers take too long, and a file must not be able to fill the memory.
_LARGEST_NBYTES = 1 << 32


def read_inputs(paths: Sequence[Path]) -> list[Any]:
    """Return the inputs that files hold, in order.

    A `.npy` file holds one tensor, a `.npz` file one for each entry in its order, a `.pt` file one value or a list or
    tuple of values. No file can make code run.

    Raises:
        CommandError: EK721, a file does not hold inputs.
    """
    return [value for path in paths for value in _read(path)]


def make_inputs(plan: ExecutionPlan, fill: Fill, generator: torch.Generator) -> list[Any]:
    """Return inputs of the declared dtypes and shapes, at the upper bound where a shape is dynamic.

    Numbers, texts and None are those that the program was made for. Random floats are normal with mean 0 and
    deviation 1; random integers are 0 or 1, so that they can be indices.

    Raises:
        CommandError: EK722, an input cannot be made up.
    """
    return [_make(plan, position, index, fill, generator) for position, index in enumerate(plan.inputs)]


def _read(path: Path) -> list[Any]:
    readers = {".npy": _read_npy, ".npz": _read_npz, ".pt": _read_pt}
    reader = readers.get(path.suffix)
    if reader is None:
        raise CommandError(
            code="EK721", message="inputs are read from .npy, .npz and .pt files", file=str(path), exit_code=WRONG_USAGE
        )
    try:
        return reader(path)
    except OSError:
        raise
    except Exception as error:
        # Three libraries, each with exceptions of its own for a file that is damaged or would need pickle.
        text = str(error).strip().splitlines()
        what = text[0] if text else type(error).__name__
        raise CommandError(code="EK721", message=f"this file does not hold inputs: {what}", file=str(path)) from error


def _read_npy(path: Path) -> list[Any]:
    with path.open("rb") as file:
        return [_tensor(np.lib.format.read_array(file, allow_pickle=False))]


def _read_npz(path: Path) -> list[Any]:
    with path.open("rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
        return [_tensor(archive[name]) for name in archive.files]


def _read_pt(path: Path) -> list[Any]:
    loaded = torch.load(path, map_location="cpu", weights_only=True)
    return list(loaded) if isinstance(loaded, list | tuple) else [loaded]


def _tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    # Torch keeps the machine's byte order and positive strides only.
    native = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).reshape(array.shape)
    return torch.from_numpy(native.copy())


def _make(plan: ExecutionPlan, position: int, index: int, fill: Fill, generator: torch.Generator) -> Any:
    value = plan.values[index].val
    if isinstance(value, Tensor):
        return _make_tensor(value, position, fill, generator)
    if isinstance(value, Int | Bool | Double | String):
        return next(iter(value.model_dump().values()))
    if isinstance(value, Null):
        return None
    raise CommandError(
        code="EK722", message=f"input {position} is a {type(value).__name__}", hint="give the inputs with --input"
    )


def _make_tensor(declared: Tensor, position: int, fill: Fill, generator: torch.Generator) -> torch.Tensor:
    dtype, sizes = declared.scalar_type.dtype, declared.sizes
    if declared.nbytes > _LARGEST_NBYTES:
        what = f"{dtype_text(declared)} {list(sizes)} has {declared.nbytes:,} bytes"
        raise CommandError(
            code="EK722", message=f"input {position}, {what}, is too large", hint="give the inputs with --input"
        )
    if fill == "ones":
        return torch.ones(sizes, dtype=dtype)
    if dtype.is_floating_point:
        # Narrow floats have no generator of their own.
        return torch.randn(sizes, generator=generator).to(dtype)
    return torch.randint(0, _RANDOM_INTEGERS, sizes, generator=generator).to(dtype)
