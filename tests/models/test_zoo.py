"""The zoo itself: its cases are listed, and the same in every process."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.models.agreement import assert_agree
from tests.models.case import Tolerance
from tests.models.zoo import CASES, FAMILIES

ROOT = Path(__file__).resolve().parents[2]
LARGE = 1e-2


def test_names_are_unique_and_there_are_many() -> None:
    names = [case.name for module in FAMILIES for case in module.family.cases]
    assert len(names) == len(set(names)) >= 32
    assert all(name.isidentifier() for name in names)


def test_every_family_file_is_in_the_zoo() -> None:
    here = Path(__file__).parent
    with_family = {path for path in here.rglob("*.py") if "\nfamily = Family(" in path.read_text()}
    assert with_family == {Path(str(module.__file__)) for module in FAMILIES}
    for path in with_family:
        text = path.read_text()
        assert len(text.splitlines()) <= 400, path
        assert ast.get_docstring(ast.parse(text)), path


def test_tolerances_are_reasoned() -> None:
    for case in CASES.values():
        assert case.tolerance.reason
        assert case.tolerance.rtol == case.tolerance.atol <= LARGE


@pytest.mark.slow
def test_cases_are_the_same_in_every_process() -> None:
    """Otherwise a file in the cache of official exports would not belong to the inputs of this process."""
    names = ["lstm", "kv_cache", "mlp", "dynamic_views"]
    script = f"""
import torch
from tests.models.test_zoo import fingerprint
torch.manual_seed(99)
torch.rand(7)
print([fingerprint(name) for name in {names!r}])
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([fingerprint(name) for name in names])


def fingerprint(name: str) -> list[float]:
    """Return the sums of weights and inputs of a case."""
    (method,) = CASES[name].make().methods.values()
    tensors = [*method.module.state_dict().values(), *(leaf for call in method.calls for leaf in call.leaves())]
    return [float(tensor.double().sum()) for tensor in tensors if isinstance(tensor, torch.Tensor)]


def test_calls_do_not_change_the_case() -> None:
    method = CASES["input_mutated"].make().methods["forward"]
    assert_agree(method.expected(), method.expected(), Tolerance(0.0, 0.0, "the same computation"))
