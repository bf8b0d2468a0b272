"""Results lie in memory as torch.export has noted, whatever operators are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as functional
from torch.export import Dim, ExportedProgram, export

from exirkit import EdgeCompileConfig, to_edge
from exirkit.ir import GraphEditor, dim_order_from_stride
from exirkit.passes import DecomposeWholeGraph, StateResultLayouts

_Function = Callable[[torch.Tensor], torch.Tensor]

# Of what is made of views, and of what is not; each result is channels last in eager torch.
KEPT: dict[str, _Function] = {
    "gated": lambda x: functional.glu(x, 1),
    "gated columns": lambda x: functional.glu(x, 3),
    "written row": lambda x: torch.select_scatter(x, torch.ones(2, 8, 6), 1, 1) if x.shape[2] == 8 else x + 1,
    "written rows": lambda x: torch.slice_scatter(x, x[:, :2], 1, 1, 3),
    "padded": lambda x: functional.pad(x, (1, 1)),
    "cropped": lambda x: functional.pad(x, (-1, -1)),
    "padded by reflection": lambda x: functional.pad(x, (1, 1, 1, 1), mode="reflect"),
    "padded by what is opposite": lambda x: functional.pad(x, (1, 1, 1, 1), mode="circular"),
    "enlarged": lambda x: functional.interpolate(x, scale_factor=2),
    "enlarged smoothly": lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
    "pooled": lambda x: functional.avg_pool2d(x, 2),
    "pooled by maximum": lambda x: functional.max_pool2d(x, 2),
    "pooled to a size": lambda x: functional.adaptive_avg_pool2d(x, (3, 3)),
    "shuffled pixels": lambda x: functional.pixel_shuffle(x, 2),
    "group norm": lambda x: functional.group_norm(x, 2),
    "batch norm": lambda x: functional.batch_norm(x, torch.zeros(4), torch.ones(4)),
    "softmax": lambda x: functional.softmax(x, 1),
    "sums so far": lambda x: x.cumsum(1),
    "maxima so far": lambda x: x.cummax(1)[0],
    "sorted": lambda x: x.sort(1)[0],
    "greatest": lambda x: x.topk(2, 1)[0],
    "beyond the median": lambda x: x - x.median(1, keepdim=True)[0],
    "reversed": lambda x: torch.flip(x, [2]),
    "triangle": lambda x: torch.tril(x),
    "chosen": lambda x: x.index_select(1, torch.tensor([1, 0])),
    "filled": lambda x: x.index_fill(1, torch.tensor([1]), 1.0),
    "masked": lambda x: x.masked_fill(x > 0, 1.0),
    "joined": lambda x: torch.cat([x, x], 1),
    "interpolated": lambda x: torch.lerp(x, x + 1, 0.5),
    "mish": functional.mish,
    "not of some": lambda x: torch.isin(x, torch.ones(3)).logical_not(),
    "convolved": lambda x: functional.conv2d(x, torch.ones(3, 4, 3, 3)),
    "like": torch.zeros_like,
    "cast": lambda x: x.half(),
}
# Torch does not take these where a size varies.
OF_KNOWN_SIZES: dict[str, _Function] = {
    "pooled to maxima": lambda x: functional.adaptive_max_pool2d(x, (3, 3)),
    "differences": lambda x: torch.diff(x, dim=2),
    "product of channels": lambda x: torch.einsum("nchw,ck->nkhw", x, torch.ones(4, 3)),
    "written diagonal": lambda x: torch.diagonal_scatter(x, torch.ones(4, 6, 2), 0, 0, 2),
}


class _Each(torch.nn.Module):
    def __init__(self, functions: dict[str, _Function]) -> None:
        super().__init__()
        self._functions = functions

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [one(x) for one in self._functions.values()]


def _image(layout: torch.memory_format = torch.channels_last) -> torch.Tensor:
    return torch.randn(2, 4, 8, 6).to(memory_format=layout)


def _exported(functions: dict[str, _Function], x: torch.Tensor, dynamic: Any = None) -> ExportedProgram:
    return export(_Each(functions).eval(), (x,), dynamic_shapes=dynamic)


def _orders(program: ExportedProgram) -> list[list[int]]:
    values = [one.meta["val"] for one in program.graph.output_node().args[0]]
    return [dim_order_from_stride(one.stride(), one.shape) for one in values]


def _lost(functions: dict[str, _Function], exported: ExportedProgram, made: ExportedProgram) -> list[str]:
    pairs = zip(functions, _orders(exported), _orders(made), strict=True)
    return [f"{name}: {found} instead of {noted}" for name, noted, found in pairs if noted != found]


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_results_lie_as_noted(layout: torch.memory_format) -> None:
    functions = {**KEPT, **OF_KNOWN_SIZES}
    exported = _exported(functions, _image(layout))
    made = to_edge(exported).exported_program()
    assert _lost(functions, exported, made) == []
    if layout is torch.channels_last:
        assert [0, 2, 3, 1] in _orders(made)


def test_results_lie_as_noted_where_sizes_vary() -> None:
    functions = {name: one for name, one in KEPT.items() if name != "written row"}
    exported = _exported(functions, _image(), ({2: 2 * Dim("half", min=2, max=20)},))
    assert _lost(functions, exported, to_edge(exported).exported_program()) == []


def test_what_is_stated_outlives_a_second_trace() -> None:
    exported = _exported(OF_KNOWN_SIZES, _image())
    StateResultLayouts().run(GraphEditor(exported))
    traced = DecomposeWholeGraph().call(exported).exported_program
    assert _lost(OF_KNOWN_SIZES, exported, to_edge(traced).exported_program()) == []


def test_values_are_those_of_eager_torch() -> None:
    functions = {name: one for name, one in {**KEPT, **OF_KNOWN_SIZES}.items() if name != "cast"}
    x = _image()
    found = to_edge(_exported(functions, x)).exported_program().module()(x)
    for name, one, wanted in zip(functions, found, _Each(functions)(x), strict=True):
        torch.testing.assert_close(one, wanted, msg=name)


def _count(program: ExportedProgram, part: str) -> int:
    return sum(part in str(node.target) for node in program.graph.nodes)


def test_a_view_promises_nothing() -> None:
    functions: dict[str, _Function] = {
        "permuted": lambda x: x.permute(0, 2, 3, 1),
        "permuted and doubled": lambda x: x.permute(0, 2, 3, 1) * 2,
        "parts of it": lambda x: torch.cat(torch.chunk(x.permute(0, 2, 3, 1), 2, 1)),
        "contiguous": lambda x: x.permute(0, 2, 3, 1).contiguous() + 1,
    }
    exported = _exported(functions, _image(torch.contiguous_format))
    assert [0, 2, 3, 1] not in _orders(to_edge(exported).exported_program())
    assert _count(to_edge(exported).exported_program(), "_to_dim_order_copy") == 0


def test_no_copy_stays_where_layouts_agree() -> None:
    functions: dict[str, _Function] = {"sum": lambda x: x + 1, "mean": lambda x: x.mean(1, True), "relu": torch.relu}
    made = to_edge(_exported(functions, _image())).exported_program()
    assert _count(made, "copy") == 0
    assert [node.op for node in made.graph.nodes].count("call_function") == 3


def test_without_dim_orders_nothing_is_stated() -> None:
    exported = _exported({"product": OF_KNOWN_SIZES["product of channels"]}, _image())
    made = to_edge(exported, compile_config=EdgeCompileConfig(_skip_dim_order=True)).exported_program()
    assert _count(made, "_to_copy") == 0


def test_buffers_keep_the_layout_they_have() -> None:
    class Holder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("held", torch.zeros(2, 4, 8, 6))

        held: torch.Tensor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            gated = functional.glu(torch.cat([x, x], 1), 1)
            self.held.copy_(gated)
            return gated

    exported = export(Holder(), (_image(),))
    made = to_edge(exported).exported_program()
    assert [spec.kind.name for spec in made.graph_signature.output_specs] == ["BUFFER_MUTATION", "USER_OUTPUT"]
    assert _orders(made)[1] == [0, 2, 3, 1]


@pytest.mark.parametrize("is_first", [False, True])
def test_a_dim_of_size_1_has_no_say_in_the_layout(is_first: bool) -> None:
    """What eager torch makes of a row-major operand and another one has strides that no dim order stands for."""
    rows = torch.arange(8).reshape(2, 2, 1, 2)
    pair = (rows, rows.to(memory_format=torch.channels_last))
    given = pair if is_first else pair[::-1]

    class Shift(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.bitwise_left_shift(x, y)

    program = to_edge(export(Shift(), given)).exported_program()
    wanted = torch.bitwise_left_shift(*given)
    assert [tuple(one) for one in _orders(program)] == [wanted.dim_order()]
    assert program.module()(*given).equal(wanted)
