"""The table of out variants, and the list of what is missing before anything is lowered."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.passes.lowering import call_nodes, edge_program

from exirkit import EdgeProgramManager, ExecutorchBackendConfig, ToOutVarPass
from exirkit.ir import ModelError, UsageError, find_out_variant, has_trait, ops
from exirkit.passes import ConvertToOutVariants, OutVariantTable, Pass, Pipeline, missing_out_variants, shipped_text

ATEN = torch.ops.aten


@pytest.fixture(scope="module")
def library() -> Any:
    with torch.library._scoped_library("exirkit_test_table", "DEF") as made:
        for name in ("first", "second"):
            made.define(f"{name}(Tensor x) -> Tensor")
            made.impl(name, lambda x: x.clone(), "CompositeExplicitAutograd")
        made.define("second.elsewhere(Tensor y, *, Tensor(a!) out) -> Tensor(a!)")
        made.define("write(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
        made.define("ask(Tensor x) -> Tensor")
        made.impl("ask", lambda x: x.sum() > 0, "CompositeExplicitAutograd")
        yield torch.ops.exirkit_test_table


def test_most_is_read_off_the_schemas() -> None:
    table = OutVariantTable()
    assert table.find(ops.edge.aten.add.Tensor) is ATEN.add.out is find_out_variant(ATEN.add.Tensor)
    assert table.find(ATEN.topk.default) is ATEN.topk.values
    assert table.find(ATEN.sym_size.int) is None


def test_every_core_operator_that_may_reach_the_table_is_covered() -> None:
    table = OutVariantTable()
    missing = []
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        if namespace == "aten":
            packet, _, overload = rest.partition(".")
            op = getattr(getattr(ATEN, packet), overload or "default")
            views = any(argument.alias_info is not None for argument in op._schema.arguments)
            if (
                torch.Tag.core in op.tags
                and not views
                and not has_trait(op, "returns_number")
                and table.find(op) is None
            ):
                missing.append(str(op))
    # Numbers about layouts: arithmetic on sizes is rejected before an out variant is looked up.
    assert sorted(missing) == [
        "aten.sym_is_contiguous.default",
        "aten.sym_storage_offset.default",
        "aten.sym_stride.int",
    ]


def test_an_override_is_used(library: Any) -> None:
    made = edge_program(lambda x: library.first(x) + 1.0, torch.ones(2))
    assert [one.code for one in missing_out_variants(made)] == ["EK435"]
    overrides = {"exirkit_test_table.first.default": "exirkit_test_table.write.default"}
    table = OutVariantTable().with_overrides(overrides)
    assert not missing_out_variants(made, table)
    settings = {"out-variant-overrides": overrides}
    lowered = Pipeline.shipped("to_executorch").run(made, settings=settings).program
    assert call_nodes(lowered, library.write.default)


def test_an_override_in_a_pipeline_file(library: Any) -> None:
    own = "settings: {out-variant-overrides: {exirkit_test_table.first.default: exirkit_test_table.write.default}}\n"
    made = Pipeline.parse(shipped_text("to_executorch").replace("stages:\n  # First", own + "stages:\n  # First"))
    manager = EdgeProgramManager(edge_program(lambda x: library.first(x) + 1.0, torch.ones(2)))
    assert call_nodes(manager.to_executorch(pipeline=made).exported_program(), library.write.default)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"aten.add.Tensor": "aten.topk.values"}, "writes into 2 tensors"),
        ({"aten.relu.default": "aten.add.out"}, "needs the argument 'other'"),
        ({"aten.relu.default": "relu"}, "'relu' is not the name of an operator"),
        ({"aten.nothing.default": "aten.add.out"}, "there is no operator aten.nothing.default"),
    ],
)
def test_overrides_are_checked(overrides: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        ConvertToOutVariants(overrides=overrides)
    assert caught.value.code == "EK436"
    assert message in caught.value.diagnostics[0].message


class Explode(Pass):
    """Notices that lowering has begun."""

    name = "explode"

    def edit(self, editor: Any) -> None:
        raise AssertionError("lowering has begun")


def test_all_methods_are_listed_before_lowering_starts(library: Any) -> None:
    def one(x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = library.second(library.first(x))
        return answer

    def two(x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = library.first(x) + 1.0
        return answer

    programs = {name: edge_program(model, torch.ones(2)) for name, model in (("one", one), ("two", two))}
    text = shipped_text("to_executorch").replace(
        "      - pass: write-back-mutations\n", "      - pass: explode\n      - pass: write-back-mutations\n"
    )
    pipeline = Pipeline.parse(text, passes={"explode": Explode})
    with pytest.raises(ModelError) as caught:
        EdgeProgramManager(programs).to_executorch(pipeline=pipeline)
    found = caught.value.diagnostics
    assert [(each.code, each.location.method) for each in found] == [
        ("EK435", "one"),
        ("EK435", "one"),
        ("EK435", "two"),
    ]
    for each in found:
        assert each.location.node
        assert each.location.source
        assert each.hint


def test_what_lowering_removes_is_not_missed(library: Any) -> None:
    class Asserting(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch._assert_async(library.ask(x), "positive")
            return x + 1.0

    made = edge_program(Asserting(), torch.ones(2))
    assert library.ask.default in {getattr(node.target, "_op", None) for node in made.graph.nodes}
    assert not missing_out_variants(made)
    assert EdgeProgramManager(made).to_executorch().buffer


def test_missing_ones_can_be_kept(library: Any) -> None:
    made = edge_program(lambda x: library.first(x) + 1.0, torch.ones(2))
    config = ExecutorchBackendConfig(to_out_var_pass=ToOutVarPass(ignore_to_out_var_failure=True))
    lowered = EdgeProgramManager(made).to_executorch(config).exported_program()
    assert call_nodes(lowered, library.first.default)
