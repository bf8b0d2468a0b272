"""`exirkit demo`: lower a real model, run it, compare with eager PyTorch."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from exirkit.cli.console import Steps, print_json, print_line, print_table
from exirkit.cli.errors import INTERNAL_ERROR, CommandError
from exirkit.cli.files import check_writable
from exirkit.cli.lowering import LowerReport, lower_exported, print_lowered
from exirkit.cli.model import export_methods
from exirkit.cli.options import Json
from exirkit.cli.root import app

# Float32 sums, taken in another order and carried through 53 layers.
TOLERANCE = 1e-4


@dataclass(frozen=True)
class DemoReport:
    """The document of `exirkit demo`.

    Attributes:
        parameters: Number of weights of the model.
        kept: Whether the program file is still there.
        max_abs_output: Largest output of eager PyTorch, to compare the error with.
        max_abs_error: Largest difference between the run and eager PyTorch.
        run_seconds: Wall time of one run on the reference runtime.
    """

    model: str
    parameters: int
    lowering: LowerReport
    kept: bool
    max_abs_output: float
    max_abs_error: float
    tolerance: float
    run_seconds: float
    ok: bool = True


@app.command()
def demo(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="MODEL.pte", help="Keep the program file.")
    ] = None,
    json: Json = False,
) -> None:
    """Lower MobileNetV2, run it, and compare with eager PyTorch."""
    check_writable(output, ".pte")
    with Steps() as steps:
        with steps.phase("load", "loading torch"):
            from exirkit.cli import mobilenet_v2  # noqa: F401 - its import is the phase
        report = run_demo(output, steps)
    if json:
        print_json(report)
    else:
        print_demo(report)


def run_demo(output: Path | None, steps: Steps) -> DemoReport:
    """Lower the demo model, run it on the reference runtime and compare.

    Args:
        output: Where to leave the program file; by default it is removed again.
        steps: Progress.

    Raises:
        CommandError: EK732, the results differ.
    """
    from exirkit.cli import mobilenet_v2
    from exirkit.runtime_ref import Runtime

    with tempfile.TemporaryDirectory(prefix="exirkit-") as scratch:
        path = output or Path(scratch, "mobilenet_v2.pte")
        with steps.phase("load", "building MobileNetV2"):
            model, inputs = mobilenet_v2.make_demo()
        with steps.phase("export"):
            exported = export_methods((model, inputs), strict=False, say=steps)
        lowering = lower_exported("MobileNetV2", exported, path, steps)
        steps("running on the reference runtime")
        method = Runtime.get().load_program(path).load_method("forward")
        (found,) = method.execute(inputs)
        # The first run also pays for what torch sets up once.
        start = time.perf_counter()
        method.execute(inputs)
        seconds = time.perf_counter() - start
        steps("running on eager PyTorch")
        expected = model(*inputs)
        error = (found - expected).abs().max().item()
        if not error <= TOLERANCE:
            raise CommandError(
                code="EK732",
                message=f"the result differs from eager PyTorch by {error:.2e}, more than {TOLERANCE:.0e}",
                hint="please report this with the versions of torch and exirkit, and the kind of processor",
                exit_code=INTERNAL_ERROR,
            )
    return DemoReport(
        model="MobileNetV2",
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        lowering=lowering,
        kept=output is not None,
        max_abs_output=expected.abs().max().item(),
        max_abs_error=error,
        tolerance=TOLERANCE,
        run_seconds=seconds,
    )


def print_demo(report: DemoReport) -> None:
    """Print the lowering, the operators, and how close the result is."""
    from exirkit.cli.program_file import arenas_text, print_operators

    print_lowered(report.lowering, report.lowering.file if report.kept else "a program file, removed again")
    (method,) = report.lowering.methods
    print_operators(method.operators)
    rows = [
        ("model", f"{report.model}, {report.parameters:,} parameters"),
        ("arena", f"{arenas_text(method.arenas)} bytes"),
        ("one run on the reference runtime", f"{report.run_seconds:.3f} s"),
        ("largest output of eager PyTorch", f"{report.max_abs_output:.3g}"),
        ("largest difference from it", f"{report.max_abs_error:.1e} (at most {report.tolerance:.0e})"),
    ]
    print_line()
    print_table(["result", ""], rows)
