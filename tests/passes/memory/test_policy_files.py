"""Policy files: what is accepted, what is wrong with the others and where, and the schema that is shipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.patterns.syntax.test_rulebook_schema import fits

import exirkit
from exirkit.ir import ModelError
from exirkit.passes import (
    MemoryPolicy,
    MemoryPool,
    PlacementRule,
    load_memory_policy,
    memory_policy_schema,
    memory_policy_schema_text,
    parse_memory_policy,
)

WHOLE = """policy: 1
name: small-board
doc: On-chip memory for what convolutions make.
planner: greedy
in_place: true
share_views: false
pools:
  - {name: sram, mem_id: 2, limit: 256 KiB, alignment: 64, priority: 1, doc: on the chip}
  - {name: npu, mem_id: 3, limit: 1.5 kB}
  - {name: dram, mem_id: 1}
default: dram
spill: [sram, dram]
rules:
  - {name: made by convolutions, op: [aten.convolution.*, aten.mm.default], nbytes: {at_most: 64 KiB}, pool: sram}
  - {user: aten.add.Tensor, dtype: [f32, i8], module: 'encoder.*', pool: npu, spill: false, doc: because}
  - {value: [x, 'kv_*'], kind: buffer, where: ["rank(x) == 4", "traffic > 2 * nbytes"], pool: dram}
inputs: {x: provided, 'kv_*': planned}
outputs: provided
buffers: planned
"""
SMALL = "policy: 1\npools: [{name: a}, {name: b}]\n"


def test_everything_that_can_be_said() -> None:
    policy = parse_memory_policy(WHOLE)
    assert [(number, pool.limit) for number, pool in policy.numbered_pools()] == [(2, 262144), (3, 1500), (1, None)]
    assert policy.filling_order == ("sram", "dram", "npu")
    assert policy.default_pool == "dram"
    assert policy.way_of("sram") == ("sram", "dram")
    assert policy.way_of("sram", spill=False) == policy.way_of("sram")[:1]
    assert policy.way_of("npu") == ("npu",)
    assert policy.rules[0].nbytes is not None
    assert policy.rules[0].nbytes.at_most == 65536
    assert policy.rules[1].user == ("aten.add.Tensor",)
    assert MemoryPolicy.model_validate(policy.model_dump()) == policy


def test_priority_is_the_order_where_nothing_else_is_said() -> None:
    pools = (MemoryPool(name="a"), MemoryPool(name="b", priority=2), MemoryPool(name="c", priority=2))
    policy = MemoryPolicy(policy=1, pools=pools)
    assert policy.way_of("b") == ("b", "c", "a")
    assert policy.way_of("c") == ("c", "a")
    assert policy.default_pool == "b"
    assert MemoryPolicy(policy=1, pools=pools, spill=()).way_of("b") == ("b",)


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "board.yaml"
    path.write_text(WHOLE, encoding="utf-8")
    assert load_memory_policy(path) == parse_memory_policy(WHOLE)
    path.write_text(f"{SMALL}rules: [{{pool: c}}]\n", encoding="utf-8")
    with pytest.raises(ModelError) as caught:
        load_memory_policy(str(path))
    assert caught.value.diagnostics[0].location.file == str(path)
    with pytest.raises(FileNotFoundError):
        load_memory_policy(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "code", "message", "line", "column"),
    [
        ("", "EK480", "the file is empty", 1, 1),
        ("policy: 1\npools: [&a {name: a}]", "EK480", "anchors", 2, 9),
        ("pools: [{name: a}]", "EK481", "missing key 'policy'", 1, 1),
        ("policy: 2\npools: [{name: a}]", "EK481", "should be 1", 1, 9),
        ("policy: 1\npools: []", "EK481", "is empty", 2, 8),
        (f"{SMALL}pool: 3", "EK481", "unknown key 'pool'", 3, 1),
        (f"{SMALL}rules: [{{pool: a, sise: 4}}]", "EK481", "unknown key 'sise'", 3, 19),
        (f"{SMALL}rules: [{{op: aten.add.Tensor}}]", "EK481", "missing key 'pool'", 3, 9),
        ("policy: 1\npools: [{name: a, limit: 12 parsecs}]", "EK481", "not a number of bytes", 2, 26),
        ("policy: 1\npools: [{name: a, limit: 0.3 B}]", "EK481", "not a whole number of bytes", 2, 26),
        ("policy: 1\npools: [{name: a, limit: true}]", "EK481", "not a number of bytes", 2, 26),
        ("policy: 1\npools: [{name: a, limit: -4}]", "EK481", "greater than or equal to 0", 2, 26),
        ("policy: 1\npools: [{name: a, alignment: 0}]", "EK481", "greater than or equal to 1", 2, 30),
        ("policy: 1\npools: [{name: a, mem_id: 0}]", "EK481", "greater than or equal to 1", 2, 27),
        ("policy: 1\npools: [{name: a, device: tpu}]", "EK481", "match pattern", 2, 27),
        (f"{SMALL}inputs: maybe", "EK481", "'planned' or 'provided'", 3, 9),
        (f"{SMALL}inputs: {{x: maybe}}", "EK481", "'planned' or 'provided'", 3, 13),
        (f"{SMALL}inputs: [x]", "EK481", "'planned' or 'provided'", 3, 9),
        (f"{SMALL}rules: [{{pool: a, kind: constant}}]", "EK481", "'input', 'output'", 3, 25),
        (f"{SMALL}rules: [{{pool: a, nbytes: {{at_least: 9, at_most: 3}}}}]", "EK481", "no value has at least", 3, 27),
        ("policy: 1\npools: [{name: a}, {name: a}]", "EK482", "two pools 'a'", 2, 27),
        ("policy: 1\npools: [{name: a}, {name: b, mem_id: 1}]", "EK482", "both have arena 1", 2, 38),
        (f"{SMALL}default: c", "EK482", "there is no pool 'c'", 3, 10),
        (f"{SMALL}spill: [a, c]", "EK482", "there is no pool 'c'", 3, 12),
        (f"{SMALL}spill: [a, b, a]", "EK482", "stands twice", 3, 15),
        (f"{SMALL}rules:\n- {{pool: a, op: aten.ad.Tensor}}", "EK482", "no operator aten.ad.Tensor", 4, 17),
        (f"{SMALL}rules:\n- {{pool: a, user: [x.*, aten.nothing]}}", "EK482", "no operator aten.nothing", 4, 25),
        (f"{SMALL}rules: [{{pool: a, dtype: [f32, f31]}}]", "EK482", "there is no dtype 'f31'", 3, 32),
        (f"{SMALL}rules: [{{pool: a, where: rank(x) ==}}]", "EK220", "this is not a program", 3, 26),
        (f"{SMALL}rules: [{{pool: a, where: rank(y) == 4}}]", "EK220", "'y' has no meaning here", 3, 26),
        (f"{SMALL}rules: [{{pool: a, where: rnk(x) == 4}}]", "EK220", "rnk", 3, 26),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(text: str, code: str, message: str, line: int, column: int) -> None:
    with pytest.raises(ModelError) as caught:
        parse_memory_policy(text, "board.yaml")
    (finding,) = caught.value.diagnostics
    assert finding.code == code
    assert message in finding.message
    place = finding.location
    assert (place.file, place.line, place.column) == ("board.yaml", line, column), place


def test_all_that_is_wrong_is_said_at_once_and_in_order() -> None:
    text = f"{SMALL}default: x\nspill: [q]\nrules:\n- {{pool: c, dtype: f33, where: foo(x)}}\n"
    with pytest.raises(ModelError) as caught:
        parse_memory_policy(text)
    assert [finding.location.line for finding in caught.value.diagnostics] == [3, 4, 6, 6, 6]


def test_a_policy_made_in_python_is_checked_as_well() -> None:
    from exirkit.passes import MemoryPlanningPass

    policy = MemoryPolicy(policy=1, pools=(MemoryPool(name="a"),), rules=(PlacementRule(pool="b", where=("?",)),))
    with pytest.raises(ModelError) as caught:
        MemoryPlanningPass(policy=policy)
    assert [finding.code for finding in caught.value.diagnostics] == ["EK482", "EK220"]
    assert caught.value.diagnostics[0].location.file == "<policy>.rules.0.pool"


def test_the_shipped_schema_is_the_one_that_the_models_make() -> None:
    shipped = Path(exirkit.__file__).parent / "passes/memory/policy/policy.schema.json"
    assert shipped.read_text(encoding="utf-8") == memory_policy_schema_text()
    assert memory_policy_schema() == json.loads(memory_policy_schema_text())


def test_the_schema_and_the_models_are_of_one_opinion() -> None:
    import yaml

    schema = memory_policy_schema()
    small = {"policy": 1, "pools": [{"name": "a"}]}
    both: list[tuple[Any, bool]] = [
        (yaml.safe_load(WHOLE), True),
        (small, True),
        ({**small, "policy": 2}, False),
        ({**small, "pools": []}, False),
        ({**small, "pools": [{"name": "a", "limit": "256 KiB"}]}, True),
        ({**small, "pools": [{"name": "a", "limit": "256KiB"}]}, True),
        ({**small, "pools": [{"name": "a", "limit": "256 Kib"}]}, False),
        ({**small, "pools": [{"name": "a b"}]}, False),
        ({**small, "pools": [{"name": "a", "device": "cuda:1"}]}, True),
        ({**small, "inputs": "provided", "outputs": {"0": "planned"}}, True),
        ({**small, "inputs": "nowhere"}, False),
        ({**small, "rules": [{"pool": "a", "op": "x", "kind": ["input", "output"]}]}, True),
        ({**small, "rules": [{"pool": "a", "kind": "constant"}]}, False),
        ({**small, "rules": [{"op": "x"}]}, False),
    ]
    for data, right in both:
        assert fits(data, schema, schema) is right, data
        try:
            MemoryPolicy.model_validate(data)
        except ValueError:
            assert not right, data
        else:
            assert right, data


def test_every_key_is_described() -> None:
    schema = memory_policy_schema()
    for entry in (schema, *schema["$defs"].values()):
        assert entry["description"]
        assert all(each["description"] for each in entry["properties"].values())


def test_bytes_that_are_not_text(tmp_path: Path) -> None:
    path = tmp_path / "board.yaml"
    path.write_bytes(b"policy: 1\nname: \xff\n")
    with pytest.raises(ModelError) as caught:
        load_memory_policy(path)
    assert (caught.value.code, caught.value.diagnostics[0].location.file) == ("EK480", str(path))
