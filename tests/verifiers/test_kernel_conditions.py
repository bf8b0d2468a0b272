"""The stored conditions of kernels against the kernels: calls at both sides of each, on the official runtime."""

from __future__ import annotations

import pytest
import torch
from tests.thoroughness import TRIES_ALL
from tools.kernels.calls import Kernels, KernelUnderTest, kernels_under_test
from tools.kernels.conditions import REGISTRY, Probe, read_registry
from tools.kernels.inference import Tried, infer

from exirkit.verifiers import UNKNOWN, Fact, TensorFacts, read_condition

# Kernels that torch itself survives, spread over all kinds; all of them with EXIRKIT_TESTS=all.
SAMPLE = (
    "aten::constant_pad_nd.out",
    "aten::convolution.out",
    "aten::add.out",
    "aten::_log_softmax.out",
    "aten::avg_pool2d.out",
    "aten::view_copy.out",
    "aten::cat.out",
    "aten::index.Tensor_out",
    "aten::mean.out",
    "aten::expand_copy.out",
    "aten::permute_copy.out",
    "aten::linear.out",
)
SEED = 20
CALLS = 40


def test_every_condition_can_be_read() -> None:
    registry = read_registry(REGISTRY)
    assert len(registry) > 200
    for texts in registry.values():
        for text in texts:
            read_condition(text)
    assert sum(map(bool, registry.values())) > 100


def tries(kernels: Kernels, kernel: KernelUnderTest, conditions: list[str]) -> list[Tried]:
    probe = Probe(kernels, kernel, SEED)
    if probe.start():
        probe.draw(CALLS)
        probe.attack(conditions, 6)
    return probe.tried


@pytest.mark.executorch
def test_the_kernels_reject_what_breaks_a_condition_and_take_the_rest() -> None:
    torch.set_num_threads(1)
    registry = read_registry(REGISTRY)
    counts = dict.fromkeys(("taken", "rejected", "unexplained"), 0)
    with Kernels() as kernels:
        for kernel in kernels_under_test(registry):
            if not TRIES_ALL and kernel.name not in SAMPLE:
                continue
            read = [read_condition(text) for text in registry[kernel.name]]
            for one in tries(kernels, kernel, registry[kernel.name]):
                broken = [each.text for each in read if each.holds(one.call) is False]
                assert not (broken and one.taken), f"seed {SEED}: {kernel.name} takes {one.call}, which breaks {broken}"
                counts["taken" if one.taken else "rejected" if broken else "unexplained"] += 1
    assert counts["rejected"] > 50, "no condition was tried"
    assert counts["taken"] > 200, "nothing ran"
    assert counts["unexplained"] <= 0.1 * counts["rejected"], counts


def call(rank: int, pad: int, order: tuple[int, ...] | None = None) -> dict[str, Fact]:
    plain = tuple(range(rank))
    return {"x": TensorFacts("float32", (2,) * rank, order or plain), "pad": (pad, 0), "wide": rank > 2}


def test_conditions_are_found_that_tell_calls_apart() -> None:
    tried = [Tried(call(rank, pad), rank <= 4 and pad >= 0) for rank in range(1, 7) for pad in range(-3, 4)] * 3
    found = infer(tried)
    assert set(found.conditions) == {"rank(x) <= 4", "least(pad) >= 0"}
    assert not found.unexplained


def test_what_a_taken_call_breaks_is_not_a_condition() -> None:
    tried = [Tried(call(rank, pad), pad >= 0) for rank in range(1, 7) for pad in range(-3, 4)] * 3
    tried.append(Tried(call(3, -2), True))
    found = infer(tried)
    for text in found.conditions:
        assert all(read_condition(text).holds(one.call) is not False for one in tried if one.taken)
    assert found.unexplained


def test_cases_of_an_operator_are_joined() -> None:
    tried = [Tried(call(rank, pad), rank <= 2 or pad >= 0) for rank in range(1, 7) for pad in range(-3, 4)] * 3
    (condition,) = infer(tried).conditions
    assert " or " in condition
    assert "least(pad) >= 0" in condition


def test_unknown_sizes_decide_nothing() -> None:
    varying: dict[str, Fact] = {"x": TensorFacts("float32", (UNKNOWN, 2), (0, 1))}
    assert read_condition("numel(x) > 0").holds(varying) is None
    assert read_condition("rank(x) == 3").holds(varying) is False


@pytest.mark.parametrize(
    ("dtypes", "holds"),
    [
        (("float32", "int64"), True),
        (("float16", "int32"), True),
        (("float64", "int64"), False),
        (("float32", "int8"), False),
    ],
)
def test_dtypes(dtypes: tuple[str, str], holds: bool) -> None:
    facts: dict[str, Fact] = {
        name: TensorFacts(dtype, (2,), (0,)) for name, dtype in zip(("x", "i"), dtypes, strict=True)
    }
    assert read_condition("dtypes(['T index; T: float16|float32'], x, i)").holds(facts) is holds
    weak: dict[str, Fact] = {**facts, "i": TensorFacts(dtypes[1], (), ())}
    assert read_condition("dtypes(['T index; T: float16|float32'], x, i)").holds(weak) is None
