"""Tracing that costs less gives what tracing gives, and leaves torch as it was."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule, Interpreter, Proxy, symbolic_trace, traceback
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.immutable_collections import immutable_list
from torch.utils import _pytree as pytree

from exirkit.program import cheap_tracing

aten = torch.ops.aten


class Small(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.relu(x + y) * 2


def count_writing(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """Return a list to which every graph goes whose code is written."""
    written: list[Graph] = []
    real = Graph.python_code

    def python_code(self: Graph, *args: Any, **kwargs: Any) -> Any:
        written.append(self)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Graph, "python_code", python_code)
    return written


def test_code_is_written_when_a_module_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    written = count_writing(monkeypatch)
    x, y = torch.randn(3), torch.randn(3)
    with cheap_tracing():
        module = symbolic_trace(Small())
        module.recompile()
        assert not written
        torch.testing.assert_close(module(x, y), Small()(x, y))
        assert len(written) == 1
        next(node for node in module.graph.nodes if node.target is torch.relu).target = torch.sin
        module.recompile()
        torch.testing.assert_close(module(x, y), torch.sin(x + y) * 2)
        assert len(written) == 2
        module(x, y)
        assert len(written) == 2


def test_code_that_was_not_wanted_is_written_later() -> None:
    with cheap_tracing():
        modules = [symbolic_trace(Small()) for _ in range(4)]
    assert "torch.relu" in modules[0].code
    x, y = torch.randn(3), torch.randn(3)
    torch.testing.assert_close(modules[1](x, y), Small()(x, y))
    torch.testing.assert_close(copy.deepcopy(modules[2])(x, y), Small()(x, y))
    assert "relu" in modules[3].print_readable(print_output=False)


@pytest.mark.parametrize("does", [copy.copy, copy.deepcopy, lambda one: pickle.load(io.BytesIO(pickle.dumps(one)))])
def test_modules_are_copied_while_it_is_active(does: Callable[[GraphModule], GraphModule]) -> None:
    x, y = torch.randn(3), torch.randn(3)
    with cheap_tracing():
        # Without annotations, which torch cannot pickle if they are texts.
        module = does(symbolic_trace(lambda x, y: torch.relu(x + y) * 2))
        torch.testing.assert_close(module(x, y), Small()(x, y))
    torch.testing.assert_close(module(x, y), Small()(x, y))


def test_recompile_returns_code() -> None:
    module = symbolic_trace(Small())
    wanted = module.recompile().src
    with cheap_tracing():
        code = module.recompile()
        assert code.src == wanted
        assert module.code == wanted
        assert module.__dict__["_code"] == wanted


def run(calls: list[tuple[Any, tuple[Any, ...]]], mode: FakeTensorMode | None = None) -> list[Any]:
    """Call operators as passes do that trace again."""
    interpreter = Interpreter(GraphModule(nn.Module(), Graph()))
    with mode or FakeTensorMode(allow_non_fake_inputs=True):
        return [interpreter.call_function(op, args, {}) for op, args in calls]


def metadata(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [metadata(one) for one in value]
    return (tuple(value.shape), value.stride(), value.dtype, value.storage_offset())


def fakes(mode: FakeTensorMode, *values: Tensor) -> list[Tensor]:
    return [mode.from_tensor(value) for value in values]


def test_equal_questions_have_one_answer() -> None:
    mode = FakeTensorMode()
    x, other, wide, turned = fakes(mode, torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 4), torch.ones(3, 2).t())
    whole = mode.from_tensor(torch.ones(2, 3, dtype=torch.int64))
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        (aten.add.Tensor, (whole, 1)),
        (aten.add.Tensor, (whole, 1.0)),
        (aten.add.Tensor, (whole, True)),
        (aten.relu.default, (x,)),
        (aten.relu.default, (other,)),
        (aten.relu.default, (wide,)),
        (aten.relu.default, (turned,)),
        (aten.sum.dim_IntList, (x, [0])),
        (aten.sum.dim_IntList, (x, immutable_list([1]))),
        (aten.sum.dim_IntList, (x, [0, 1])),
        (aten.cat.default, ([x, wide], 1)),
        (aten.cat.default, ([wide, x, x], 1)),
        (aten.split_with_sizes_copy.default, (wide, [1, 3], 1)),
        (aten.split_with_sizes_copy.default, (wide, [3, 1], 1)),
    ]
    wanted = metadata(run(calls, mode))
    with cheap_tracing():
        first, second = run(calls, mode), run(calls, mode)
    assert metadata(first) == wanted
    assert metadata(second) == wanted
    assert first[3] is second[4]
    assert len({id(one) for one in first}) == len(calls) - 1


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.rand_like.default, ()),
        (aten.view.default, ([6],)),
        (aten.relu_.default, ()),
        (aten.add_.Tensor, (1,)),
        (aten.detach.default, ()),
    ],
)
def test_what_depends_on_more_is_asked_again(op: Any, args: tuple[Any, ...]) -> None:
    mode = FakeTensorMode()
    (x,) = fakes(mode, torch.ones(2, 3))
    with cheap_tracing():
        first, second = run([(op, (x, *args))] * 2, mode)
    assert first is not second or first is x
    if op is aten.view.default:
        assert first.untyped_storage()._cdata == x.untyped_storage()._cdata


def test_real_tensors_are_computed() -> None:
    interpreter = Interpreter(GraphModule(nn.Module(), Graph()))
    with cheap_tracing():
        for value in (1.0, 2.0):
            got = interpreter.call_function(aten.neg.default, (torch.tensor(value),), {})
            assert got.item() == -value


def test_sizes_that_vary_are_asked_again() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    x = mode.from_tensor(torch.ones(5, 3), symbolic_context=None, static_shapes=False)
    assert x._has_symbolic_sizes_strides
    with cheap_tracing():
        first, second = run([(aten.relu.default, (x,))] * 2, mode)
    assert first is not second
    assert first.shape == x.shape


def test_modes_do_not_share_answers() -> None:
    one, other = FakeTensorMode(), FakeTensorMode()
    with cheap_tracing():
        (first,) = run([(aten.relu.default, tuple(fakes(one, torch.ones(2))))], one)
        (second,) = run([(aten.relu.default, tuple(fakes(other, torch.ones(2))))], other)
    assert first.fake_mode is one
    assert second.fake_mode is other


def test_nodes_keep_what_was_known_of_their_source() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    node = graph.call_function(torch.relu, (x,))
    node.meta = {"stack_trace": "here", "from_node": ["earlier"]}
    with cheap_tracing(), traceback.preserve_node_meta():
        with traceback.set_current_meta(node, "a pass"):
            made = traceback.get_current_meta()
            assert made == node.meta
            assert made is not node.meta
            new: Any = Proxy(x) + 1  # type: ignore[operator]
        assert new.node.meta["stack_trace"] == "here"
        assert traceback.get_current_meta() == {}


LEAVES = st.one_of(st.integers(), st.floats(allow_nan=False), st.text(max_size=2), st.none(), st.booleans())
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(immutable_list),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
    ),
    max_leaves=12,
)


@given(TREES, st.sampled_from([int, str, float, list, object, (int, str)]))
def test_trees_are_mapped_alike(tree: Any, kind: Any) -> None:
    def double(value: Any) -> Any:
        return ("seen", repr(value))

    wanted = pytree.tree_map_only(kind, double, tree)
    with cheap_tracing():
        got = pytree.tree_map_only(kind, double, tree)
    assert repr(got) == repr(wanted)
    assert type(got) is type(wanted)


def test_torch_is_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def state() -> tuple[Any, ...]:
        patched = GraphModule.recompile, Interpreter.call_function, traceback.set_current_meta, pytree.tree_map_only
        return (*patched, gc.get_threshold(), gc.get_freeze_count(), gc.isenabled())

    # A fuzzing test of the same process may have frozen objects, whose number falls as they go.
    gc.unfreeze()
    before = state()
    with cheap_tracing(), cheap_tracing():
        assert all(one is not other for one, other in zip(state()[:4], before[:4], strict=True))
    assert state() == before
    with pytest.raises(KeyError), cheap_tracing():
        raise KeyError
    assert state() == before
    gc.freeze()
    try:
        with cheap_tracing():
            pass
        # What a caller has frozen stays so; the number itself falls as objects go.
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
