"""Programs are valid by construction, and all that the generator says about them is true."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

import torch

from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.generation import (
    Fact,
    Policy,
    SeededChoices,
    features_of,
    generate,
    generate_with_facts,
    ieee_policy,
    measure,
    shipped_operators,
)
from exirkit.fuzz.generation.policy import REPLACED, draw_plan
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import Program, Ref, Runner, build, check_program, parse_program, program_text, run_eagerly
from exirkit.fuzz.programs.sizes import size_value


def problems_of(program: Program, facts: dict[str, Fact]) -> list[str]:
    """Run a program and return what is not as the generator says."""
    check_program(program)
    runner = Runner(program)
    found: list[str] = []
    for run in program.runs:
        for name, tensor in runner.run(run, keep_values=True).values.items():
            if isinstance(tensor, torch.Tensor) and name in facts:
                found += [f"{name}: {problem}" for problem in lies(facts[name], tensor, run.sizes)]
    return found


def lies(fact: Fact, tensor: torch.Tensor, sizes: object) -> Iterable[str]:
    if tensor.dtype != fact.dtype:
        yield f"{tensor.dtype}, not {fact.dtype}"
    if tuple(tensor.shape) != tuple(size_value(str(size), sizes) for size in fact.sizes):  # type: ignore[arg-type]
        yield f"{tuple(tensor.shape)}, not {fact.sizes}"
    if fact.is_dense and not tensor.is_contiguous():
        yield "not dense"
    wide = tensor.double()
    if tensor.numel() and not bool(torch.isfinite(wide).all()):
        yield "not finite"
    elif tensor.numel() and not fact.low - 1e-9 <= wide.min().item() <= wide.max().item() <= fact.high + 1e-9:
        yield f"{wide.min().item()} to {wide.max().item()}, not {fact.low} to {fact.high}"
    if fact.bits is not None and not torch.equal(wide * 2**fact.bits, (wide * 2**fact.bits).round()):
        yield f"no multiples of 2**-{fact.bits}"


def check_seeds(seeds: Iterable[int]) -> None:
    policy = Policy()
    wrong = {seed: problems_of(*generate_with_facts(SeededChoices(seed), policy)) for seed in seeds}
    assert not {seed: problems for seed, problems in wrong.items() if problems}


def test_stated_facts_of_values_are_true() -> None:
    check_seeds(range(80))


def test_stated_facts_of_values_are_true_of_many_programs() -> None:
    check_seeds(range(10_000, 12_500))


def test_programs_can_be_built_and_printed() -> None:
    for seed in range(8):
        program = generate(seed)
        # As text: NaN is not equal to itself.
        text = program_text(program)
        assert program_text(parse_program(text)) == text
        assert set(build(program)) == {method.name for method in program.methods}


def test_many_programs_can_be_built() -> None:
    for seed in range(20_000, 20_150):
        build(generate(seed))


def test_values_that_are_exact_are_so_with_twice_the_bits_and_in_another_order() -> None:
    compared = 0
    for seed in range(300, 365):
        if "converted_again" in draw_plan(SeededChoices(seed), Policy()).requests:
            # Integers that are rounded on purpose keep their digits with twice the bits.
            continue
        program = generate(seed)
        rough = program.inexact | program.undecided
        one, other = Runner(program), Runner(program, in_float64=True)
        for run in program.runs:
            values = one.run(run, keep_values=True).values
            wide = other.run(run, keep_values=True).values
            for name in values.keys() - rough:
                if isinstance(values[name], torch.Tensor):
                    pair = (values[name].double(), wide[name].double())
                    assert torch.allclose(*pair, rtol=0, atol=0, equal_nan=True), (seed, name)
                    compared += 1
        compared += check_other_orders(program, rough, seed)
    assert compared > 1500


def check_other_orders(program: Program, rough: frozenset[str], seed: int) -> int:
    """Compute sums and products that are exact from last to first."""
    values = Runner(program).run(program.runs[0], keep_values=True).values
    checked = 0
    for step in next(method for method in program.methods if method.name == program.runs[0].method).steps:
        name = step.results[0]
        if name is None or name in rough or name not in values:
            continue
        operands = [values[getattr(each, "name", "")] for each in step.args if hasattr(each, "name")]
        if step.op in ("aten.mm.default", "aten.bmm.default"):
            found = torch.matmul(operands[0].flip(-1), operands[1].flip(-2))
        elif step.op == "aten.sum.default":
            found = operands[0].flatten().flip(0).cumsum(0, dtype=values[name].dtype)[-1:].sum()
        elif step.op == "aten.linear.default" and len(operands) == 2:
            found = torch.nn.functional.linear(operands[0].flip(-1), operands[1].flip(-1))
        else:
            continue
        assert torch.equal(found, values[name]), (seed, name)
        checked += 1
    return checked


def test_every_feature_is_above_its_floor_and_most_outputs_are_exact() -> None:
    assert measure(range(600)).missing == ()
    found = measure(range(400), Policy(operator_samples=0.0))
    assert found.inexact + found.undecided < 0.25
    assert found.undecided < 0.05


def test_acts_give_passes_something_to_do_that_other_calls_leave_idle() -> None:
    wanted = {
        "whole_arithmetic": {"legalize-integers"},
        "cropping_pad": {"legalize-padding"},
        "over_volumes": {"legalize-volumes"},
        "scaled_sum_of_one": {"legalize-scaled-sums"},
        "varying_parts": {"legalize-splits"},
        "layer_of_known_size": {"choose-kernels"},
        "quantized_call": {"legalize-quantized"},
        "large_state": {"write-in-place"},
        "decomposed_call": {"decompose-to-core"},
    }
    assert wanted.keys() == REPLACED.keys()
    left, compiler = dict(wanted), ExirkitCompiler(level=2, kernels="official", verify="none")
    for seed in range(400):
        requests = draw_plan(SeededChoices(seed), Policy()).requests
        if left.keys() & requests:
            worked = check(generate(seed), compiler=compiler, oracles=("lowering",), seed=seed).worked
            left = {act: passes for act, passes in left.items() if act not in requests or not passes <= worked}
        if not left:
            return
    raise AssertionError(left)


def test_every_operator_of_the_catalogue_is_proposed() -> None:
    names = {operator.name for operator in shipped_operators() if not operator.is_unsupported}
    assert len(names) >= 150
    missing = names - set(measure(range(3200)).operators)
    assert not missing


def test_a_policy_is_kept_to() -> None:
    policy = Policy(operators=frozenset({"aten.mul.Tensor", "aten.view.default"}), dtypes=(torch.float32,), shares={})
    called = {*policy.operators, "aten.view_copy.default"}
    for seed in range(50):
        assert any(call.op in called for method in generate(seed, policy).methods for call in method.steps)
    without = frozenset({"aten.add.Tensor", "aten.sort.default"})
    found = measure(range(100), Policy(without=without)).operators
    assert not without & set(found)


_SCRIPT = """
from exirkit.fuzz.generation import generate
from exirkit.fuzz.programs import program_text
import hashlib
print(hashlib.sha256("".join(program_text(generate(seed)) for seed in range(60)).encode()).hexdigest())
"""


def test_a_seed_always_makes_the_same_program() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT], env=_environment(seed), check=True, capture_output=True, text=True
        ).stdout
        for seed in ("0", "77")
    }
    assert len(digests) == 1


def _environment(seed: str) -> dict[str, str]:
    return {**os.environ, "PYTHONHASHSEED": seed}


def test_programs_with_control_flow() -> None:
    policy = Policy(control_flow=True)
    kinds: set[str] = set()
    for seed in range(130):
        program = generate(seed, policy)
        found = features_of(program) & {"cond", "map", "scan", "while_loop"}
        if found:
            kinds |= found
            assert len(run_eagerly(program)) == len(program.runs)
            assert parse_program(program_text(program)) == program
    assert kinds == {"cond", "map", "scan", "while_loop"}


def test_programs_with_odd_floats_run() -> None:
    policy = ieee_policy()
    with_nan = 0
    for seed in range(40):
        for result in run_eagerly(generate(seed, policy)):
            floats = [one for one in result.outputs if isinstance(one, torch.Tensor) and one.is_floating_point()]
            with_nan += any(bool(one.isnan().any()) for one in floats)
    assert with_nan > 20


def test_slices_are_copied_before_they_are_read_by_strides() -> None:
    """As strides count from where the memory begins, and a slice may lie anywhere in that of another tensor."""
    names = ("aten.as_strided_copy.default", "aten.clone.default", "aten.unsqueeze.default")
    policy = Policy(control_flow=True, operators=frozenset(names))
    read = 0
    for seed in range(300):
        calls = [call for method in generate(seed, policy).methods for call in method.steps if call.op == "map"]
        for body in (body for call in calls for body in call.bodies):
            made = {name: step for step in body.steps for name in step.results}
            for step in (one for one in body.steps if one.op == names[0]):
                source = step.args[0]
                while isinstance(source, Ref) and source.name in made and made[source.name].op == names[2]:
                    source = made[source.name].args[0]
                assert isinstance(source, Ref)
                assert source.name != body.inputs[0]
                read += 1
    assert read >= 3
