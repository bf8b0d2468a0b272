"""pytest plug-in: suites of the wheel with our chain in place of the official one, or with the official one.

Run by hand, in the root of the repository:

    UPSTREAM_CHAIN=exirkit python -m pytest -p tests.official.upstream_suites.plugin -p no:cacheprovider -c /dev/null \
        --pyargs executorch.backends.xnnpack.test.ops.test_add

`UPSTREAM_CHAIN=official` runs them as they are. With `UPSTREAM_RESULTS=FILE`, a line of JSON is written for each test.
`UPSTREAM_NOT_RUN` is a list of patterns of tests that are left out, `UPSTREAM_PRESERVE` one of operators that our chain
leaves where they change nothing, both in JSON. `UPSTREAM_SEED` is the seed of the random numbers of each test.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import time
import unittest
import warnings
from collections.abc import Generator, Iterable
from fnmatch import fnmatchcase
from importlib.util import find_spec
from typing import Any

import numpy
import pytest
import torch
from tests.official.quantization.quantizer_cache import cache_quantizer_patterns

RESULTS = os.environ.get("UPSTREAM_RESULTS")
# A library of operators goes with the object that defines it.
TORCHVISION = torch.library.Library("torchvision", "FRAGMENT")
CHAIN = os.environ.get("UPSTREAM_CHAIN", "exirkit")
SEED = int(os.environ.get("UPSTREAM_SEED", "0"))
NOT_RUN: list[str] = json.loads(os.environ.get("UPSTREAM_NOT_RUN", "[]"))


def pytest_configure(config: pytest.Config) -> None:
    """Make the replacement before any test module is imported."""
    del config
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Kernels and out variants of quantised operators that no delegate takes.
        import executorch.kernels.quantized  # noqa: F401

        _import_torchvision()
        from exirkit.bridge import install_absent_tools

        # A test that uses such a tool is skipped, with the reason.
        install_absent_tools(raises=unittest.SkipTest)
        cache_quantizer_patterns()
        if CHAIN == "exirkit":
            from tests.official.upstream_suites.chain import install

            install()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what is not run, and run nothing on devices: such tests only lower."""
    items[:] = [one for one in items if not matches(name_of(one.nodeid), NOT_RUN)]
    _run_no_vulkan(items)
    _run_no_cortex_m()


def _run_no_vulkan(items: list[pytest.Item]) -> None:
    """Do without a Vulkan device, which the runtime does not find; `UPSTREAM_VULKAN=1` runs where there is one."""
    run = "run_delegated_model_and_check_output"
    for kind in {getattr(item, "cls", None) for item in items}:
        if hasattr(kind, run) and os.environ.get("UPSTREAM_VULKAN") != "1":
            setattr(kind, run, lambda *_, **__: None)


def _run_no_cortex_m() -> None:
    """Do without Arm's simulator, which runs the files of Cortex-M and is not part of the wheel."""
    module = sys.modules.get("executorch.backends.cortex_m.test.tester")
    if module is not None:
        run = module.CortexMTester.run_method_and_compare_outputs
        module.CortexMTester.run_method_and_compare_outputs = lambda self, *rest, **named: (
            self if self.cur is module.StageType.SERIALIZE else run(self, *rest, **named)
        )


def _import_torchvision() -> None:
    """Import torchvision where it is installed, without its own operators if its compiled library cannot be loaded.

    Its models do not call them; but packages that import torchvision fail where their schemas are missing.
    """
    if find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        for name in ("nms", "qnms"):
            TORCHVISION.define(f"{name}{schema}")
        importlib.import_module("torchvision")
    _draw_weights()


def _draw_weights() -> None:
    """Leave models with the random weights that they are made with, instead of downloading trained ones."""
    weights = importlib.import_module("torchvision.models").WeightsEnum
    weights.get_state_dict = lambda *_, **__: None
    load = torch.nn.Module.load_state_dict
    torch.nn.Module.load_state_dict = (  # type: ignore[method-assign]
        lambda self, state, *rest, **named: None if state is None else load(self, state, *rest, **named)
    )


def _steps() -> int:
    """Return how many steps of our chain were taken so far."""
    chain = sys.modules.get("tests.official.upstream_suites.chain")
    return 0 if chain is None else chain.Steps.taken


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Give each test the random numbers that it has when it runs alone, and measure it."""
    torch.manual_seed(SEED)
    random.seed(SEED)
    numpy.random.seed(SEED)
    start, steps = time.process_time(), _steps()
    result = yield
    cpu_s = round(time.process_time() - start, 2)
    _write({"test": item.nodeid, "cpu_s": cpu_s, "steps": _steps() - steps})
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write how a test ended, and why if it did not pass."""
    if report.when == "call" or not report.passed:
        # What the suite itself expects to fail, in whichever chain.
        outcome = "expected failure" if report.skipped and hasattr(report, "wasxfail") else report.outcome
        if "::test_implementation" in report.nodeid and _reason(report).startswith("[XPASS(strict)]"):
            # It would fail on the simulator.
            outcome = "passed"
        _write({"test": report.nodeid, "outcome": outcome, "reason": _reason(report)})


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Write what could not be imported."""
    if not report.passed:
        _write({"test": report.nodeid, "outcome": f"not collected, {report.outcome}", "reason": _reason(report)})


def name_of(nodeid: str) -> str:
    """Return the name of a test in the tables: its file in the folder of backends, and what stands in it."""
    return nodeid.removeprefix("executorch/backends/")


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name of a test fits a pattern in which `*` stands for any characters."""
    # Brackets are part of names.
    return any(fnmatchcase(name, pattern.replace("[", "[[]")) for pattern in patterns)


def _reason(report: Any) -> str:
    found = report.longrepr
    if isinstance(found, tuple):
        return str(found[2])
    crash = getattr(found, "reprcrash", None)
    return str(crash.message if crash else found or "")[-1500:]


def _write(line: dict[str, Any]) -> None:
    if RESULTS:
        with open(RESULTS, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
