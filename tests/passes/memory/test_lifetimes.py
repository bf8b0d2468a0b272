from __future__ import annotations

from typing import Any

from torch.export.graph_signature import InputKind
from torch.fx import Node

from exirkit.passes.memory.graph.specs import compute_lifetimes, update_lifetimes


def span(spans: Any, node: Node) -> tuple[int, int]:
    return spans[node.meta["spec"]]


def step(node: Node) -> int:
    return list(node.graph.nodes).index(node)


def test_alloc_begins_and_last_user_ends(builder: Any) -> None:
    x = builder.input("x", [4])
    first = builder.op(x, [8])
    second = builder.op(first, [8])
    module, signature = builder.finish(second)
    spans = compute_lifetimes(module, signature)
    assert span(spans, x) == (0, step(first))
    assert span(spans, first) == (step(first) - 1, step(second))
    assert span(spans, second) == (step(second) - 1, step(second) + 1)


def test_inputs_are_there_from_the_start(builder: Any) -> None:
    builder.input("x", [4])
    late = builder.input("late", [4])
    unused = builder.input("unused", [4])
    module, signature = builder.finish(builder.op(late, [4]))
    spans = compute_lifetimes(module, signature)
    assert span(spans, late)[0] == 0
    assert span(spans, unused) == (0, 2)


def test_mutated_buffer_and_mutated_input_live_to_the_end(builder: Any) -> None:
    state = builder.input("state", [4], InputKind.BUFFER)
    cache = builder.input("cache", [4])
    writes = [builder.write(state, builder.op(cache, [4])), builder.write(cache, builder.op(state, [4]))]
    tail = builder.op(writes[1], [4])
    tail = builder.op(tail, [4])
    module, signature = builder.finish(*writes, tail)
    spans = compute_lifetimes(module, signature)
    end = len(module.graph.nodes) - 1
    assert span(spans, state) == (0, end)
    assert span(spans, cache) == (0, end)


def test_view_of_view_extends_the_owner(builder: Any) -> None:
    base = builder.op(builder.input("x", [4]), [8])
    inner = builder.view(builder.view(base, [2, 4]), [4, 2])
    other = builder.op(builder.input("y", [4]), [8])
    last = builder.add(inner, other, [8])
    module, signature = builder.finish(last)
    assert span(compute_lifetimes(module, signature), base) == (step(base) - 1, step(last))


def test_unused_output_of_an_operator_is_needed_at_its_step(builder: Any) -> None:
    values, indices = builder.topk(builder.input("x", [8]), [2])
    builder.graph.erase_node(indices)
    module, signature = builder.finish(builder.op(values, [8]))
    spans = compute_lifetimes(module, signature)
    call = values.args[0]
    assert spans[call.meta["spec"][1]] == (step(call) - 1, step(call))


def test_update_sets_fresh_lists_in_order_of_appearance(builder: Any) -> None:
    x = builder.input("x", [4])
    y = builder.op(x, [8])
    module, signature = builder.finish(y)
    old = y.meta["spec"].lifetime
    spans = update_lifetimes(module, signature)
    assert list(spans) == [x.meta["spec"], y.meta["spec"]]
    assert old == [None, None]
    assert y.meta["spec"].lifetime == [1, 3]
