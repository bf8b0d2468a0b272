"""`exirkit run`: a program file on the reference runtime."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from exirkit.emit import open_program
from exirkit.runtime_ref import Runtime

from .book_operators import register_operators
from .console import Steps
from .input_files import Fill, make_inputs, read_inputs
from .inspection import chosen_plans
from .output_files import write_whole
from .reports import OutputReport, RunReport

_FIRST = 4


@dataclass(frozen=True)
class RunOptions:
    """Choices of `exirkit run`.

    Attributes:
        method: Name of the method; by default `forward`, or the only one there is.
        inputs: Files with inputs; made up if there are none.
        fill: How inputs are made up.
        seed: Of random inputs.
        repeat: How often to run; a method with state goes on from the run before.
        save: File for the outputs of the last run, `.npz`.
        knowing: Whether every byte of planned memory is watched.
        in_place: Whether results may lie over arguments that die, where operators allow that.
        rules: Books that define operators of the file.
    """

    method: str | None = None
    inputs: Sequence[Path] = field(default_factory=tuple)
    fill: Fill = "random"
    seed: int = 0
    repeat: int = 1
    save: Path | None = None
    knowing: bool = False
    in_place: bool = False
    rules: Sequence[str] = ()


def run_file(path: Path, options: RunOptions, steps: Steps) -> RunReport:
    """Load a program file, run one method and report its outputs.

    Raises:
        ModelError: The file cannot be loaded or run, or a knowing run finds memory used wrongly.
        UsageError: EK640 to EK645, the inputs do not fit the method.
        CommandError: EK721 to EK723, inputs cannot be read or made up, or there is no such method.
    """
    register_operators(options.rules)
    steps(f"loading {path}")
    with open_program(path) as file:
        names = [plan.name for plan in file.program.execution_plan]
        name = options.method or (names[0] if len(names) == 1 else "forward")
        plan = chosen_plans(file.program, name)[0]
        method = Runtime.get().load_program(file, knowing=options.knowing, in_place=options.in_place).load_method(name)
        if options.inputs:
            inputs = read_inputs(options.inputs)
        else:
            inputs = make_inputs(plan, options.fill, torch.Generator().manual_seed(options.seed))
        steps(f"running {name}")
        seconds: list[float] = []
        outputs: list[Any] = []
        for _ in range(options.repeat):
            start = time.perf_counter()
            outputs = method.execute(inputs)
            seconds.append(time.perf_counter() - start)
    if options.save is not None:
        save_outputs(options.save, outputs)
    made_up = not options.inputs
    return RunReport(
        file=os.fspath(path),
        method=name,
        inputs=[options.fill] if made_up and inputs else [os.fspath(each) for each in options.inputs],
        seed=options.seed if made_up and inputs and options.fill == "random" else None,
        outputs=[_output(index, value) for index, value in enumerate(outputs)],
        seconds=seconds,
        saved=os.fspath(options.save) if options.save is not None else None,
    )


def save_outputs(path: Path, outputs: Sequence[Any]) -> None:
    """Write outputs as arrays `output_0`, `output_1`, ... of a `.npz` file; None is left out.

    Numpy has no narrow floats: bfloat16 and float8 are widened to float32, which holds them exactly.
    """
    arrays = {f"output_{index}": _array(value) for index, value in enumerate(outputs) if value is not None}
    write_whole(path, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def _array(value: Any) -> np.ndarray[Any, Any]:
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    try:
        return value.numpy()
    except TypeError:
        return value.to(torch.float32).numpy()


def _output(index: int, value: Any) -> OutputReport:
    if isinstance(value, torch.Tensor):
        first = value.flatten()[:_FIRST]
        numbers = first.tolist() if not first.dtype.is_complex else torch.view_as_real(first).flatten().tolist()
        dtype = str(value.dtype).removeprefix("torch.")
        return OutputReport(index=index, kind="tensor", dtype=dtype, shape=list(value.shape), first=numbers)
    if value is None:
        return OutputReport(index=index, kind="none")
    kind = type(value).__name__
    return OutputReport(index=index, kind=kind, first=[value] if isinstance(value, int | float) else [])
