"""Whatever is in a file, `inspect`, `verify` and `run` answer in words."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.emit.sample_programs import full_program
from typer.testing import CliRunner

from exirkit.cli.app import app
from exirkit.emit import lay_out

CONTENT = lay_out(full_program()).to_bytes()
RUNNER = CliRunner()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(0, len(CONTENT) - 1), st.integers(0, 255)), min_size=1, max_size=4),
    end=st.integers(0, 3 * len(CONTENT)),
    command=st.sampled_from(["inspect", "verify", "run"]),
)
def test_damaged_files(tmp_path: Path, changes: list[tuple[int, int]], end: int, command: str) -> None:
    data = bytearray(CONTENT)
    for position, byte in changes:
        data[position] = byte
    path = tmp_path / "damaged.pte"
    path.write_bytes(data[:end])
    options = ["--instructions", "--values"] if command == "inspect" else []
    result = RUNNER.invoke(app, [command, str(path), *options])
    assert result.exit_code in (0, 1, 2), result.stderr
    assert result.stderr.count("\n") <= 1
    assert result.exit_code == 0 or "error[EK" in result.stdout + result.stderr
