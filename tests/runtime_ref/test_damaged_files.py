"""Random files: whatever the bytes are, loading ends with a program or with one of two errors, soon."""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest
import torch
from tests.runtime_ref.assembly import BOUND, UNBOUND, Assembly
from tests.runtime_ref.mutations import mutations

from exirkit.emit import Buffer, ProgramFormatError, ProgramVerifyError, lay_out, read_program
from exirkit.ir import ModelError, UsageError
from exirkit.runtime_ref import Limits, Method, Runtime

# Processor time of one load and run of a small damaged file that does not end. An undamaged one takes milliseconds.
PATIENCE_S = 60.0


def layers() -> bytes:
    asm = Assembly()
    x, h, y = asm.tensor([2, 4]), asm.tensor([2, 3]), asm.tensor([2, 3])
    weight, bias = asm.constant(torch.randn(3, 4)), asm.constant(torch.randn(3))
    asm.call("aten::linear.out", x, weight, bias, h, h)
    asm.call("aten::relu.out", h, y, y)
    pieces = [asm.tensor([2, 1]) for _ in range(3)]
    listed = asm.tensor_list(pieces)
    asm.call("aten::split_copy.Tensor_out", y, asm.argument(1), asm.argument(1), listed, listed)
    asm.call("aten::cat.out", asm.tensor_list(pieces[::-1]), asm.argument(-1), h, h)
    norm = [asm.tensor([2, 3]), asm.tensor([2, 1]), asm.tensor([2, 1])]
    none, outs = asm.argument(None), asm.tensor_list(norm)
    asm.call("aten::native_layer_norm.out", h, asm.argument([3]), none, none, asm.argument(1e-5), *norm, outs)
    return asm.to_bytes([x], [norm[0]])


def loop() -> bytes:
    asm = Assembly()
    xs, rows = asm.tensor([4, 3], dynamism=BOUND), asm.tensor([4, 3], dynamism=BOUND)
    row = asm.tensor([3])
    at, count, done, one = asm.argument(0), asm.argument(0), asm.argument(False), asm.argument(1)
    asm.call("aten::sym_size.int", xs, asm.argument(0), count)
    asm.call("aten::select_copy.int_out", xs, asm.argument(0), at, row, row)
    asm.call("executorch_prim::et_copy_index.tensor", rows, row, at)
    asm.call("executorch_prim::add.Scalar", at, one, at)
    asm.call("executorch_prim::eq.Scalar", at, count, done)
    asm.jump_if_false(done, 1)
    asm.call("executorch_prim::sub.Scalar", at, count, at)
    return asm.to_bytes([xs], [rows])


def memory() -> bytes:
    asm = Assembly()
    x, state = asm.tensor([6], planned=False), asm.tensor([6], name="state")
    asm.declared(state).data_buffer_idx = 1
    view = asm.tensor([2, 3], at=0)
    free = asm.tensor([6], dynamism=UNBOUND, planned=False)
    asm.call("aten::add_.Tensor", state, x, asm.argument(1), state)
    asm.call("executorch_prim::et_view.default", state, asm.argument([2, 3]), view)
    asm.call("aten::neg.out", x, free, free)
    asm.move(free, x)
    asm.free(free)
    start = Buffer(storage=torch.arange(6.0).numpy().tobytes())
    return lay_out(asm.program([x], [view]), mutable_data=[Buffer(), start]).to_bytes()


SEEDS: dict[str, tuple[Callable[[], bytes], tuple[int, ...]]] = {
    "layers": (layers, (2, 4)),
    "loop": (loop, (4, 3)),
    "memory": (memory, (6,)),
}


@cache
def seed_file(name: str) -> tuple[bytes, int]:
    """Return the file, and where its weights start."""
    torch.manual_seed(0)
    data = SEEDS[name][0]()
    header = read_program(data).header
    return data, header.program_size if header else len(data)


def attempt(data: bytearray) -> tuple[str, list[Method]]:
    """Load all methods; return the code of the error, or `ok` and the methods."""
    try:
        program = Runtime.get().load_program(data, limits=Limits(jumps_back=1000))
        return "ok", [program.load_method(name) for name in sorted(program.method_names)]
    except (ProgramFormatError, ProgramVerifyError) as error:
        return error.code, []


def campaign(name: str, count: int, seed: int) -> Counter[str]:
    """Load damaged copies of a file; run what still loads."""
    data, header_nbytes = seed_file(name)
    outcomes: Counter[str] = Counter()
    given = torch.ones(SEEDS[name][1])
    for damaged in mutations(data, count, seed, header_nbytes=header_nbytes):
        started = time.process_time()
        outcome, methods = attempt(damaged)
        outcomes[outcome] += 1
        for method in methods:
            try:
                method.execute([given])
            except (ModelError, UsageError) as error:
                outcomes[f"execute {error.code}"] += 1
        assert time.process_time() - started < PATIENCE_S, f"{outcome} took too long"
    return outcomes


@pytest.mark.parametrize("name", SEEDS)
def test_undamaged_files_run(name: str) -> None:
    outcome, [method] = attempt(bytearray(seed_file(name)[0]))
    assert outcome == "ok"
    assert method.execute([torch.ones(SEEDS[name][1])])


@pytest.mark.parametrize("name", SEEDS)
def test_damaged_files_are_rejected_in_one_of_two_ways(name: str) -> None:
    outcomes = campaign(name, 400, seed=1)
    # The damage must reach the deeper checks too, not only the reader.
    assert sum(outcomes[code] for code in outcomes if code.startswith("EK6")) > 10
    assert outcomes["ok"] > 10


@pytest.mark.parametrize("name", SEEDS)
def test_many_damaged_files(name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    campaign(name, 20_000, seed=2)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 500_000


@pytest.mark.parametrize("name", SEEDS)
def test_every_truncation_is_rejected(name: str) -> None:
    data, _ = seed_file(name)
    rejected = Counter(attempt(bytearray(data[:end]))[0] for end in range(0, len(data), 7))
    assert set(rejected) - {"ok"}
    # What is missing may be padding, or initial bytes behind the last one that is used.
    assert rejected["ok"] < 10
