"""Partitionings that cannot be read, and calls that they do not take."""

from __future__ import annotations

from pathlib import Path

from tests.diagnostics.provocation import provokes
from tests.diagnostics.provocations.passes.delegation import edge

from exirkit import (
    DelegateMappingBuilder,
    generate_partitions_from_list_of_nodes,
    load_partitioner,
    to_backend,
)
from exirkit.cli.commands.new_backend import write_backend
from exirkit.passes import WorthwhilePartitioner, account_of


@provokes("EK448")
def kernels_taken_for_a_backend(scratch: Path) -> None:
    made = load_partitioner(npu(scratch, f"{HEAD}rules:\n- op: aten.sin.default\n"))
    WorthwhilePartitioner(made, inside="official_host")


HEAD = "partitioning: 1\nbackend: Npu\n"


def npu(scratch: Path, text: str) -> Path:
    path = scratch / "npu.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@provokes("EK494")
def partitioning_with_a_repeated_key(scratch: Path) -> None:
    load_partitioner(npu(scratch, f"{HEAD}backend: Other\n"))


@provokes("EK495")
def partitioning_with_a_key_that_there_is_not(scratch: Path) -> None:
    load_partitioner(npu(scratch, f"{HEAD}rules:\n- {{op: aten.sin.default, dtypes: f32}}\n"))


@provokes("EK496")
def partitioning_of_an_operator_that_there_is_not(scratch: Path) -> None:
    load_partitioner(npu(scratch, f"{HEAD}rules:\n- op: [aten.sin.default, aten.coss.default]\n"))


@provokes("EK497")
def call_that_stays(scratch: Path) -> object:
    rules = "rules:\n- {name: bytes, op: 'aten.[se]*', dtype: i8}\n"
    rules += "- {name: matrices, op: aten.sin.*, rank: {at_least: 2}}\n"
    account = account_of(edge().exported_program(), load_partitioner(npu(scratch, HEAD + rules)))
    return [one.diagnostic() for one in account.not_taken]


@provokes("EK498")
def entry_without_an_identifier(_: Path) -> None:
    DelegateMappingBuilder().insert_delegate_mapping_entry(handles=3)


@provokes("EK499")
def partitions_of_nothing_in_particular(_: Path) -> None:
    generate_partitions_from_list_of_nodes(edge().exported_program().graph_module)


@provokes("EK744")
def cosine_for_the_demo_backend(_: Path) -> None:
    to_backend("BackendWithCompilerDemo", edge().exported_program(), [])


@provokes("EK725")
def backend_with_a_hyphen(scratch: Path) -> None:
    write_backend("tiny-npu", scratch)
