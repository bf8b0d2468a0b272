from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Invoke, document


def test_a_page_and_its_document(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    result = invoke("report", f"{model_file}:tiny", "-o", page, "--json")
    assert result.exit_code == 0, result.stderr
    found = document(result.stdout)
    assert (found.ok, found.file, found.nbytes, found.failure) == (True, str(page), page.stat().st_size, [])
    stages = found.methods.forward
    assert [stage.name for stage in stages][-1] == "plan-memory"
    decomposed = next(stage for stage in stages if stage.name == "decompose-to-core")
    assert (decomposed.added, decomposed.removed, decomposed.rewrites) == (2, 1, 0)
    assert "default-src 'none'" in page.read_text()
    text = invoke("report", f"{model_file}:tiny", "-o", page).stdout
    for fact in ("decompose-to-core", "stages that change the program", str(page)):
        assert fact in text


def test_rules_passes_and_measured_times(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    page, times = tmp_path / "report.html", tmp_path / "times.json"
    times.write_text('{"forward": [[0, 1250], {"instruction": 1, "value": 80, "note": "cold"}, ["x", 2]]}')
    options = ("--rules", "algebra", "-O2", "--times", times, "--no-sources")
    result = invoke("report", f"{model_file}:tiny", "-o", page, *options, "--json")
    assert result.exit_code == 0, result.stderr
    times.write_text('{"forward": [[0, "long"]]}')
    result = invoke("report", f"{model_file}:tiny", "-o", page, "--times", times)
    assert result.exit_code == 2
    assert "EK770" in result.stderr


def test_the_way_to_a_failure(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    page, passes = tmp_path / "report.html", tmp_path / "failing_pass.py"
    passes.write_text("def fail(module):\n    raise RuntimeError('on purpose')\n")
    result = invoke("report", f"{model_file}:tiny", "-o", page, "--passes", f"{passes}:fail", "--json")
    assert result.exit_code == 1
    found = document(result.stdout)
    assert not found.ok
    assert "on purpose" in found.failure[0]
    assert found.methods.forward[-1].name == "convert-to-edge-operators"
    assert page.is_file()


def test_the_name_of_the_page(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    result = invoke("report", f"{model_file}:tiny", "-o", tmp_path / "report.txt")
    assert result.exit_code == 2
    assert "EK712" in result.stderr
