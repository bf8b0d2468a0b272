"""Programs that are decomposed node by node, without torch's decomposition of the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.passes.programs import Holder, exported, outputs

from exirkit import to_edge
from exirkit.ir import GraphEditor, copy_program
from exirkit.passes import DecomposeToCore, noted_fall_backs

F = torch.nn.functional
X = torch.randn(4, 4)


def fall_backs(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[str]:
    """Lower, check the results, and return why torch decomposed the program as a whole."""
    program = exported(Holder(function, scale=torch.ones(4)).eval(), *inputs)
    with noted_fall_backs() as noted:
        edge = to_edge(program).exported_program()
    torch.testing.assert_close(outputs(edge, *inputs), outputs(program, *inputs), rtol=0, atol=0)
    return list(noted)


def _other_names(_m: object, x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    part = y[1:]
    dropped = F.dropout(part, 0.5, False, inplace=True)
    dropped += 1
    return y + part.sum()


@pytest.mark.parametrize("drop", [F.dropout, F.alpha_dropout, F.feature_alpha_dropout])
def test_dropout_in_place_is_another_name(drop: Callable[..., torch.Tensor]) -> None:
    assert not fall_backs(lambda _m, x: drop(x * 2, 0.5, False, inplace=True) + 1, X)
    assert not fall_backs(_other_names, X)


def test_dropout_of_nothing_while_training_is_another_name() -> None:
    assert not fall_backs(lambda _m, x: F.dropout(x * 2, 0.0, True, inplace=True) + 1, X)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: F.cosine_embedding_loss(x, x.flip(0), x[0].sign()),
        lambda x: F.hinge_embedding_loss(x, x.sign(), reduction="none"),
        lambda x: torch.quantile(x.sign(), 0.5, dim=1, keepdim=True),
        lambda x: torch.nanquantile(x, x[:2, 0].sigmoid(), dim=-1, interpolation="midpoint"),
        lambda x: F.pad(x[None], [1, 2], "circular"),
        lambda x: F.one_hot(x.abs().long(), 9),
        lambda x: torch.diff(x, 0),
        lambda x: torch.linalg.cond(x.sign().triu(1) + torch.eye(4), 1),
        lambda x: torch.linalg.matrix_power(x.sign().triu(1) + torch.eye(4), -2),
    ],
    ids=["cosine", "hinge", "quantile", "nanquantile", "circular", "one_hot", "diff", "cond", "power"],
)
def test_decompositions_that_write_to_their_own_values(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """They write through views, change shapes in place, or assert something."""
    assert not fall_backs(lambda _m, x: function(x), X)


def _windows_beside(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.clone()
    y.unfold(0, 1, 1).add_(1)
    with torch.no_grad():
        y.mul_(2)
    return y, torch.sort(x.sign(), stable=True)[1]


def test_torch_leaves_stable_sorts_and_writes_of_regions_as_they_are() -> None:
    program = exported(Holder(lambda _m, x: _windows_beside(x), scale=torch.ones(4)).eval(), X)
    with noted_fall_backs() as noted:
        edge = to_edge(program).exported_program()
    assert noted
    assert any("sort.stable" in str(node.target) for node in edge.graph.nodes)
    for one, other in zip(edge.module()(X), _windows_beside(X), strict=True):
        assert torch.equal(one, other)


def test_what_stays_as_it_is_has_not_changed() -> None:
    program = exported(Holder(lambda _m, x: torch.sort(x, stable=True)[1], scale=torch.ones(4)).eval(), X)
    editor = GraphEditor(copy_program(program))
    DecomposeToCore().run(editor)
    assert not DecomposeToCore().run(editor).modified


@pytest.mark.parametrize(("device", "enabled"), [("cpu", False), ("cuda", False), ("cuda", True)])
def test_regions_without_casts_are_inlined(device: str, enabled: bool) -> None:
    def function(_m: Holder, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=enabled):
            y = (x * x) @ x
        return y + 1

    assert not fall_backs(function, X)


def test_regions_with_casts_are_traced_again() -> None:
    def function(_m: Holder, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
        return y.float() + 1

    assert ["autocast" in why for why in fall_backs(function, X)] == [True]


def test_numbers_of_tensors_keep_their_symbols() -> None:
    def function(_m: Holder, x: torch.Tensor) -> torch.Tensor:
        count: Any = x.max().item()
        torch._check(count > 0)
        torch._check(count < 20)
        return F.gelu(torch.ones(count, 4)).unsqueeze(0).expand(2, -1, -1) * 2

    assert not fall_backs(function, torch.tensor([3, 5]))


def test_decompositions_that_write_to_their_own_results() -> None:
    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, [4], None, 1e-5) + F.rms_norm(x * 2, [4], m.scale, 1e-5)

    assert not fall_backs(function, X)


def test_sizes_are_squares_of_sizes_that_vary() -> None:
    def function(m: Any, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x[:, None, :, None].expand(-1, 2, -1, -1)[..., None] * m.scale, m.scale.expand(3, 4))

    size = torch.export.Dim("size", min=2, max=6)
    module = Holder(function, scale=torch.ones(4)).eval()
    program = exported(module, X, dynamic_shapes=(({0: size, 1: size},),))
    with noted_fall_backs() as noted:
        edge = to_edge(program).exported_program()
    smaller = X[:3, :3]
    torch.testing.assert_close(outputs(edge, smaller), outputs(program, smaller), rtol=0, atol=0)
    assert not noted
