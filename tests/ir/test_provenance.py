"""Where a node comes from: the line of the user's model, never one of torch, and the path of the module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram

from exirkit import to_edge
from exirkit.ir import called_graphs, is_torch_file, is_users_file, locate, module_path, source_line, stack_frames

HERE = __file__


class Block(torch.nn.Module):
    """Calls modules of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 3, padding=1)
        self.act = torch.nn.ReLU()

    def forward(self, x: torch.Tensor) -> Any:
        return self.act(self.conv(x))  # in a block


class Model(torch.nn.Module):
    """Blocks in a container, one of their modules used again, and control flow."""

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(Block(), Block())
        self.again = self.features[0].conv
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> Any:
        y: torch.Tensor = self.again(self.features(x))  # type: ignore[operator]  # used again
        z = torch.cond(y.sum() > 0, lambda a: torch.relu(a) + 1, lambda a: a.sin(), (y,))  # chosen
        return self.norm(z), torch.nn.functional.softmax(y, 1)


def line_of(text: str) -> int:
    lines = Path(HERE).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith(f"# {text}"))


@pytest.fixture(scope="module")
def exported() -> ExportedProgram:
    with torch.no_grad():
        return torch.export.export(Model().eval(), (torch.rand(1, 3, 8, 8),))


def test_calls_of_torch_modules_lead_to_the_line_that_calls_them(exported: ExportedProgram) -> None:
    convs = list(exported.graph.find_nodes(op="call_function", target=torch.ops.aten.conv2d.default))
    places = [(source_line(node), module_path(node)) for node in convs]
    block = f"{HERE}:{line_of('in a block')} in forward:  return self.act(self.conv(x))  # in a block"
    assert places[:2] == [(block, "features.0.conv"), (block, "features.1.conv")]
    assert str(places[2][0]).startswith(f"{HERE}:{line_of('used again')} in forward:")
    assert places[2][1] == "again"


def test_no_call_leads_into_torch(exported: ExportedProgram) -> None:
    for program in (exported, to_edge(exported).exported_program()):
        for module in called_graphs(program.graph_module):
            for node in module.graph.nodes:
                if node.op == "call_function" and node.meta.get("stack_trace"):
                    assert str(source_line(node)).startswith(f"{HERE}:"), node


def test_a_diagnostic_says_both() -> None:
    program = torch.export.export(Block().eval(), (torch.rand(1, 3, 8, 8),))
    (conv,) = program.graph.find_nodes(op="call_function", target=torch.ops.aten.conv2d.default)
    place = locate(conv)
    assert place.render()[1:] == [f"       {place.source}", "       in module conv"]
    assert place.origin() == f"{place.source}, in module conv"


def test_a_model_of_torch_s_modules_alone_has_modules_but_no_lines() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    program = torch.export.export(model.eval(), (torch.rand(1, 2),))
    (relu,) = program.graph.find_nodes(op="call_function", target=torch.ops.aten.relu.default)
    assert (source_line(relu), module_path(relu), locate(relu).origin()) == (None, "1", "in module 1")


def test_frames_are_read_as_python_prints_them() -> None:
    trace = 'File "a,b.py", line 3, in forward\n    return x\nFile "c.py", line 4, in f\nnot a frame\n'
    assert stack_frames(trace) == [("a,b.py", 3, "forward", "return x"), ("c.py", 4, "f", "not a frame")]
    assert stack_frames(None) == []


def test_whose_files_are_whose() -> None:
    assert is_torch_file(torch.nn.modules.conv.__file__)
    assert is_torch_file("/elsewhere/lib/python3.12/site-packages/torch/nn/modules/conv.py")
    assert not is_torch_file("/home/me/torch_models/model.py")
    assert is_users_file(HERE)
    assert not is_users_file(locate.__code__.co_filename)
    assert not is_users_file(Path.__init__.__code__.co_filename if hasattr(Path.__init__, "__code__") else "<frozen>")
