"""`exirkit demo`: lower a real model, run it, compare with eager PyTorch."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from exirkit.runtime_ref import Runtime

from .console import Steps
from .demo_model import make_demo
from .exporting import export_methods
from .failures import INTERNAL_ERROR, CommandError
from .lowering import LowerOptions, lower_exported
from .reports import DemoReport

# Float32 sums, taken in another order and carried through 53 layers.
TOLERANCE = 1e-4


def run_demo(output: Path | None, steps: Steps) -> DemoReport:
    """Lower the demo model, run it on the reference runtime and compare.

    Args:
        output: Where to leave the program file; by default it is removed again.
        steps: Progress.

    Raises:
        CommandError: EK732, the results differ.
    """
    with tempfile.TemporaryDirectory(prefix="exirkit-") as scratch:
        path = output or Path(scratch, "mobilenet_v2.pte")
        with steps.phase("load", "building MobileNetV2"):
            model, inputs = make_demo()
        with steps.phase("export"):
            exported = export_methods((model, inputs), strict=False, say=steps)
        lowering = lower_exported("MobileNetV2", exported, LowerOptions(path), steps)
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
