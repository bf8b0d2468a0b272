"""The oracle that runs one file on both runtimes and wants the same bits."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import yaml

from exirkit.fuzz.campaigns.standard import policy_of
from exirkit.fuzz.examination import file_runs
from exirkit.fuzz.generation import Policy, generate, shipped_policies
from exirkit.fuzz.official import missing_reason
from exirkit.fuzz.oracles import ExirkitCompiler, Verdict, check
from exirkit.fuzz.oracles.official import runtimes_agree
from exirkit.fuzz.programs import Program, parse_program
from exirkit.runtime_ref import OperatorRegistry, Runtime

pytestmark = [
    pytest.mark.executorch,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]


@cache
def quantized() -> Policy:
    return policy_of(yaml.safe_load(shipped_policies()["quantized"].read_text(encoding="utf-8")))


def asked(program: Program, level: int = 1) -> Verdict:
    compiler = ExirkitCompiler(level=level, kernels="official")
    return check(program, compiler=compiler, oracles=["eager-run", runtimes_agree.RuntimesAgree.name])


@pytest.mark.parametrize("seed", range(12))
def test_generated_programs(seed: int) -> None:
    verdict = asked(generate(seed, quantized()), seed % 3)
    assert verdict.failures == ()
    assert verdict.unsupported or verdict.comparisons.bitwise + verdict.comparisons.tolerant > 0


ROUNDED = parse_program("""\
program(1)

def forward(x1: "f32[1600]"):
    v1 = quantized_decomposed.quantize_per_tensor.default(x1, 0.0123, 0, -32768, 32767, torch.int16)
    v2 = quantized_decomposed.dequantize_per_tensor.default(v1, 0.0123, 0, -32768, 32767, torch.int16)
    return v1, v2

run("forward", x1=dyadic(1, low=-300, high=300, bits=14))
undecided(v1, v2)
""")


def test_another_rounding_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch multiplies by another reciprocal: some numbers of 1600 are rounded to the other side."""
    assert asked(ROUNDED).failures == ()
    eager = Runtime(OperatorRegistry(eager_quantization=True))
    monkeypatch.setattr(file_runs, "_runtime", lambda is_for_official: eager)
    (failure,) = asked(ROUNDED).failures
    assert failure.oracle == "runtimes-agree"
    assert "no call leaves its last bits open" in failure.message


SUMMED = parse_program("""\
program(1)
w1 = parameter("f32[16, 40]", dyadic(7, low=-4, high=4, bits=13))

def forward(x1: "f32[32, 40]"):
    v1 = aten.linear.default(x1, w1)
    v2 = aten.tanh.default(v1)
    v3 = quantized_decomposed.quantize_per_tensor.default(v2, 0.0000001, 3, -2147483648, 2147483647, torch.int32)
    v4 = aten.permute.default(v3, [1, 0])
    return v4

run("forward", x1=dyadic(5, low=-0.5, high=0.5, bits=14))
inexact(v1, v2)
undecided(v3, v4)
""")


@pytest.mark.parametrize("level", [0, 1, 2])
def test_last_bits_of_sums_explain_what_is_rounded(level: int) -> None:
    verdict = asked(SUMMED, level)
    assert verdict.failures == ()
    assert verdict.comparisons.tolerant == 1


def test_what_no_sum_explains_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = runtimes_agree._official

    def wrong(*given: object) -> list[list[torch.Tensor]]:
        runs = original(*given)  # type: ignore[arg-type]
        for outputs in runs:
            outputs[0][0, 0] += 1
        return runs

    monkeypatch.setattr(runtimes_agree, "_official", wrong)
    (failure,) = asked(SUMMED).failures
    assert "with the official results of sums, run 1, output 0 still differs" in failure.message


def test_a_sum_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = runtimes_agree._official

    def wrong(*given: object) -> list[list[torch.Tensor]]:
        runs = original(*given)  # type: ignore[arg-type]
        for outputs in runs:
            for one in outputs[1:]:
                one[0, 0] += 0.01
        return runs

    monkeypatch.setattr(runtimes_agree, "_official", wrong)
    (failure,) = asked(SUMMED).failures
    assert "more than the last bits of a sum" in failure.message
