"""Partitioning files: what is accepted, what is wrong with the others and where, and the schema that is shipped."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.patterns.syntax.test_rulebook_schema import fits

import exirkit
from exirkit.ir import ModelError
from exirkit.passes import (
    DataPartitioner,
    Partitioning,
    TakingRule,
    load_partitioner,
    parse_partitioning,
    partitioning_schema,
    partitioning_schema_text,
)
from exirkit.patterns import read_yaml

WHOLE = """partitioning: 1
name: little-npu
doc: Matrices on the chip.
backend: Npu
compile_specs: {core: v2, order: ''}
rules:
  - name: fused
    match: |
      y = aten.addmm.default(b, x, w)
      return aten.relu.default(y)
    vars: {b: 'f32[N]', x: 'f32[M, K]', w: 'f32[K, N]'}
    where: "K % 4 == 0"
    priority: 5
    doc: because
  - {op: [aten.add.*, aten.mul.Tensor], dtype: f32, argument_dtype: [f32, i8], rank: {at_most: 4}}
  - {op: aten.mm, argument_rank: {at_least: 2}, nbytes: {at_most: 64 KiB}, static: true, module: 'encoder.*',
     where: ["rank(x) == 2", "macs > 100 and elements < 1000 and nbytes < 4096"], backend: Other, compile_specs: {}}
  - {op: aten.sub.*, leave: true}
minimum: {nodes: 2, macs: 1, elements: 0, nbytes: 1 KiB}
join: all
state: handed
mutable_state: keep
keep_whole:
  - {op: aten.linear.default, where: "rank(x) == 2", doc: faster so}
  - {op: [aten.hardswish.default, aten.hardsigmoid]}
"""
HEAD = "partitioning: 1\nbackend: B\n"


def test_everything_that_can_be_said() -> None:
    made = parse_partitioning(WHOLE)
    assert [place for place, _ in made.asked_rules] == [0, 1, 2, 3]
    assert (made.title_of(0), made.title_of(1)) == ("fused", "rule 2")
    assert made.minimum.nbytes == 1024
    assert made.rules[2].backend == "Other"
    assert Partitioning.model_validate(made.model_dump()) == made
    assert fits(read_yaml(WHOLE, "f").data, partitioning_schema(), partitioning_schema())


def test_higher_priorities_are_asked_first() -> None:
    rules = tuple(TakingRule(op=("aten.add.Tensor",), priority=number) for number in (0, 3, -1, 3))
    made = Partitioning(partitioning=1, backend="B", rules=rules)
    assert [place for place, _ in made.asked_rules] == [1, 3, 0, 2]


def test_the_shipped_schema_is_the_one_that_the_models_make() -> None:
    shipped = Path(exirkit.__file__).parent / "passes/delegate/partitioning/partitioning.schema.json"
    assert shipped.read_text(encoding="utf-8") == partitioning_schema_text()


def test_a_file_gives_a_partitioner(tmp_path: Path) -> None:
    path = tmp_path / "npu.yaml"
    path.write_text(WHOLE, encoding="utf-8")
    assert load_partitioner(path).partitioning == parse_partitioning(WHOLE)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError) as caught:
        load_partitioner(path)
    assert (caught.value.code, caught.value.diagnostics[0].location.file) == ("EK494", str(path))
    with pytest.raises(FileNotFoundError):
        load_partitioner(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "code", "message", "line", "column"),
    [
        ("", "EK494", "the file is empty", 1, 1),
        ("partitioning: 1\nbackend: &a B", "EK494", "anchors", 2, 10),
        (f"{HEAD}rules: []", "EK495", "is empty", 3, 8),
        (f"{HEAD}rules: [{{op: aten.add.Tensor, dtipe: f32}}]", "EK495", "unknown key 'dtipe'", 3, 31),
        ("partitioning: 1\nrules: [{op: aten.add.Tensor}]", "EK495", "missing key 'backend'", 1, 1),
        (f"{HEAD}rules: [{{op: a.b, match: return x}}]", "EK495", "`op` or `match`, not both", 3, 9),
        (f"{HEAD}rules: [{{vars: {{x: any}}}}]", "EK495", "there is no `match`", 3, 9),
        (f"{HEAD}rules: [{{leave: true, backend: C}}]", "EK495", "calls that stay go to no backend", 3, 9),
        (f"{HEAD}rules: [{{rank: {{at_least: 3, at_most: 2}}}}]", "EK495", "no value has at least 3", 3, 16),
        (f"{HEAD}rules: [{{op: aten.add.Tensor}}]\nminimum: {{nodes: 0}}", "EK495", "or equal to 1", 4, 18),
        (f"{HEAD}rules: [{{op: aten.add.Tensor}}]\nstate: drop", "EK495", "'keep' or 'handed'", 4, 8),
        (f"{HEAD}rules:\n- {{op: [aten.x.*, aten.ad.Tensor]}}", "EK496", "no operator aten.ad.Tensor", 4, 19),
        (f"{HEAD}rules: [{{dtype: f33}}]", "EK496", "there is no dtype 'f33'", 3, 17),
        (f"{HEAD}rules: [{{where: rnk(x) == 2}}]", "EK220", "rnk", 3, 17),
        (f"{HEAD}rules: [{{where: rank(y) == 2}}]", "EK220", "'y' has no meaning here", 3, 17),
        (f"{HEAD}rules: [{{match: 'return aten.relx.default(x)', vars: {{x: any}}}}]", "EK213", "relx", 3, 25),
        (f"{HEAD}rules: [{{match: 'return aten.relu.default(x)', vars: {{x: 'f3[N]'}}}}]", "EK216", "f3", 3, 59),
        (f"{HEAD}rules: [{{match: 'return aten.relu.default(x)', vars: {{x: any}}, where: z > 1}}]", "EK212", "z",
         3, 71),
        (f"{HEAD}rules: [{{match: 'return aten.relu.default(x)', vars: {{x: any, y: any}}}}]", "EK218", "'y'", 3, 66),
        (f"{HEAD}rules: [{{op: '*'}}]\nkeep_whole: [{{op: 'aten.*'}}]", "EK496", "one by one", 4, 20),
        (f"{HEAD}rules: [{{op: '*'}}]\nkeep_whole: [{{op: aten.linea.default}}]", "EK496", "aten.linea", 4, 19),
        (f"{HEAD}rules: [{{op: '*'}}]\nkeep_whole: [{{op: []}}]", "EK495", "is empty", 4, 19),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(text: str, code: str, message: str, line: int, column: int) -> None:
    with pytest.raises(ModelError) as caught:
        parse_partitioning(text, "npu.yaml")
    (finding,) = caught.value.diagnostics
    assert (finding.code, finding.location.file) == (code, "npu.yaml")
    assert message in finding.message
    assert (finding.location.line, finding.location.column) == (line, column)


def test_all_that_is_wrong_is_said_at_once_and_in_order() -> None:
    text = f"{HEAD}rules:\n- {{op: aten.ad, dtype: f33}}\n- {{where: foo(x)}}\nkeep_whole: [{{op: aten.lin}}]\n"
    with pytest.raises(ModelError) as caught:
        parse_partitioning(text)
    assert [finding.location.line for finding in caught.value.diagnostics] == [4, 4, 5, 6]


def test_one_made_in_python_is_checked_as_well() -> None:
    with pytest.raises(ModelError) as caught:
        DataPartitioner(Partitioning(partitioning=1, backend="B", rules=(TakingRule(op=("aten.nothing",)),)))
    assert caught.value.code == "EK496"
