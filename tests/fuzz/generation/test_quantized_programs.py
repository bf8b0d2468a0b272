"""Programs of the shipped policy `quantized`: all schemes, with usual and odd parameters."""

from __future__ import annotations

from collections import Counter
from functools import cache

import torch
import yaml

from exirkit.fuzz.campaigns.standard import policy_of
from exirkit.fuzz.generation import Policy, features_of, generate, shipped_policies
from exirkit.fuzz.generation.operators.quantizing import SCHEMES
from exirkit.fuzz.generation.policy import QUANTIZATION
from exirkit.fuzz.programs import Program, leaves_of, parse_program, program_text, run_eagerly


@cache
def quantized() -> Policy:
    return policy_of(yaml.safe_load(shipped_policies()["quantized"].read_text(encoding="utf-8")))


@cache
def programs() -> list[Program]:
    return [generate(seed, quantized()) for seed in range(150)]


def test_every_scheme_has_a_share() -> None:
    assert QUANTIZATION.keys() == SCHEMES.keys() - {"back"}


def test_programs_call_every_kernel_that_quantizes() -> None:
    called = Counter(call.op for program in programs() for method in program.methods for call in method.steps)
    wanted = [
        "quantize_per_tensor.default",
        "quantize_per_tensor.tensor",
        "quantize_per_channel.default",
        "quantize_per_token.default",
        "dequantize_per_tensor.default",
        "dequantize_per_tensor.tensor",
        "dequantize_per_channel.default",
        "dequantize_per_token.default",
        "choose_qparams.tensor",
        "choose_qparams_per_token_asymmetric.default",
        "add.default",
        "mixed_linear.default",
        "mixed_mm.default",
        "embedding_byte.default",
        "embedding_4bit.default",
        "embedding_2bit.default",
    ]
    assert [name for name in wanted if not called[f"quantized_decomposed.{name}"]] == []


def test_parameters_are_odd_at_times() -> None:
    calls = [call for program in programs() for method in program.methods for call in method.steps]
    per_tensor = [call.args for call in calls if call.op == "quantized_decomposed.quantize_per_tensor.default"]
    scales = [scale for _, scale, *_ in per_tensor if isinstance(scale, float)]
    assert min(scales) < 1e-29
    assert max(scales) > 1e19
    assert any(args[2] in (args[3], args[4]) and args[2] != 0 for args in per_tensor)
    dtypes = {leaf for args in per_tensor for leaf in leaves_of(args) if isinstance(leaf, torch.dtype)}
    assert dtypes == {torch.int8, torch.uint8, torch.int16, torch.int32}


def test_programs_run_and_have_a_printed_form() -> None:
    for program in programs()[:50]:
        assert parse_program(program_text(program)) == program
        assert len(run_eagerly(program)) == len(program.runs)


def test_features_name_the_schemes() -> None:
    found = Counter(feature for program in programs() for feature in features_of(program))
    for name in ("tensor", "channel", "token", "dynamic", "kernel"):
        assert found[f"quantized_{name}"] > 10, name
