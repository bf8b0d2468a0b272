"""The oracle answers, and survives everything that the official runtime does to its process."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.models.zoo import CASES
from tests.official.oracle import ROOT, OfficialExporter, OfficialExportError, OfficialRuntime

from exirkit.fuzz.official.wire import Value

Export = Callable[[str], bytes]

executorch = pytest.mark.executorch


@pytest.fixture(scope="module")
def program(official_export: Export) -> bytes:
    """An official program that adds and multiplies once."""
    return official_export("unused_inputs")


@pytest.fixture(scope="module")
def calls() -> list[list[Value]]:
    return [call.leaves() for call in CASES["unused_inputs"].make().methods["forward"].calls]


@pytest.fixture(scope="module")
def expected() -> list[list[Value]]:
    return CASES["unused_inputs"].make().methods["forward"].expected()


def assert_right(outputs: list[list[Value]], expected: list[list[Value]]) -> None:
    torch.testing.assert_close(outputs, expected)


@executorch
@pytest.mark.slow
def test_a_good_file_runs_from_memory_and_from_disk(
    official_runtime: OfficialRuntime,
    program: bytes,
    calls: list[list[Value]],
    expected: list[list[Value]],
    tmp_path: Path,
) -> None:
    path = tmp_path / "program.pte"
    path.write_bytes(program)
    assert_right(official_runtime.run(program, calls).unwrap(), expected)
    assert_right(official_runtime.run(path, calls).unwrap(), expected)


@executorch
@pytest.mark.slow
def test_state_is_kept_within_a_run_and_fresh_in_the_next(
    official_runtime: OfficialRuntime, official_export: Export
) -> None:
    method = CASES["counter"].make().methods["forward"]
    steps = [call.leaves() for call in method.calls]
    program = official_export("counter")
    for _ in range(2):
        assert_right(official_runtime.run(program, steps).unwrap(), method.expected())


@executorch
@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 3, 40, 200, -40])
def test_a_truncated_file_is_a_load_error(official_runtime: OfficialRuntime, program: bytes, size: int) -> None:
    failure = official_runtime.run(program[:size], []).failure
    assert failure is not None
    assert failure.kind == "load-error"


@executorch
@pytest.mark.slow
def test_garbage_is_a_load_error_that_says_why(official_runtime: OfficialRuntime) -> None:
    failure = official_runtime.run(b"garbage" * 50, []).failure
    assert failure is not None
    assert failure.kind == "load-error"
    assert "identifier" in failure.text


@executorch
@pytest.mark.slow
def test_garbage_that_is_not_text_may_kill_the_worker(official_runtime: OfficialRuntime, program: bytes) -> None:
    """The bindings end the process when they cannot decode the identifier that they complain about."""
    failure = official_runtime.run(b"\x89PNG" * 100, []).failure
    assert failure is not None
    assert failure.kind in ("crash", "load-error")
    assert official_runtime.metadata(program)


@executorch
@pytest.mark.slow
def test_a_missing_method_is_a_load_error(official_runtime: OfficialRuntime, program: bytes) -> None:
    failure = official_runtime.run(program, [], method="backward").failure
    assert failure is not None
    assert failure.kind == "load-error"


@executorch
@pytest.mark.slow
def test_wrong_inputs_are_an_execute_error(
    official_runtime: OfficialRuntime, program: bytes, calls: list[list[Value]]
) -> None:
    failure = official_runtime.run(program, [calls[0], calls[1][:1]]).failure
    assert failure is not None
    assert failure.kind == "execute-error"
    assert failure.text.startswith("call 1: ")


def with_operands_exchanged(program: bytes) -> bytes:
    """Have the addition take its number for a tensor: the runtime checks neither kind nor index of an argument.

    The arguments of `add.out` are a vector of five value indices of which the last two are equal.
    """
    for position in range(40, len(program) - 24, 4):
        count, left, right, alpha, out, again = struct.unpack_from("<6i", program, position)
        if count == 5 and out == again and len({left, right, alpha, out}) == 4 and max(left, alpha, out) < 32:
            exchanged = struct.pack("<6i", count, alpha, right, left, out, again)
            return program[:position] + exchanged + program[position + 24 :]
    raise AssertionError("no addition in the program")


@executorch
@pytest.mark.slow
def test_a_crash_is_reported_and_the_next_program_runs(
    official_runtime: OfficialRuntime, program: bytes, calls: list[list[Value]], expected: list[list[Value]]
) -> None:
    for _ in range(2):
        failure = official_runtime.run(with_operands_exchanged(program), calls).failure
        assert failure is not None
        assert failure.kind == "crash"
        assert failure.text.startswith("SIGABRT")
        assert "EValue is not a" in failure.text
        assert_right(official_runtime.run(program, calls).unwrap(), expected)


@executorch
@pytest.mark.slow
def test_a_hanging_worker_is_ended_and_the_next_program_runs(
    official_runtime: OfficialRuntime, program: bytes, calls: list[list[Value]], expected: list[list[Value]]
) -> None:
    failure = official_runtime.sleep(30.0, timeout_s=0.3)
    assert failure is not None
    assert failure.kind == "timeout"
    assert_right(official_runtime.run(program, calls).unwrap(), expected)


@executorch
@pytest.mark.slow
def test_a_worker_killed_from_outside_is_replaced(
    program: bytes, calls: list[list[Value]], expected: list[list[Value]]
) -> None:
    with OfficialRuntime() as runtime:
        assert_right(runtime.run(program, calls).unwrap(), expected)
        process = runtime._worker._process
        assert process is not None
        process.kill()
        process.wait()
        assert_right(runtime.run(program, calls).unwrap(), expected)


@executorch
@pytest.mark.slow
def test_metadata_of_every_method(official_runtime: OfficialRuntime, official_export: Export) -> None:
    methods = official_runtime.metadata(official_export("encode_decode"))
    assert set(methods) == {"encode", "decode"}
    encode = methods["encode"]
    assert [value.sizes for value in encode.inputs if value] == [(2, 10)]
    assert [(value.sizes, value.nbytes, value.scalar_type) for value in encode.outputs if value] == [((2, 5), 40, 6)]


@executorch
@pytest.mark.slow
def test_metadata_of_values_that_are_not_tensors(official_runtime: OfficialRuntime, official_export: Export) -> None:
    inputs = official_runtime.metadata(official_export("plain_values"))["forward"].inputs
    assert [value is not None for value in inputs] == [True, False, False, False]


@executorch
@pytest.mark.slow
def test_metadata_of_garbage_is_an_error(official_runtime: OfficialRuntime) -> None:
    with pytest.raises(ValueError, match="load-error"):
        official_runtime.metadata(b"garbage" * 20)


@executorch
@pytest.mark.slow
def test_latency_is_measured_for_every_repetition(
    official_runtime: OfficialRuntime, program: bytes, calls: list[list[Value]]
) -> None:
    times = official_runtime.measure_latency_ns(program, calls[0], repeats=7, warmup=2)
    assert len(times) == 7
    assert all(0 < time < 1_000_000_000 for time in times)


@executorch
@pytest.mark.slow
def test_kernels_of_the_build_are_listed(official_runtime: OfficialRuntime) -> None:
    assert {"aten::add.out", "aten::copy_", "executorch_prim::et_view.default"} <= official_runtime.kernels()


@executorch
@pytest.mark.slow
def test_exports_are_kept_on_disk(tmp_path: Path, official_export: Export) -> None:
    program = official_export("unused_inputs")
    exporter = OfficialExporter(tmp_path)
    try:
        assert exporter.export("unused_inputs") == program
        (file,) = tmp_path.glob("*.pte")
        file.write_bytes(b"from the cache")
        assert exporter.export("unused_inputs") == b"from the cache"
        with pytest.raises(OfficialExportError, match="KeyError"):
            exporter.export("no_such_case")
    finally:
        exporter.close()


PROBE = """
import sys
sys.modules["executorch"] = None
import pytest
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "tests/official/test_oracle.py", "-k", "garbage_is_a_load"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("required", "code"), [("0", 0), ("1", 1)])
def test_without_the_wheel_tests_skip_aloud_or_fail(required: str, code: int) -> None:
    environment = os.environ | {"EXIRKIT_REQUIRE_EXECUTORCH": required}
    command = [sys.executable, "-c", PROBE]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert "executorch wheel is not installed" in done.stdout
    assert ("1 skipped" if code == 0 else "1 error") in done.stdout
    if code == 0:
        assert "1 tests were skipped" in done.stdout


@executorch
@pytest.mark.slow
def test_worker_that_has_nothing_to_do_lives_on(
    official_runtime: OfficialRuntime, program: bytes, calls: list[list[Value]], expected: list[list[Value]]
) -> None:
    """The alarm of an answered request once ended the worker later, and every answer after it was the one before."""
    worker = official_runtime._worker
    worker.request({"op": "sleep", "seconds": 0, "grace_s": 0}, timeout_s=1.0)
    serving = worker._serving_pid
    time.sleep(1.5)
    assert_right(official_runtime.run(program, calls).unwrap(), expected)
    assert worker._serving_pid == serving
