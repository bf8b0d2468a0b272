"""The code of the documents about delegates runs with only its imports changed, and does what they say."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from tests.docs import delegate_blocks as blocks
from torch import Tensor

from exirkit import get_delegation_info
from exirkit.runtime_ref import Runtime

FLOWS = (
    blocks.LOWER_WHOLE, blocks.SAVE, blocks.COMPOSE, blocks.PARTITION, blocks.TWO_BACKENDS,
    blocks.ONE_PARTITIONER_FOR_TWO, blocks.MAPPING_BUILDERS, blocks.SUBGRAPHS, blocks.SOURCES,
)  # fmt: skip

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What all blocks define, and under `saved` the file that each has written."""
    directory = tmp_path_factory.mktemp("documents")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        module = ModuleType("documents_under_test")
        patch.setitem(sys.modules, module.__name__, module)
        saved: list[bytes] = []
        for number, block in enumerate(FLOWS):
            # Tracing reads the source of what it meets.
            path = directory / f"block_{number}.py"
            path.write_text(block)
            exec(compile(block, str(path), "exec"), module.__dict__)
            file = Path("delegate.pte")
            saved.append(file.read_bytes() if file.exists() else b"")
        return {**module.__dict__, "saved": saved}


def executed(buffer: bytes, *inputs: Tensor) -> list[Tensor]:
    return Runtime.get().load_program(buffer, sanitize=True).load_method("forward").execute(list(inputs))


def test_flows(names: dict[str, Any]) -> None:
    x, y = torch.tensor([0.3]), torch.tensor([[1.0, 2.0, -3.0]])
    assert torch.equal(executed(names["saved"][1], x)[0], x.sin())
    for got, wanted in zip(executed(names["saved"][2], x), names["composite_model"](x), strict=True):
        torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(executed(names["saved"][3], y + 1, y)[0], names["model"](y + 1, y))
    assert len(names["exec_prog"].executorch_program.execution_plan[0].delegates) == 2


def test_two_backends(names: dict[str, Any]) -> None:
    both = names["exported_program_backend_1_and_2"].graph_module
    info = get_delegation_info(both)
    assert (info.num_delegated_subgraphs, info.num_delegated_nodes, info.num_non_delegated_nodes) == (3, 6, 0)
    ids = {module.backend_id for name, module in both.named_children() if name.startswith("lowered")}
    assert ids == {"Backend1", "BackendWithCompilerDemo"}
    y = torch.tensor([[1.0, 2.0, -3.0]])
    torch.testing.assert_close(
        executed(names["delegated"].to_executorch().buffer, y, y - 5)[0], names["model"](y, y - 5)
    )


def test_matches_and_sources(names: dict[str, Any]) -> None:
    (match,) = names["match_result"]
    assert any("addmm" in node.name for node in match.nodes_map.values())
    found = names["module_partitions"]
    # Without TorchDynamo, torch does not tell two calls of one module apart: those of `linear1` are one partition.
    calls = {
        kind: [sum("addmm" in node.name or "relu" in node.name for node in one.nodes) for one in partitions]
        for kind, partitions in found.items()
    }
    assert calls == {torch.nn.Linear: [2, 1], torch.nn.ReLU: [1]}


def test_capabilities(names: dict[str, Any]) -> None:
    graph_module = names["core_aten_ep"].graph_module
    given = {"graph_module": graph_module}
    exec(blocks.CAPABILITIES, given)
    listed: Any = given["partition_list"]
    assert [[node.name for node in one.nodes] for one in listed] == [["add", "mul"], ["mul_1", "add_1"]]
