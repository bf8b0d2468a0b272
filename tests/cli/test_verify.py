from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Invoke, document, write_program
from tests.runtime_ref.assembly import Assembly


def test_a_good_file(invoke: Invoke, program_file: Path) -> None:
    result = invoke("verify", program_file)
    assert (result.exit_code, result.stdout) == (0, f"{program_file}: nothing wrong with 1 method\n")
    found = document(invoke("verify", program_file, "--json").stdout)
    assert vars(found) == {
        "ok": True,
        "file": str(program_file),
        "methods": ["forward"],
        "diagnostics": [],
        "missing_data": [],
        "entries": None,
        "cases": [],
        "rules": None,
        "changed_rules": [],
    }


def test_all_findings_are_printed(invoke: Invoke, tmp_path: Path) -> None:
    made = Assembly()
    x = made.tensor([2], at=4096)
    made.plan.non_const_buffer_sizes[1] = 16
    made.call("aten::ad.out", x, 77, x)
    path = write_program(tmp_path / "wrong.pte", made.program([x], [x]))
    result = invoke("verify", path, "--json")
    assert result.exit_code == 1
    found = document(result.stdout)
    codes = {each.code for each in found.diagnostics}
    assert not found.ok
    assert len(found.diagnostics) >= 3
    assert "EK731" in codes
    text = invoke("verify", path)
    assert text.exit_code == 1
    for finding in found.diagnostics:
        assert f"error[{finding.code}]: {finding.message}" in text.stdout
    assert text.stdout.rstrip().endswith(f"{len(found.diagnostics)} findings")


def test_unknown_kernels_are_findings(invoke: Invoke, tmp_path: Path) -> None:
    made = Assembly()
    x = made.tensor([2])
    made.call("aten::relux.out", x, x, x)
    path = write_program(tmp_path / "kernel.pte", made.program([x], [x]))
    result = invoke("verify", path)
    assert result.exit_code == 1
    assert "error[EK731]: no kernel is called aten::relux.out" in result.stdout


def test_damage_is_a_finding(invoke: Invoke, program_file: Path) -> None:
    program_file.write_bytes(program_file.read_bytes()[:100])
    result = invoke("verify", program_file, "--json")
    assert result.exit_code == 1
    found = document(result.stdout)
    assert [each.code[:3] for each in found.diagnostics] == ["EK5"]


def test_no_file(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("verify", tmp_path / "none.pte")
    assert result.exit_code == 1
    assert result.stderr == f"error[EK712]: {tmp_path / 'none.pte'}: no such file or directory\n"
