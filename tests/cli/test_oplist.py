"""`exirkit oplist`: the same lists as the official tool writes."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tests.cli.conftest import Invoke, document

from exirkit import to_edge
from exirkit.passes import ExecutorchBackendConfig


class Varied(torch.nn.Module):
    """Calls with lists, indices, several dtypes, another dim order, and several results."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4, bias=False)
        self.convolution = torch.nn.Conv2d(1, 2, 3, padding=1)

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> Any:
        first, second = torch.split(x, 2)
        last = self.convolution(x[None, None]).to(memory_format=torch.channels_last)
        joined = torch.cat([self.linear(x), x], 0)
        return joined.sum(), last * 2, x[index].to(torch.float16), torch.topk(x, 2), first + second, (x > 0).any()


@pytest.fixture(params=[0, 1, 2])
def varied(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    exported = torch.export.export(Varied().eval(), (torch.randn(4, 4), torch.tensor([0, 1])))
    path = tmp_path / "varied.pte"
    config = ExecutorchBackendConfig(optimization_level=request.param)
    path.write_bytes(to_edge(exported).to_executorch(config).buffer)
    return path


@pytest.mark.executorch
def test_the_official_tool_lists_the_same(invoke: Invoke, varied: Path, tmp_path: Path) -> None:
    from executorch.codegen.tools.gen_oplist import gen_oplist

    official = tmp_path / "official.yaml"
    with contextlib.redirect_stdout(io.StringIO()):
        gen_oplist(str(official), model_file_path=str(varied))
    assert invoke("oplist", varied, "-o", tmp_path / "ours.yaml").exit_code == 0
    expected, found = (yaml.safe_load((tmp_path / name).read_text()) for name in ("official.yaml", "ours.yaml"))
    for listed in (expected, found):
        listed["et_kernel_metadata"] = {name: sorted(keys) for name, keys in listed["et_kernel_metadata"].items()}
    assert found == expected


@pytest.mark.executorch
def test_the_official_build_reads_it(invoke: Invoke, program_file: Path, tmp_path: Path) -> None:
    from torchgen.selective_build.selector import SelectiveBuilder

    assert invoke("oplist", program_file, "-o", tmp_path / "ours.yaml").exit_code == 0
    selector = SelectiveBuilder.from_yaml_path(str(tmp_path / "ours.yaml"))
    assert selector.is_operator_selected("aten::add.out")
    assert not selector.is_operator_selected("aten::mul.out")


def test_several_files_without_types(invoke: Invoke, program_file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pte"
    other.write_bytes(program_file.read_bytes())
    found = document(invoke("oplist", program_file, other, "--no-types", "--json").stdout)
    assert vars(found.et_kernel_metadata) == {"aten::add.out": ["default"]}
    assert vars(found.operators)["aten::add.out"].debug_info == [str(program_file), str(other)]


def test_it_is_printed_unless_a_file_is_named(invoke: Invoke, program_file: Path, tmp_path: Path) -> None:
    listed = yaml.safe_load(invoke("oplist", program_file).stdout)
    assert listed["et_kernel_metadata"] == {"aten::add.out": ["v1/6;0,1|6;0|6;0,1|6;0,1"]}
    assert invoke("oplist", program_file, "-o", tmp_path / "list.yaml").stdout == ""
    assert "EK712" in invoke("oplist", program_file, "-o", tmp_path / "list.txt").stderr
