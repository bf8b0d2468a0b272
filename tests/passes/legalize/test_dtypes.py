"""Legalisation of dtypes: what is cast, what cancels, and that signatures and results stay the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.passes.lowering import edge_program
from tests.passes.programs import Function, apply, exported, outputs, targets
from torch.export import Dim, ExportedProgram
from torch.export.graph_signature import InputKind

from exirkit import DtypePolicy, FoldConstants, LegalizeDtypes, to_edge
from exirkit.ir import GraphEditor, ModelError, UsageError
from exirkit.passes import LegalizeReport, parse_dtype_policy, read_dtype_policy
from exirkit.passes.legalize.dtypes import DTYPES, holds
from exirkit.runtime_ref import Runtime

X = torch.randn(3, 4)
HALF = X.to(torch.float16)


class Holder(Function):
    """A function of a module with stored tensors."""

    def __init__(self, function: Any, **tensors: torch.Tensor) -> None:
        super().__init__(function)
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


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


def dtypes_of(program: ExportedProgram, name: str) -> list[list[torch.dtype]]:
    """Return the dtypes of the arguments of each call of an operator."""
    return [
        [source.meta["val"].dtype for source in node.all_input_nodes]
        for node in program.graph.nodes
        if node.op == "call_function" and name in str(node.target)
    ]


@pytest.mark.parametrize("lower", [False, True])
def test_an_operator_computes_in_another_dtype(lower: bool) -> None:
    program = (edge_program if lower else exported)(lambda x: torch.nn.functional.gelu(x) * 2, HALF)
    report = legalized(program, policy(aten__gelu__default=UPCAST), HALF, rtol=2e-3)
    assert dtypes_of(program, "gelu") == [[torch.float32]]
    assert dtypes_of(program, "mul")[0][0] == torch.float16
    assert report.casts == 2
    cast = "dim_order_ops._to_dim_order_copy.default" if lower else "aten._to_copy.default"
    assert targets(program).count(cast) == 2


def test_results_of_the_wide_dtype_are_exactly_those_of_casts_by_hand() -> None:
    program = exported(lambda x: torch.nn.functional.softmax(x, -1), HALF)
    LegalizeDtypes(policy(aten__softmax__int=UPCAST)).run(GraphEditor(program))
    wanted = torch.softmax(HALF.float(), -1).to(torch.float16)
    assert torch.equal(outputs(program, HALF)[0], wanted)


def test_other_dtypes_are_left_alone() -> None:
    program = exported(torch.nn.functional.gelu, X)
    assert not apply(LegalizeDtypes(policy(aten__gelu__default=UPCAST)), program).modified


def test_arguments_by_name() -> None:
    index = torch.tensor([2, 0, 1], dtype=torch.int32)
    program = exported(torch.ops.aten.index_select.default, X, 1, index)
    entry = {"arguments": {"index": "int64"}}
    report = legalized(program, policy(aten__index_select__default=entry), X, 1, index)
    assert dtypes_of(program, "index_select") == [[torch.float32, torch.int64]]
    assert (report.legalized, report.casts) == (("index_select",), 1)


def test_lists_of_tensors() -> None:
    program = exported(lambda x, y: torch.cat([x, y, x]), HALF, HALF + 1)
    legalized(program, policy(aten__cat__default=UPCAST), HALF, HALF + 1)
    assert dtypes_of(program, "cat") == [[torch.float32, torch.float32]]
    assert targets(program).count("aten._to_copy.default") == 3


@pytest.mark.parametrize("lower", [False, True])
def test_operators_with_several_results(lower: bool) -> None:
    def model(x: torch.Tensor) -> Any:
        values, indices = torch.topk(x, 2)
        return values + 1, indices

    program = (edge_program if lower else exported)(model, HALF)
    legalized(program, policy(aten__topk__default=UPCAST), HALF)
    assert dtypes_of(program, "topk") == [[torch.float32]]
    assert dtypes_of(program, "add")[0][0] == torch.float16


def test_families_and_which_entry_counts() -> None:
    chosen = policy(aten__mul__Tensor={"compute_in": {"float16": "float64"}}, pointwise=UPCAST)
    program = exported(lambda x: x * x + x, HALF)
    legalized(program, chosen, HALF, rtol=2e-3)
    assert dtypes_of(program, "mul") == [[torch.float64]]
    assert dtypes_of(program, "add") == [[torch.float32, torch.float32]]


def test_pairs_of_casts_that_lose_nothing_are_dropped() -> None:
    x = torch.tensor([3, -5, 7])
    chosen = policy(pointwise={"compute_in": {"int64": "int32"}}, aten__neg__default={"compute_in": {"int64": "int32"}})
    program = exported(lambda x: torch.neg(torch.neg(x) + x) * x, x)
    report = legalized(program, chosen, x)
    # One in front, shared, and one behind.
    assert report.casts == 2
    assert targets(program).count("aten._to_copy.default") == 2


def test_pairs_of_casts_that_round_are_kept() -> None:
    program = exported(lambda x: torch.exp(torch.exp(x)), HALF)
    report = legalized(program, policy(aten__exp__default=UPCAST), HALF, rtol=1e-2)
    assert report.casts == 4
    wanted = torch.exp(torch.exp(HALF.float()).half().float()).half()
    assert torch.equal(outputs(program, HALF)[0], wanted)


def test_casts_of_the_model_are_looked_through() -> None:
    program = exported(lambda x: torch.sigmoid(x.to(torch.float32)), HALF)
    LegalizeDtypes(policy(aten__sigmoid__default={"arguments": {"self": "float16"}})).run(GraphEditor(program))
    assert targets(program)[-2:] == ["aten.sigmoid.default", "aten._to_copy.default"]
    assert "aten.to.dtype" not in targets(program)
    assert outputs(program, HALF)[0].dtype == torch.float32


def test_stored_tensors_are_cast_now() -> None:
    model = Holder(lambda m, x: (x + m.a, x * m.a, x - m.b, m.b * 2), a=torch.ones(4).half(), b=torch.ones(4).half())
    program = exported(model, HALF)
    chosen = policy(aten__add__Tensor=UPCAST, aten__mul__Tensor=UPCAST, aten__sub__Tensor=UPCAST)
    report = legalized(program, chosen, HALF)
    assert report.constants == ("b_a", "b_b")
    stored = [spec.target for spec in program.graph_signature.input_specs if spec.kind is not InputKind.USER_INPUT]
    assert "a" not in stored
    assert "a" not in program.state_dict
    assert len({**program.state_dict, **program.constants}) == len(stored)
    # One for x, which all share, and one behind each operator.
    assert report.casts == 5


def test_casts_of_what_is_known_can_be_folded() -> None:
    model = Holder(lambda m, x: x @ m.w.t(), w=torch.randn(4, 4).half())
    program = edge_program(model, HALF)
    legalized(program, policy(aten__mm__default=UPCAST), HALF, rtol=1e-2)
    fold = FoldConstants(byte_budget=32)
    fold.run(GraphEditor(program))
    assert [name for name in targets(program) if "permute" in name] == []


def test_memory_that_is_written_to() -> None:
    def model(m: Any, x: torch.Tensor) -> Any:
        first = torch.exp(m.state)
        m.state.add_(1)
        second = torch.exp(m.state)
        third = torch.exp(x)
        third.add_(second)
        return first, third

    program = exported(Holder(model, state=torch.zeros(3, 4).half()), HALF)
    LegalizeDtypes(policy(aten__exp__default=UPCAST)).run(GraphEditor(program))
    assert dtypes_of(program, "exp") == [[torch.float32], [torch.float32], [torch.float16]]
    first, third = outputs(program, HALF)
    assert torch.equal(first, torch.ones(3, 4).half())
    torch.testing.assert_close(third, HALF.exp() + torch.ones(3, 4).half().exp())


def test_mutated_buffers_of_edge_programs() -> None:
    def model(m: Any, x: torch.Tensor) -> Any:
        m.state.add_(torch.exp(x))
        return torch.exp(m.state)

    edge = to_edge(exported(Holder(model, state=torch.zeros(3, 4)), X))
    wide = {"compute_in": {"float32": "float64"}}
    changed = edge.transform([LegalizeDtypes(policy(aten__exp__default=wide, pointwise=wide))])
    methods = [
        Runtime.get().load_program(each.to_executorch().buffer).load_method("forward") for each in (edge, changed)
    ]
    for x in (X, -X):
        plain, better = (method.execute([x]) for method in methods)
        torch.testing.assert_close(plain, better)


def test_symbolic_and_empty_sizes() -> None:
    class Sized(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.exp(x.permute(1, 0)), torch.exp(x[:0])

    program = exported(Sized(), HALF, dynamic_shapes={"x": {0: Dim("n", min=2, max=9)}})
    edge = to_edge(program)
    changed = edge.transform([LegalizeDtypes(policy(aten__exp__default=UPCAST))])
    x = torch.randn(7, 4).half()
    before = edge.exported_program()
    torch.testing.assert_close(outputs(changed.exported_program(), x), outputs(before, x), rtol=1e-3, atol=1e-3)
    assert before.range_constraints == changed.exported_program().range_constraints
    got = Runtime.get().load_program(changed.to_executorch().buffer).load_method("forward").execute([x])
    torch.testing.assert_close(list(got), outputs(before, x), rtol=1e-3, atol=1e-3)


def test_layout_is_kept() -> None:
    x = torch.randn(1, 3, 2, 2).half().to(memory_format=torch.channels_last)
    program = edge_program(torch.exp, x)
    legalized(program, policy(aten__exp__default=UPCAST), x, rtol=1e-3)
    orders = [node.kwargs["dim_order"] for node in program.graph.nodes if "dim_order" in node.kwargs]
    assert orders == [[0, 2, 3, 1]] * 2
    assert outputs(program, x)[0].is_contiguous(memory_format=torch.channels_last)


def test_an_operator_that_does_not_take_the_dtype() -> None:
    program = exported(torch.ops.aten.gather.default, X, 0, torch.zeros(2, 4, dtype=torch.int64))
    text = str(program.graph)
    wrong = policy(aten__gather__default={"arguments": {"index": "float32"}})
    with pytest.raises(ModelError, match="EK111"):
        LegalizeDtypes(wrong).run(GraphEditor(program))
    assert str(program.graph) == text


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
