"""The catalogue of dtypes: its rules, its file, and what is found with it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tools.dtypes.measure import CATALOGUE, catalogue, outcomes, read_entries, text_of
from tools.dtypes.rules import rules_for
from tools.dtypes.samples import operators

from exirkit import to_edge
from exirkit.ir import (
    ALL_DTYPES,
    OperatorDtypes,
    dtype_arguments,
    edge_operator,
    expand_rule,
    known_dtypes,
    operator_name,
    word_for,
)
from exirkit.verifiers import check_dtypes

DTYPES = [getattr(torch, name) for name in ALL_DTYPES]


def test_rules_are_read() -> None:
    assert list(expand_rule("T index -> T; T: bool|float32")) == [
        (("bool", "int32"), ("bool",)),
        (("bool", "int64"), ("bool",)),
        (("float32", "int32"), ("float32",)),
        (("float32", "int64"), ("float32",)),
    ]
    assert list(expand_rule("none -> float32 int64")) == [(("none",), ("float32", "int64"))]


def test_words() -> None:
    assert word_for(ALL_DTYPES) == "any"
    assert word_for(ALL_DTYPES[1:]) == "number"
    assert word_for(["int64", "int32"]) == "index"
    assert word_for([*ALL_DTYPES[1:6], "bool"]) == "bool|integer"


@given(
    st.sets(st.tuples(*[st.sampled_from(["bool", "int32", "int64", "float32", "none"])] * 3), min_size=1, max_size=40)
)
def test_rules_say_exactly_what_was_found(legal: set[tuple[str, ...]]) -> None:
    rules = rules_for(sorted(legal), 2)
    assert {left + right for rule in rules for left, right in expand_rule(rule)} == legal


def test_whole_products_are_one_rule() -> None:
    assert rules_for([(one, one) for one in ALL_DTYPES], 1) == ["T -> T; T: any"]
    assert rules_for([(one, other, "bool") for one in ALL_DTYPES for other in ALL_DTYPES], 2) == ["any any -> bool"]


def test_the_catalogue_is_large_and_known_to_torch() -> None:
    known = known_dtypes()
    assert len(known) >= 200
    names = {operator_name(op): dtype_arguments(op) for op in operators().values()}
    assert {name: entry.arguments for name, entry in known.items()}.items() <= names.items()


@pytest.mark.parametrize(
    "name", ["add.Tensor", "embedding.default", "where.self", "max.dim", "cat.default", "sum.dim_IntList"]
)
def test_entries_are_what_torch_does(name: str) -> None:
    entry = known_dtypes()[f"aten.{name}"]
    found: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for each in outcomes(operators()[f"aten.{name}"]):
        found.setdefault(each[: len(entry.arguments)], set()).add(each[len(entry.arguments) :])
    assert entry.results == found


@pytest.mark.slow
def test_the_file_is_what_the_script_makes() -> None:
    assert CATALOGUE.read_text() == text_of(catalogue(read_entries(CATALOGUE)))


def test_kernels_of_the_runtime() -> None:
    torchs, runtimes = known_dtypes(), known_dtypes(runtime=True)
    assert runtimes["aten.add.Tensor"].results == torchs["aten.add.Tensor"].results
    softmax = runtimes["aten._softmax.default"]
    assert set(softmax.results) <= set(torchs["aten._softmax.default"].results)
    assert runtimes["aten.silu.default"].rules == (), "there is no kernel"
    program = edge_program(lambda x: torch.nn.functional.log_softmax(x, 0), torch.ones(2, dtype=torch.float64))
    assert check_dtypes(program) == []
    (finding,) = check_dtypes(program, runtime=True)
    assert (finding.code, finding.message) == ("EK353", "no kernel of the ExecuTorch runtime takes self: float64")


def test_promotion() -> None:
    entry = known_dtypes()["aten.mul.Tensor"]
    for left, right in itertools.product(DTYPES, repeat=2):
        wanted = str(torch.promote_types(left, right)).removeprefix("torch.")
        given_ = tuple(str(one).removeprefix("torch.") for one in (left, right))
        assert entry.results[given_] == {(wanted,)}


def test_sampled_entries_judge_what_was_tried() -> None:
    entry = OperatorDtypes(("a", "b", "c", "d"), ("T T T T -> T; T: floating",), is_sampled=True)
    assert entry.is_known(("float32", "float32", "int8", "float32"))
    assert not entry.is_known(("float32", "float32", "int8", "int8"))
    assert not entry.is_known(("float32", "float32", "complex64", "float32"))


def edge_program(function: Any, *inputs: torch.Tensor) -> Any:
    class Of(torch.nn.Module):
        def forward(self, *given_: torch.Tensor) -> Any:
            return function(*given_)

    return to_edge(torch.export.export(Of(), inputs)).exported_program()


def test_findings() -> None:
    program = edge_program(lambda x: x.relu(), torch.ones(2))
    assert check_dtypes(program) == []
    node = next(one for one in program.graph.nodes if one.op == "call_function")
    node.target = edge_operator(torch.ops.aten.bitwise_not.default)
    (finding,) = check_dtypes(program)
    assert (finding.code, finding.message) == ("EK353", "no kernel of torch takes self: float32")
    node.target = edge_operator(torch.ops.aten.logical_not.default)
    (finding,) = check_dtypes(program)
    assert (finding.code, finding.expected) == ("EK354", "bool")


def test_unknown_operators_and_dtypes_are_passed_over() -> None:
    program = edge_program(lambda x: x.relu(), torch.ones(2))
    node = next(one for one in program.graph.nodes if one.op == "call_function")
    with node.meta["val"].fake_mode:
        node.args[0].meta["val"] = torch.empty(2, dtype=torch.complex64)
    assert check_dtypes(program) == []
