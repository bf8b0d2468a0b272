"""Programs with delegates compute what they computed before."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from tests.program.delegation_models import Counting, Picking, Picks, names
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram, export

from exirkit import (
    ContractError,
    EdgeProgramManager,
    LoweredBackendModule,
    ModelError,
    Partitioner,
    PartitionResult,
    to_backend,
    to_edge,
    to_edge_transform_and_lower,
)
from exirkit.ir import CALL_DELEGATE, register_quantized_decomposed
from exirkit.runtime_ref import Runtime

register_quantized_decomposed()
quantized = torch.ops.quantized_decomposed
EVERYTHING: Picks = lambda node: True  # noqa: E731
ROWS = torch.linspace(-1, 1, 8).reshape(2, 4)


def same(model: nn.Module, manager: EdgeProgramManager, calls: Sequence[tuple[Tensor, ...]]) -> int:
    """Run a lowered program several times, also knowingly; return how many delegates it has."""
    made = manager.to_executorch()
    for knowing in (False, True):
        method = Runtime.get().load_program(made.buffer, sanitize=knowing).load_method("forward")
        eager = copy.deepcopy(model)
        for given in calls:
            with torch.no_grad():
                wanted: Any = eager(*given)
            for got, expected in zip(
                method.execute(list(given)), wanted if isinstance(wanted, tuple) else (wanted,), strict=True
            ):
                torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
    return len(made.executorch_program.execution_plan[0].delegates)


@pytest.mark.parametrize("keeps_state", [True, False])
@pytest.mark.parametrize(
    ("picks", "delegates"),
    [(EVERYTHING, 1), (names("addmm", "permute"), 2), (names("max", "relu", "add.Tensor"), 2), (names("cosh"), 0)],
)
@pytest.mark.parametrize("backend", ["ReferenceBackend", "Checking"])
def test_parts(picks: Picks, delegates: int, keeps_state: bool, backend: str) -> None:
    model = Counting()
    edge = to_edge(export(model, (ROWS,)))
    text = str(edge.exported_program().graph)
    delegated = edge.to_backend(Picking(picks, backend, keeps_state=keeps_state))
    assert text == str(edge.exported_program().graph)
    found = same(model, delegated, [(ROWS,), (ROWS * 3,), (ROWS + 1,)])
    assert found >= delegates if delegates else found == 0


class QuantizingWeights(nn.Module):
    """Stores floats and quantizes them in each call; one of them is read as a float as well."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(3, 4))
        self.register_buffer("scales", torch.tensor([0.01, 0.02, 0.03]))
        self.register_buffer("zeros", torch.zeros(3, dtype=torch.int64))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        tensor, channel = (0.02, 0, -127, 127, torch.int8), (self.scales, self.zeros, 0, -127, 127, torch.int8)
        wide = quantized.dequantize_per_tensor(quantized.quantize_per_tensor(self.wide, *tensor), *tensor)
        narrow = quantized.dequantize_per_channel(quantized.quantize_per_channel(self.narrow, *channel), *channel)
        y = quantized.dequantize_per_tensor(quantized.quantize_per_tensor(x @ wide, *tensor), *tensor)
        return nn.functional.linear(y, narrow), self.wide * 2 + x.sum()


@pytest.mark.parametrize("way", ["at once", "after to_edge"])
def test_partitioners_are_shown_stored_integers_for_weights_that_are_quantized_in_each_call(way: str) -> None:
    model = QuantizingWeights()
    shown: list[tuple[list[str], list[torch.Size]]] = []

    def look(program: ExportedProgram) -> None:
        quantizing = [node for node in program.graph.nodes if ".quantize_per" in str(node.target)]
        # Other calculations on what is stored are left alone.
        assert sum(".mul" in str(node.target) for node in program.graph.nodes) == 1
        stored = {**program.state_dict, **program.constants}.values()
        assert sum(tuple(one.shape) == (4, 4) for one in stored) == 2
        integers = sorted(one.shape for one in stored if one.dtype == torch.int8)
        shown.append(([node.all_input_nodes[0].op for node in quantizing], integers))

    class Looking(Picking):
        def partition(self, exported_program: ExportedProgram) -> PartitionResult:
            look(exported_program)
            return super().partition(exported_program)

        def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[Any], None]:
            look(ep)
            return [], None

    exported = export(model, (ROWS,))
    before, looking = str(exported.graph), Looking(EVERYTHING)
    if way == "at once":
        made = to_edge_transform_and_lower(exported, partitioner=[looking])
    else:
        made = to_edge(exported).to_backend(looking)
    assert str(exported.graph) == before
    # What is computed of the input stays as it is.
    assert all(one == (["call_function"], [(3, 4), (4, 4)]) for one in shown)
    assert len(shown) >= (2 if way == "at once" else 1)
    assert same(model, made, [(ROWS,), (ROWS * 0.3,)]) == 1


def test_a_delegate_keeps_its_state() -> None:
    class Everything(Picking):
        def partition(self, exported_program: ExportedProgram) -> PartitionResult:
            found = super().partition(exported_program)
            for node in exported_program.graph.find_nodes(op="placeholder"):
                if node.name != "x":
                    node.meta["delegation_tag"] = next(iter(found.partition_tags))
            return found

    model = Counting()
    delegated = to_edge(export(model, (ROWS,))).to_backend(Everything(EVERYTHING, "Checking"))
    program = delegated.exported_program()
    assert [spec.arg.name for spec in program.graph_signature.input_specs] == ["x"]
    assert not program.state_dict
    assert not program.graph_signature.buffers_to_mutate
    assert same(model, delegated, [(ROWS,), (ROWS * 3,), (ROWS + 1,)]) == 1


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_backends_in_both_orders(order: tuple[int, int]) -> None:
    model = Counting()
    manager = to_edge(export(model, (ROWS,)))
    partitioners = Picking(names("addmm", "permute"), "Checking"), Picking(names("relu", "max", "mul"))
    for number in order:
        manager = manager.to_backend(partitioners[number])
    calls = [
        node.args[0].target
        for node in manager.exported_program().graph.find_nodes(op="call_function", target=CALL_DELEGATE)
    ]
    assert len(calls) == len(set(calls)) > 3
    assert same(model, manager, [(ROWS,), (ROWS - 2,)]) == len(calls)


def test_sizes_that_vary() -> None:
    class Scaling(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            z = torch.cat([x, y])
            return z.exp() + x.shape[0], z.sum(0)

    dims = ({0: Dim("a", max=6)}, {0: Dim("b", max=5)})
    edge = to_edge(export(Scaling(), (ROWS, ROWS + 1), dynamic_shapes=dims))
    delegated = edge.to_backend(Picking(names("exp", "cat", "sum"), "Checking"))
    calls = [(torch.randn(a, 4), torch.randn(b, 4)) for a, b in ((2, 2), (6, 1), (1, 5), (3, 3))]
    assert same(Scaling(), delegated, calls) >= 1


def test_methods_share_a_backend() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.sigmoid(self.layer(x))

    model = Two()
    edge = to_edge({"forward": export(model, (ROWS,)), "other": export(model, (ROWS,))})
    both = edge.to_backend(Picking(EVERYTHING)).to_executorch()
    assert len(both.executorch_program.backend_delegate_data) == 1
    only = edge.to_backend({"other": Picking(EVERYTHING)}).to_executorch()
    assert [len(plan.delegates) for plan in only.executorch_program.execution_plan] == [0, 1]
    for made in (both, only):
        program = Runtime.get().load_program(made.buffer)
        for name in ("forward", "other"):
            (got,) = program.load_method(name).execute([ROWS])
            torch.testing.assert_close(got, model(ROWS).detach())


def test_whole_modules_compose() -> None:
    class Inner(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sin(x)

    inner = to_backend("ReferenceBackend", to_edge(export(Inner(), (ROWS,))).exported_program(), [])
    assert isinstance(inner, LoweredBackendModule)
    torch.testing.assert_close(inner(ROWS), ROWS.sin())
    (alone,) = Runtime.get().load_program(inner.buffer()).load_method("forward").execute([ROWS])
    assert torch.equal(alone, ROWS.sin())
    assert len(inner.program().execution_plan[0].delegates) == 1

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.inner(x), self.inner(x + 1) * 2

    for strict in (True, False):
        outer = to_edge(export(Outer(), (ROWS,), strict=strict))
        assert same(Outer(), outer, [(ROWS,)]) == 2
        # A delegate within a delegate.
        nested = to_backend("ReferenceBackend", outer.exported_program(), [])
        got = Runtime.get().load_program(nested.buffer()).load_method("forward").execute([ROWS])
        for one, wanted in zip(got, Outer()(ROWS), strict=True):
            torch.testing.assert_close(one, wanted)


def test_operators_stay_whole_for_a_backend() -> None:
    class Wanting(Picking):
        def ops_to_not_decompose(self, ep: ExportedProgram) -> Any:
            return [torch.ops.aten.linear.default], lambda node: node.meta["val"].shape[-1] == 8

    model = Counting()
    program = export(model, (ROWS,))
    lowered = to_edge_transform_and_lower(program, partitioner=[Wanting(names("linear"), "Checking")])
    targets = [str(node.target) for node in lowered.exported_program().graph.nodes]
    assert sum("addmm" in target for target in targets) == 1
    assert same(model, lowered, [(ROWS,), (-ROWS,)]) == 1
    with pytest.raises(ModelError) as raised:
        to_edge_transform_and_lower(program, partitioner=[Wanting(names("cosh"))])
    assert raised.value.code == "EK743"


class Gates(nn.Module):
    """Linear layers that no call names."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3, batch_first=True)
        self.norm = nn.LayerNorm(3)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.norm(self.lstm(x[None])[0])
        return result


def test_operators_within_others_stay_whole_for_a_backend() -> None:
    class Wanting(Picking):
        def ops_to_not_decompose(self, ep: ExportedProgram) -> Any:
            return [torch.ops.aten.linear.default], None

    model = Gates().eval().requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = export(model, (ROWS,))
    before = str(program.graph)
    linear = torch.ops.aten.linear.default.decompose
    lowered = to_edge_transform_and_lower(program, partitioner=[Wanting(names("linear"), "Checking")])
    assert str(program.graph) == before
    assert torch.ops.aten.linear.default.decompose == linear
    assert not any("addmm" in str(node.target) for node in lowered.exported_program().graph.nodes)
    # One for the sequence, one for each of its two steps.
    assert same(model, lowered, [(ROWS,), (-ROWS,)]) == 3
    handles = {
        node.meta["debug_handle"]
        for node in lowered.exported_program().graph.nodes
        if node.op == "call_function" and any(word in str(node.target) for word in ("sigmoid", "tanh"))
    }
    assert len(handles) == 1, "all parts of the LSTM share a handle"


def test_backends_tell_of_operators_by_their_handles() -> None:
    made = to_edge(export(Counting(), (ROWS,))).to_backend(Picking(names("addmm"), "Checking")).to_executorch()
    (reported,) = {tuple(one) for one in made.delegate_map["forward"].values()}
    assert reported == ("name", "delegate_map")
    assert all(one["name"] == "Checking" and one["delegate_map"] for one in made.delegate_map["forward"].values())


class Wrong(Partitioner):
    """Does what partitioners may not do."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        graph = exported_program.graph
        call = next(node for node in graph.nodes if node.op == "call_function")
        if self.what == "changes the graph":
            call.replace_all_uses_with(call.args[0])
        elif self.what == "forgets a tag":
            call.meta["delegation_tag"] = "unknown"
        elif self.what == "tags an input":
            graph.find_nodes(op="placeholder")[-1].meta["delegation_tag"] = "t"
            call.meta["delegation_tag"] = "t"
        found = {} if self.what == "forgets a tag" else {"t": Picking(EVERYTHING)._goes}
        return PartitionResult(exported_program, found) if self.what != "returns nothing" else None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("changes the graph", "EK742"),
        ("forgets a tag", "EK742"),
        ("returns nothing", "EK742"),
        ("tags an input", "EK493"),
    ],
)
def test_partitioners_that_break_their_word(what: str, code: str) -> None:
    edge = to_edge(export(Counting(), (ROWS,)))
    before = str(edge.exported_program())
    with pytest.raises(ContractError) as raised:
        edge.to_backend(Wrong(what))
    assert raised.value.code == code
    assert str(edge.exported_program()) == before
