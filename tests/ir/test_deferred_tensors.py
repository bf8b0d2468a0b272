"""Tensors that are computed when they are read: elements, streams, and what must not happen to them."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from itertools import permutations

import pytest
import torch
from tests.passes.programs import exported

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.emit.flatbuffer import StreamedBytes
from exirkit.emit.values import StreamedContents, contents
from exirkit.ir import (
    Calculation,
    DeferredTensor,
    NotComputableError,
    bytes_of,
    deferred_tensors,
    element_blocks,
    end_bytes,
    memory_key,
)

aten = torch.ops.aten


def calculation(op: Callable[..., torch.Tensor], *args: object, value: torch.Tensor | None = None) -> Calculation:
    plain = [one.calculation.evaluated() if isinstance(one, DeferredTensor) else one for one in args]
    recorded = op(*plain) if value is None else value
    return Calculation(op, args, {}, torch.empty_like(recorded, device="meta"))


def transposed(tensor: torch.Tensor) -> DeferredTensor:
    return DeferredTensor(calculation(aten.permute_copy.default, tensor, [1, 0]))


@pytest.mark.parametrize("block", [4, 64, 4096])
@pytest.mark.parametrize("sizes", [(), (0,), (1,), (5,), (7, 1), (1, 13), (3, 0, 2), (2, 3, 5), (4, 1, 3, 7)])
def test_blocks_are_the_elements_in_order(sizes: tuple[int, ...], block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred_tensors, "_BLOCK_NBYTES", block)
    monkeypatch.setattr(deferred_tensors, "_ENDS_NBYTES", 12)
    tensor = torch.randn(sizes)
    orders = [*list(permutations(range(len(sizes))))[::5], tuple(reversed(range(len(sizes))))]
    for way in orders:
        strided = tensor.permute(way)
        for order in orders:
            whole = bytes(contents(strided, order))
            streamed = StreamedContents(strided, order)
            assert bytes(streamed) == whole
            assert streamed == whole
            assert len(streamed) == len(whole)
            assert all(len(one) <= max(block, 4) for one in streamed.blocks())
            assert end_bytes(strided, order) == (whole[:12], whole[-12:])
            for start, stop in ((0, 3), (2, 9), (5, 1000), (-7, -2), (3, 3), (9, 2)):
                assert streamed[start:stop] == whole[start:stop]
            if whole:
                assert streamed != bytes([whole[0] ^ 1]) + whole[1:]


def test_conjugate_and_negative_views_are_resolved() -> None:
    numbers = torch.randn(3, 4, dtype=torch.complex64)
    for one in (numbers.conj(), numbers.conj().imag):
        found = b"".join(bytes(bytes_of(part)) for part in element_blocks(one, [1, 0]))
        assert found == bytes(contents(one, [1, 0]))


def test_a_permutation_is_a_view_until_it_is_read() -> None:
    weight = torch.randn(5, 3)
    made = transposed(transposed(weight))
    assert made.strided().data_ptr() == weight.data_ptr()
    weight[0, 0] = 7.0
    assert made.plain()[0, 0] == 7.0
    assert made.plain().data_ptr() != weight.data_ptr()


def test_operators_read_the_elements() -> None:
    # Of whole numbers, whose products are exact in every order.
    weight = torch.randint(-8, 9, (5, 3)).float() + 0.5
    made = transposed(weight)
    x = torch.randint(-8, 9, (2, 3)).float()
    assert torch.equal(x @ made, x @ weight.t())
    assert torch.equal(made, weight.t().contiguous())
    assert made.tolist() == weight.t().tolist()
    assert (made.numpy() == weight.t().numpy()).all()
    view = made.view(-1)
    view[0] = 0
    assert weight[0, 0] != 0


def test_sums_are_those_of_memory_laid_out_as_recorded() -> None:
    weight = torch.randn(301, 257)
    summed = DeferredTensor(calculation(aten.sum.dim_IntList, transposed(weight), [1]))
    assert torch.equal(summed.plain(), weight.t().contiguous().sum(1))


def test_what_two_steps_need_is_computed_once() -> None:
    found, calls = torch.randn(4), []

    def counted(x: torch.Tensor) -> torch.Tensor:
        calls.append(x)
        return x + 1

    meta = torch.empty(4, device="meta")
    one = Calculation(counted, (found,), {}, meta)
    for _ in range(40):
        one = Calculation(aten.add.Tensor, (one, one), {}, meta)
    assert torch.equal(one.evaluated(), (found + 1) * 2**40)
    assert len(calls) == 1


def test_nothing_is_written_to_them() -> None:
    made = transposed(torch.randn(5, 3))
    with pytest.raises(RuntimeError, match="clone it first"):
        made.add_(1)
    with pytest.raises(RuntimeError, match="clone it first"):
        torch.add(torch.ones(3, 5), 1, out=made)


def test_copies_and_files_are_ordinary_tensors() -> None:
    weight = torch.randn(5, 3)
    made = transposed(weight)
    assert type(made.clone()) is torch.Tensor
    assert copy.deepcopy(made).calculation is made.calculation
    assert memory_key(made.detach()) == memory_key(made) != memory_key(transposed(weight))
    assert "5" in repr(made)
    written = io.BytesIO()
    torch.save({"w": made}, written)
    written.seek(0)
    assert torch.equal(torch.load(written, weights_only=True)["w"], weight.t())


def test_what_cannot_be_computed_says_which_step() -> None:
    def fails(x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    meta = torch.empty(3, device="meta")
    inner = Calculation(fails, (torch.ones(3),), {}, meta)
    with pytest.raises(NotComputableError) as caught:
        Calculation(aten.neg.default, (inner,), {}, meta).evaluated()
    assert caught.value.calculation is inner
    other = Calculation(aten.neg.default, (torch.ones(4),), {}, meta)
    with pytest.raises(NotComputableError):
        other.evaluated()


class Layers(torch.nn.Module):
    """Products, convolutions with norms, an embedding: what folding and the rules of -O2 do to weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.first = torch.nn.Linear(8 * 16, 24)
        self.second = torch.nn.Linear(24, 24)
        self.scale = torch.nn.Parameter(torch.randn(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x))).flatten(1)
        x = self.first(x)
        return self.second(torch.nn.functional.layer_norm(x, (24,), self.scale)) @ self.second.weight.t()


@pytest.mark.parametrize("level", [1, 2])
def test_files_are_the_same_with_everything_deferred_and_with_nothing(
    level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = exported(Layers().eval(), torch.randn(2, 3, 4, 4))
    config = ExecutorchBackendConfig(optimization_level=level)
    monkeypatch.setattr(deferred_tensors, "DEFERRED_NBYTES", 1 << 40)
    at_once = to_edge(program).to_executorch(config)
    monkeypatch.setattr(deferred_tensors, "DEFERRED_NBYTES", 1)
    later = to_edge(program).to_executorch(config)
    assert any(isinstance(one.storage, StreamedBytes) for one in later.executorch_program.constant_buffer)
    assert not any(isinstance(one.storage, StreamedBytes) for one in at_once.executorch_program.constant_buffer)
    assert later.buffer == at_once.buffer


def test_weights_in_a_data_file_are_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    program = exported(Layers().eval(), torch.randn(2, 3, 4, 4))
    config = ExecutorchBackendConfig(external_constants=True, fold_external_constants=True)
    monkeypatch.setattr(deferred_tensors, "DEFERRED_NBYTES", 1 << 40)
    at_once = to_edge(program).to_executorch(config)
    monkeypatch.setattr(deferred_tensors, "DEFERRED_NBYTES", 1)
    later = to_edge(program).to_executorch(config)
    assert later.tensor_data == at_once.tensor_data
    assert later.buffer == at_once.buffer


def test_slices_are_those_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred_tensors, "_BLOCK_NBYTES", 64)
    monkeypatch.setattr(deferred_tensors, "_ENDS_NBYTES", 12)
    weight, scale = torch.randn(6, 5, 3, 2), torch.rand(6, 1, 1, 1) + 0.5

    def large(_value: object) -> bool:
        return True

    monkeypatch.setattr(deferred_tensors, "is_large", large)
    computed: list[tuple[int, ...]] = []
    called = Calculation._called

    def counted(self: Calculation, values: dict[Calculation, object]) -> object:
        computed.append(tuple(self.recorded.shape))
        return called(self, values)

    monkeypatch.setattr(Calculation, "_called", counted)
    chains: list[tuple[Callable[[torch.Tensor], torch.Tensor], bool]] = [
        (lambda w: (w * scale).reshape(1, 6, 5, 3, 2).permute(0, 1, 3, 4, 2).reshape(1, 6, 30), True),
        (lambda w: (w * scale.double() - w / 3).to(torch.float16).transpose(0, 1), True),
        (lambda w: (w * w).permute(3, 1, 0, 2).neg().unsqueeze(2).squeeze(), True),
        (lambda w: torch.add(w, w, alpha=3), False),
        (lambda w: (w * scale).reshape(15, 4, 3), False),
        (lambda w: w.flip(0) * 2, False),
    ]
    for chain, is_sliced in chains:
        made, whole = chain(DeferredTensor.composing(weight)), chain(weight)
        assert isinstance(made, DeferredTensor)
        for order in list(permutations(range(whole.dim())))[::5]:
            expected = bytes(contents(whole, order))
            streamed = StreamedContents(made, order)
            computed.clear()
            assert bytes(streamed) == expected
            outermost = next(dim for dim in order if whole.shape[dim] != 1)
            if is_sliced and (whole.dim() == 4 or outermost == 1):
                assert not computed
                assert all(len(one) <= 256 for one in streamed.blocks())
            assert end_bytes(made, order) == (expected[:12], expected[-12:])
            assert streamed[9:40] == expected[9:40]
