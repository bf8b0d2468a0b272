"""The smallest program of every bug that was found and fixed passes the whole oracle suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.oracles import ORACLES, check
from exirkit.fuzz.programs import parse_program, program_text

FILES = sorted(Path(__file__).with_name("regressions").glob("*.txt"))
# The official exporter and runtime have bugs of their own, which these programs may meet.
OWN = [name for name, one in ORACLES.items() if "official wheel" not in one.needs]


def test_there_are_programs() -> None:
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize(
    "compiler",
    [*map(ExirkitCompiler, [0, 1, 2]), ExirkitCompiler(share_mutable_buffers=True)],
    ids=["O0", "O1", "O2", "shared-buffers"],
)
def test_it_does_not_come_back(path: Path, compiler: ExirkitCompiler) -> None:
    program = parse_program(path.read_text(), file=path.name)
    assert program_text(program) == path.read_text()
    verdict = check(program, compiler=compiler, oracles=OWN)
    assert verdict.is_good, verdict.failures
    assert verdict.unsupported is None
