"""Every way to fail: one line on standard error, the right exit code, no traceback."""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cli.conftest import Invoke, document, write_program
from tests.runtime_ref.assembly import Assembly

from exirkit import ContractError, Diagnostic, InternalError, ModelError, UsageError
from exirkit.cli import data_files

LINE = re.compile(r"error\[(EK\d{3})\]: [^\n]+\n")


def fails(invoke: Invoke, *args: str | Path, code: str, exit_code: int) -> str:
    """Check the form of a failure, with and without --json, and return its line."""
    result = invoke(*args)
    assert result.exit_code == exit_code, (result.stderr, result.exception)
    match = LINE.fullmatch(result.stderr)
    assert match is not None, result.stderr
    assert match[1] == code, result.stderr
    assert result.stdout == ""
    again = invoke(args[0], "--json", *args[1:])
    report = document(again.stdout)
    assert (report.exit_code, report.diagnostics[0].code, again.stderr) == (exit_code, code, result.stderr)
    line: str = result.stderr
    return line


@pytest.mark.parametrize(
    ("args", "fact"),
    [
        (["bogus"], "no such command 'bogus'"),
        (["run"], "missing argument 'MODEL.pte'"),
        (["run", "a.pte", "--repat", "3"], "no such option: --repat"),
        (["run", "a.pte", "--repeat", "0"], "invalid value for '--repeat'"),
        (["run", "a.pte", "--repeat", "many"], "invalid value for '--repeat'"),
        (["run", "a.pte", "--ones", "--random"], "exclude each other"),
        (["run", "a.pte", "--seed"], "--seed"),
        (["lower", "models.py:tiny"], "missing option '--output'"),
        (["lower", "models.py:tiny", "-o", "x.pte", "--planner", "clever"], "invalid value for '--planner'"),
        (["lower", "models.py:tiny", "-o", "x.pte", "--alignment", "0"], "invalid value for '--alignment'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_command_lines(invoke: Invoke, args: list[str], fact: str) -> None:
    line = fails(invoke, *args, code="EK711", exit_code=2)
    assert fact in line
    assert "--help`" in line or "exclude" in line


@pytest.mark.parametrize("command", ["run", "inspect", "verify"])
def test_files_that_cannot_be_read(invoke: Invoke, tmp_path: Path, command: str) -> None:
    line = fails(invoke, command, "none.pte", code="EK712", exit_code=1)
    assert line == "error[EK712]: none.pte: no such file or directory\n"
    assert "is a directory" in fails(invoke, command, tmp_path, code="EK712", exit_code=1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_without_permission(invoke: Invoke, program_file: Path) -> None:
    program_file.chmod(0)
    assert "permission denied" in fails(invoke, "run", program_file, code="EK712", exit_code=1)


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"", "EK504"), (b"PK\x03\x04" + bytes(50), "EK502"), (b"\x08\0\0\0ET99" + bytes(50), "EK503")],
    ids=["empty", "zip", "another version"],
)
@pytest.mark.parametrize("command", ["run", "inspect"])
def test_files_that_are_not_programs(invoke: Invoke, tmp_path: Path, command: str, content: bytes, code: str) -> None:
    (tmp_path / "x.pte").write_bytes(content)
    fails(invoke, command, "x.pte", code=code, exit_code=1)


def test_verbose_shows_the_whole_diagnostic(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "x.pte").write_bytes(b"")
    result = invoke("-v", "run", "x.pte")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "   = expected: at least 8 bytes"


def test_several_findings_are_counted(invoke: Invoke, tmp_path: Path) -> None:
    made = Assembly()
    x, y = made.tensor([2]), made.tensor([2])
    made.call("aten::nonsense.out", x, x)
    made.call("aten::absurd.out", y, y)
    path = write_program(tmp_path / "x.pte", made.program([x], [y]))
    line = fails(invoke, "run", path, code="EK620", exit_code=1)
    assert line.endswith("[and 1 more; `exirkit -v` shows all]\n")
    assert len(document(invoke("run", path, "--json").stdout).diagnostics) == 2
    assert invoke("-v", "run", path).stderr.count("error[EK620]") == 2


@pytest.mark.parametrize(
    ("target", "code", "exit_code", "fact"),
    [
        ("models", "EK713", 2, "is not MODULE:FACTORY"),
        ("models.py", "EK713", 2, "models.py:FACTORY"),
        ("models.py:", "EK713", 2, "is not MODULE:FACTORY"),
        (":tiny", "EK713", 2, "is not MODULE:FACTORY"),
        ("models.py:a-b", "EK713", 2, "is not MODULE:FACTORY"),
        ("none.py:tiny", "EK713", 1, "none.py: there is no such file"),
        ("none.pt2", "EK713", 1, "none.pt2: there is no such file"),
        ("no.such.module:tiny", "EK714", 1, "there is no module 'no'"),
        ("os.nothing:tiny", "EK714", 1, "there is no module 'os.nothing'"),
        ("models.py:tinny", "EK714", 1, "did you mean tiny?"),
        ("models.py:zzzzzz", "EK714", 1, "has no function 'zzzzzz'"),
        ("models.py:constant", "EK714", 1, "has no function 'constant'"),
        ("models.py:raises", "EK715", 1, "raises() raised ZeroDivisionError: division by zero"),
        ("models.py:leaves", "EK715", 1, "leaves() raised SystemExit: bye"),
        ("models:raises", "EK715", 1, "models.py:"),
        ("models.py:number", "EK716", 1, "the factory returned something of type int for forward"),
        ("models.py:module", "EK716", 1, "a model without example inputs"),
        ("models.py:empty_meta_tensor", "EK716", 1, "(write (x,) for one input)"),
        ("models.py:nothing", "EK716", 1, "a dict without method names"),
        ("models.py:rejected_by_export", "EK717", 1, "torch.export failed for method forward"),
    ],
)
def test_targets_without_a_model(
    invoke: Invoke, model_file: Path, target: str, code: str, exit_code: int, fact: str
) -> None:
    line = fails(invoke, "lower", target, "-o", "x.pte", code=code, exit_code=exit_code)
    assert fact in line
    assert not Path("x.pte").exists()


def test_the_place_in_the_model_is_shown(invoke: Invoke, model_file: Path) -> None:
    lines = model_file.read_text().splitlines()
    number = 1 + next(index for index, line in enumerate(lines) if "1 / width" in line)
    line = fails(invoke, "lower", f"{model_file}:raises", "-o", "x.pte", code="EK715", exit_code=1)
    assert line.startswith(f"error[EK715]: {model_file}:{number}: raises() raised ZeroDivisionError")


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("def f(:", ":1: importing broken.py raised SyntaxError"),
        ("\nimport missing_library", ":2: importing broken.py raised ModuleNotFoundError"),
        ("raise KeyError('x\\ny')", ":1: importing broken.py raised KeyError"),
        ("import sys\nsys.exit(0)", ":2: importing broken.py raised SystemExit"),
    ],
)
def test_files_that_cannot_be_imported(invoke: Invoke, tmp_path: Path, text: str, fact: str) -> None:
    (tmp_path / "broken.py").write_text(text)
    line = fails(invoke, "lower", "broken.py:make", "-o", "x.pte", code="EK715", exit_code=1)
    assert f"{tmp_path / 'broken.py'}{fact}" in line


def test_an_archive_with_compiled_code_is_not_loaded(invoke: Invoke, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.pt2", "w") as archive:
        archive.writestr("x/data/aotinductor/model/code.so", b"nothing that may be loaded")
    line = fails(invoke, "lower", "x.pt2", "-o", "x.pte", code="EK718", exit_code=1)
    assert "x.pt2: the archive has compiled code in it" in line


def test_a_pt2_file_that_is_none(invoke: Invoke, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.pt2", "w") as archive:
        archive.writestr("x/\u00e9/code.so", b"nothing that may be loaded")
    named = (tmp_path / "x.pt2").read_bytes()
    # What torch's own reader would take a name for that Python cannot read is not to be found out.
    for content in (b"nothing", named.replace("\u00e9".encode(), b"\xff\xff")):
        (tmp_path / "x.pt2").write_bytes(content)
        line = fails(invoke, "lower", "x.pt2", "-o", "x.pte", code="EK718", exit_code=1)
        assert "x.pt2: the names in the archive cannot be read: " in line


@pytest.mark.parametrize(
    ("output", "exit_code", "fact"),
    [
        ("model.bin", 2, "has to end in .pte (write to model.pte)"),
        ("none/model.pte", 1, "none: there is no such directory"),
        ("taken.pte", 1, "taken.pte: is a directory"),
    ],
)
def test_outputs_are_checked_before_the_work(
    invoke: Invoke, model_file: Path, tmp_path: Path, output: str, exit_code: int, fact: str
) -> None:
    (tmp_path / "taken.pte").mkdir()
    assert fact in fails(invoke, "lower", "models.py:raises", "-o", output, code="EK712", exit_code=exit_code)


def test_inputs_that_are_none(invoke: Invoke, program_file: Path, tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"nothing")
    (tmp_path / "x.npz").write_bytes(b"nothing")
    (tmp_path / "x.pt").write_bytes(b"nothing")
    (tmp_path / "x.txt").write_bytes(b"1 2 3")
    np.save(tmp_path / "pickle.npy", np.array([object()]), allow_pickle=True)
    torch.save(Path("x"), tmp_path / "pickle.pt")
    for name in ("x.npy", "x.npz", "x.pt", "pickle.npy", "pickle.pt"):
        line = fails(invoke, "run", program_file, "--input", name, code="EK721", exit_code=1)
        assert line.startswith(f"error[EK721]: {name}: this file does not hold inputs:")
    fails(invoke, "run", program_file, "--input", "x.txt", code="EK721", exit_code=2)
    fails(invoke, "run", program_file, "--input", "none.npy", code="EK712", exit_code=1)


def test_inputs_that_do_not_fit(invoke: Invoke, program_file: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.zeros((1, 3, 3), dtype=np.float32))
    np.save(tmp_path / "double.npy", np.zeros((1, 2)))
    np.savez(tmp_path / "two.npz", np.zeros(1), np.zeros(1))
    for name, code in (("wide.npy", "EK643"), ("double.npy", "EK642"), ("two.npz", "EK640")):
        fails(invoke, "run", program_file, "--input", name, code=code, exit_code=2)


def test_inputs_that_are_too_large_to_make(invoke: Invoke, tmp_path: Path) -> None:
    made = Assembly()
    x = made.tensor([2**20, 2**20, 2**10], planned=False)
    path = write_program(tmp_path / "x.pte", made.program([x], []))
    line = invoke("run", path)
    assert line.exit_code == 1
    assert LINE.fullmatch(line.stderr)


@pytest.mark.parametrize(
    ("kind", "exit_code"), [(ModelError, 1), (UsageError, 2), (ContractError, 3), (InternalError, 4)]
)
def test_every_kind_of_error_has_its_exit_code(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, kind: type[ModelError], exit_code: int
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise kind(Diagnostic(code="EK499", message="something\nwith \x1b[31mlines"))

    monkeypatch.setattr(data_files, "kind_of_file", fail)
    line = fails(invoke, "inspect", "x.pte", code="EK499", exit_code=exit_code)
    assert line == "error[EK499]: something with \\x1b[31mlines\n"


def test_bugs_say_so(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("a\nb" + "c" * 5000)

    monkeypatch.setattr(data_files, "kind_of_file", fail)
    line = fails(invoke, "inspect", "x.pte", code="EK791", exit_code=4)
    assert "EXIRKIT_TRACEBACK=1" in invoke("-v", "inspect", "x.pte").stderr
    assert len(line) < 1000


def test_tracebacks_on_request(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXIRKIT_TRACEBACK", "1")
    result = invoke("run", "none.pte")
    assert isinstance(result.exception, FileNotFoundError)


def test_interrupting_leaves_no_trace(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    result = invoke("lower", "models.py:interrupted", "-o", "x.pte")
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "")
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["models.py"]
