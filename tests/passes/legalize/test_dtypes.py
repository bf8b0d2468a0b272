"""Legalisation of dtypes: what is cast, what cancels, and that signatures and results stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passes.lowering import edge_program
from tests.passes.programs import Holder, apply, exported, outputs
from torch.export import ExportedProgram

from exirkit import DtypePolicy, LegalizeDtypes
from exirkit.ir import ModelError, UsageError
from exirkit.passes import LegalizeReport, parse_dtype_policy, read_dtype_policy
from exirkit.passes.legalize.dtypes import DTYPES, holds

X = torch.randn(3, 4)


HALF = X.to(torch.float16)


def policy(**entries: dict[str, dict[str, str]]) -> DtypePolicy:
    """Return a policy; `aten__gelu__default` stands for a name with dots."""
    return DtypePolicy.model_validate(
        {"entries": [{"op": name.replace("__", "."), **entry} for name, entry in entries.items()]}
    )


UPCAST = {"compute_in": {"float16": "float32"}}


def legalized(program: ExportedProgram, chosen: DtypePolicy, *inputs: Any, rtol: float = 0.0) -> LegalizeReport:
    """Legalise in place, check signature, results and that a second run does nothing, and return the report."""
    before = outputs(program, *inputs)
    specs = list(program.graph_signature.output_specs)
    one = LegalizeDtypes(chosen)
    apply(one, program)
    program.validate()
    assert [spec.kind for spec in program.graph_signature.output_specs] == [spec.kind for spec in specs]
    for old, new in zip(before, outputs(program, *inputs), strict=True):
        assert old.dtype == new.dtype
        torch.testing.assert_close(new, old, rtol=rtol, atol=rtol, equal_nan=True)
    return one.reports[0]


GOOD = """
dtype_policy: 1
entries:
  - {op: aten.native_layer_norm.default, compute_in: {float16: float32, bfloat16: float32}}
  - {op: unary_pointwise, compute_in: {float16: float32}}
  - op: aten.index_select.default
    arguments: {index: int64}
"""


def test_policies_are_files(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(GOOD)
    read = read_dtype_policy(path)
    assert len(read.entries) == 3
    assert DtypePolicy.model_validate(read.model_dump()) == read
    assert LegalizeDtypes(read).policy is read


@pytest.mark.parametrize(
    ("old", "new", "code", "line", "told"),
    [
        ("float16: float32, b", "half: float32, b", "EK441", 4, "'half' is not a dtype"),
        ("bfloat16: float32", "float32: float64", "EK441", 4, "leads to float32"),
        ("arguments: {index: int64}", "argument: {}", "EK441", 7, "argument"),
        ("    arguments: {index: int64}\n", "", "EK441", 6, "has `arguments` or `compute_in`"),
        ("dtype_policy: 1", "dtype_policy: 2", "EK441", 2, "less than or equal to 1"),
        ("entries:", "entries: 3 #", "EK441", 4, ""),
        ("native_layer_norm", "native_layer_nrm", "EK442", 4, "did you mean aten.native_layer_norm"),
        ("unary_pointwise", "pointwize", "EK442", 5, "pointwize"),
        ("index: int64", "indices: int64", "EK442", 7, "it has self, index"),
        ("index_select.default", "index_add_.default", "EK442", 6, "writes to its arguments"),
        ("index_select.default", "_to_copy.default", "EK442", 6, "is a cast itself"),
    ],
)
def test_policies_that_are_wrong(old: str, new: str, code: str, line: int, told: str) -> None:
    assert old in GOOD
    with pytest.raises(ModelError) as caught:
        parse_dtype_policy(GOOD.replace(old, new, 1), "policy.yaml")
    finding = caught.value.diagnostics[0]
    assert finding.code == code
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == ("policy.yaml", line)
    assert told in finding.render()


def test_policies_made_in_python_are_checked_too() -> None:
    with pytest.raises(UsageError, match="EK442"):
        LegalizeDtypes(policy(aten__gelu__defualt=UPCAST))


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("wide", DTYPES.values(), ids=str)
def test_casts_that_hold_lose_nothing(wide: torch.dtype) -> None:
    for narrow in DTYPES.values():
        samples = _samples(narrow)
        back = samples.to(wide).to(narrow)
        is_same = torch.equal(_real(back), _real(samples))
        if holds(wide, narrow):
            assert is_same, narrow
        else:
            # Whole numbers may wrap around and back again, which not every kernel does.
            assert not is_same or narrow.to_real().is_signed != wide.to_real().is_signed, narrow


def _real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _samples(dtype: torch.dtype) -> torch.Tensor:
    """Return values at the ends of what a dtype can say."""
    real = dtype.to_real()
    if dtype is torch.bool:
        return torch.tensor([False, True])
    if real.is_floating_point:
        info = torch.finfo(real)
        values = [
            0.0,
            1.0,
            1 + info.eps,
            info.max,
            info.min,
            info.tiny,
            info.tiny * (1 + info.eps),
            info.smallest_normal,
        ]
        made = torch.tensor(values, dtype=torch.float64).to(real)
        return torch.complex(made.double(), -made.double()).to(dtype) if dtype.is_complex else made
    limits = torch.iinfo(dtype)
    return torch.tensor([0, 1, limits.max, limits.max - 1, limits.min], dtype=dtype)


_OPS = ("neg", "abs", "relu", "sign")


@settings(max_examples=15)
@given(
    steps=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=10),
    chosen=st.sets(st.sampled_from([*_OPS, "pointwise"]), min_size=1),
    wide=st.sampled_from(["int64", "int16"]),
    lower=st.booleans(),
)
def test_random_programs(steps: list[tuple[int, int, int]], chosen: set[str], wide: str, lower: bool) -> None:
    x = torch.randint(-3, 4, (2, 3), dtype=torch.int32)

    def model(m: Any, x: torch.Tensor) -> Any:
        values = [x, m.a]
        for op, left, right in steps:
            first, second = values[left % len(values)], values[right % len(values)]
            if op < len(_OPS):
                values.append(getattr(torch, _OPS[op])(first))
            else:
                values.append(torch.maximum(first, second) if op == 4 else torch.sub(first, second).clamp(-9, 9))
        return tuple(values[2:])

    program = (edge_program if lower else exported)(Holder(model, a=torch.arange(3, dtype=torch.int32)), x)
    entry = {"compute_in": {"int32": wide}}
    names = [name if name == "pointwise" else f"aten__{name}__default" for name in sorted(chosen)]
    legalized(program, policy(**dict.fromkeys(names, entry)), x)
