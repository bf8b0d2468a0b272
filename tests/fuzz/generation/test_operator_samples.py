"""Samples of operators are calls that eager PyTorch takes, and programs of them show bugs of single operators."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks.mutants.fresh_mutants import read_mutants
from torch.utils import _pytree as pytree

from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.generation import Policy, SeededChoices, generate, shipped_operators
from exirkit.fuzz.generation.acts.samples import NUMBERS, method_of, sampled_method
from exirkit.fuzz.generation.generating import finished
from exirkit.fuzz.generation.method.building import Building
from exirkit.fuzz.generation.operators.samples import (
    RECORDED,
    VARIED,
    Sample,
    TensorSample,
    read_sample,
    sampled_operators,
    samples_of,
)
from exirkit.fuzz.generation.policy import SAMPLES, Plan, draw_plan
from exirkit.fuzz.mutants.applying import applied
from exirkit.fuzz.mutants.model import named
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import Contents, Program, make_tensor
from exirkit.fuzz.programs.inference import operator_named
from exirkit.passes.to_aten.decompositions import further_decompositions
from exirkit.passes.to_aten.quantized_decompositions import QUANTIZED_DECOMPOSITIONS

_THIRD = read_mutants(Path(__file__).parents[3] / "benchmarks" / "mutants" / "mutants_third_set.yaml")


def _building(seed: int, policy: Policy | None = None) -> Building:
    plan = Plan(policy or Policy(), frozenset(), (torch.float32,), 1, 0.0, 0)
    return Building(SeededChoices(seed), plan)


def _program(op: str, seed: int) -> Program:
    building = _building(seed)
    method, runs = method_of(building, samples_of(op))
    return finished(building, runs, [method])


def _types(sample: Sample, kind: str) -> list[Any]:
    """Return dtype and sizes of what eager PyTorch computes of a call."""
    choices = SeededChoices(len(sample.op))

    def tensor(one: TensorSample) -> torch.Tensor:
        drawn = NUMBERS[kind](choices, one.dtype, math.prod(one.sizes)) if one.is_free else one.numbers
        return make_tensor(Contents("numbers", numbers=drawn), one.dtype, one.sizes)

    called = sample.mapped(tensor)
    results = pytree.tree_leaves(operator_named(sample.op)(*called.args, **called.kwargs))
    return [(one.dtype, tuple(one.shape)) for one in results]


@pytest.mark.parametrize("kind", NUMBERS)
def test_eager_pytorch_takes_every_sample_and_gives_the_recorded_types(kind: str) -> None:
    wrong = [
        (one.op, one.args)
        for op in sampled_operators()
        for one in samples_of(op)
        if _types(one, kind) != list(one.results)
    ]
    assert not wrong


def test_what_is_read_is_written_the_same() -> None:
    lines = [line for file in (RECORDED, VARIED) for line in file.read_text(encoding="utf-8").splitlines()]
    read = [json.dumps(one.as_json()) for op in sampled_operators() for one in samples_of(op)]
    assert len(read) == len(lines) > 2000
    assert sorted(read) == sorted(json.dumps(json.loads(line)) for line in lines)


def test_programs_of_samples_come_often_and_have_all_operators() -> None:
    counts = [{call.op for call in generate(seed).methods[0].steps} for seed in range(127)]
    names = set(sampled_operators())
    assert sum(len(one) >= 5 and one <= names for one in counts) >= 15
    met: set[str] = set()
    for seed in range(500):
        met |= {call.op for call in sampled_method(_building(seed))[0].steps}
    assert len(met) > 0.9 * len(names)


def test_a_policy_decides_about_samples_too() -> None:
    only = frozenset({"aten.median.dim", "aten.cummax.default"})
    method, _ = sampled_method(_building(3, Policy(operators=only)))
    assert {call.op for call in method.steps} <= only


@pytest.mark.parametrize("field", ["control_flow", "quantization", "portable_only"])
def test_policies_that_ask_for_what_samples_do_not_have_get_none(field: str) -> None:
    policy = Policy(**{field: True})  # type: ignore[arg-type]
    assert not any(SAMPLES in draw_plan(SeededChoices(seed), policy).requests for seed in range(40))
    assert any(SAMPLES in draw_plan(SeededChoices(seed), Policy()).requests for seed in range(40))


def test_runs_have_special_numbers_and_different_ones() -> None:
    runs = [sampled_method(_building(seed))[1] for seed in range(40)]
    text = str(runs)
    assert all(word in text for word in ("nan", "-inf", "-0.0", str(2**63 - 1)))
    assert all(len({str(one.inputs) for one in each}) == len(each) for each in runs)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("median-of-the-numbers", "aten.median.dim"),
        ("shifted-by-more-than-its-bits", "aten.bitwise_left_shift.Tensor"),
        ("sign-of-a-zero-by-comparison", "aten.copysign.Scalar"),
        ("places-behind-what-is-no-number", "aten.cummax.default"),
        ("infinite-logarithms-joined", "aten.logcumsumexp.default"),
        ("write-counted-from-the-end-is-lost", "aten.select_scatter.default"),
        ("joined-along-the-first-dim", "aten.cat.default"),
        ("addend-that-does-not-count-is-scaled", "aten.addbmm.default"),
        ("product-loses-its-factor-with-its-addend", "aten.addmm.default"),
    ],
)
def test_a_bug_of_one_operator_shows(name: str, op: str) -> None:
    one = named(name, _THIRD)
    programs = [_program(op, seed) for seed in range(24)]
    compiler = ExirkitCompiler(**one.compiler)  # type: ignore[arg-type]
    with applied(one):
        found = next((program for program in programs if check(program, compiler=compiler).failures), None)
    assert found is not None
    assert check(found, compiler=compiler).is_good


def test_what_reaches_lines_that_few_others_reach_comes_more_often() -> None:
    weights = sampled_operators()
    usual = [op for op in weights if all(one.rarity < 0.05 for one in samples_of(op))]
    rare = [op for op in weights if any(one.rarity > 3 for one in samples_of(op))]
    for some in (usual, rare):
        assert len(some) > 10
    cost = {op: (3 + samples_of(op)[0].calls) ** 0.5 for op in weights}
    assert min(weights[op] * cost[op] for op in rare) > 8 * max(weights[op] * cost[op] for op in usual)
    # As text: NaN is not equal to itself.
    written = [json.dumps(one.as_json()) for op in rare for one in samples_of(op)]
    assert [json.dumps(read_sample(one).as_json()) for one in written] == written


def test_zero_points_of_narrow_floats_are_undecided() -> None:
    """Eager torch computes them in 16 bits, and kernels in 32."""
    for dtype, is_undecided in ((torch.float32, False), (torch.float16, True), (torch.bfloat16, True)):
        building = _building(1)
        tensor = TensorSample(dtype, (2, 4), (), is_free=True)
        results = ((torch.float64, (2, 1)), (torch.int64, (2, 1)))
        op = "quantized_decomposed.choose_qparams_per_token_asymmetric.default"
        method, _ = method_of(building, [Sample(op, (tensor, torch.int8), {}, results, is_plain=True)])
        (call,) = method.steps
        assert (call.results[1] in building.undecided) is is_undecided
        assert call.results[0] not in building.undecided


_WITHOUT_CALLS = {
    "aten.empty_permuted.default": "its elements may be anything",
    "aten.max_pool2d_with_indices_backward.default": "odd arguments end the process; an act has it",
    "prims.scalar_tensor.default": "it takes no tensor; symbols make it",
    "quantized_decomposed.choose_qparams_per_token.default": "torch records another dtype of it than it gives",
}


def test_programs_have_calls_of_every_operator_that_we_decompose() -> None:
    made = {*sampled_operators(), *(one.name for one in shipped_operators())}
    quantized = (name.replace("::", ".") for name in QUANTIZED_DECOMPOSITIONS)
    ours = {
        *map(str, further_decompositions()),
        *(name if name.count(".") == 2 else f"{name}.default" for name in quantized),
    }
    assert {name for name in ours - made if not name.startswith("transformers.")} == _WITHOUT_CALLS.keys()


def test_equal_elements_are_all_one_or_zero_at_times() -> None:
    choices = SeededChoices(4)
    drawn = [NUMBERS["equal"](choices, torch.float32, 40) for _ in range(60)]
    assert {1, 2, 3} <= {len(set(one)) for one in drawn}
    assert 10 < sum(0 in one for one in drawn) < 40
