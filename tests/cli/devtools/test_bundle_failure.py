from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.conftest import Invoke, document

WRONG = """
rulebook: 1
rules:
- id: wrong.relu
  doc: A wrong rule.
  vars: {x: "f32 [*S]"}
  match: return aten.relu.default(x)
  replace: return aten.abs.default(x)
"""


def test_a_wrong_rule_is_seen_again_elsewhere(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    book, bundle = tmp_path / "book.yaml", tmp_path / "bundle.zip"
    book.write_text(WRONG)
    result = invoke("bundle-failure", f"{model_file}:tiny", "-o", bundle, "--rules", book, "--json")
    assert result.exit_code == 0, result.stderr
    found = document(result.stdout)
    assert (found.ok, found.weights, found.failure.kind) == (True, False, "results")
    assert (found.failure.rule, found.failure.stage) == ("wrong.relu", "apply-rules")
    # Neither the model nor the book is there any more.
    book.unlink()
    Path(model_file).unlink()
    result = invoke("replay", bundle, "--json")
    assert result.exit_code == 0, result.stderr
    again = document(result.stdout)
    assert (again.ok, again.found.rule, again.recorded.rule) == (True, "wrong.relu", "wrong.relu")
    saved = tmp_path / "model.pt2"
    text = invoke("replay", bundle, "--save", saved).stdout
    assert "the failure is seen again" in text
    assert invoke("lower", saved, "-o", tmp_path / "model.pte").exit_code == 0


def test_a_failing_pass_needs_to_be_there(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    passes, bundle = tmp_path / "failing_here.py", tmp_path / "bundle.zip"
    passes.write_text("def fail(module):\n    raise RuntimeError('on purpose')\n")
    result = invoke("bundle-failure", f"{model_file}:tiny", "-o", bundle, "--passes", f"{passes}:fail", "--json")
    assert result.exit_code == 0, result.stderr
    found = document(result.stdout)
    assert (found.failure.kind, found.failure.codes) == ("lowering", ["EK425"])
    result = invoke("replay", bundle)
    assert result.exit_code == 1
    assert "EK774" in result.stderr
    assert invoke("replay", bundle, "--passes", f"{passes}:fail").exit_code == 0


def test_without_a_failure_there_is_no_bundle(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.zip"
    result = invoke("bundle-failure", f"{model_file}:tiny", "-o", bundle)
    assert result.exit_code == 1
    assert "EK773" in result.stderr
    assert not bundle.exists()
    assert invoke("bundle-failure", f"{model_file}:tiny", "-o", bundle, "--always", "--weights").exit_code == 0
    assert invoke("replay", bundle).exit_code == 0
    with zipfile.ZipFile(bundle) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    wrong: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
        ("runs: Field required", lambda facts: facts.pop("runs")),
        ("runs must be from 1", lambda facts: facts.update(runs=10**9)),
        ("options.level", lambda facts: facts["options"].update(level=7)),
        ("options.rules", lambda facts: facts["options"].update(rules=[1])),
        ("failure", lambda facts: facts.update(failure={"kind": "unknown"})),
        ("versions.torch", lambda facts: facts.update(versions={"torch": []})),
    ]
    for where, change in wrong:
        changed = json.loads(members["bundle.json"])
        change(changed["facts"])
        with zipfile.ZipFile(bundle, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, json.dumps(changed) if name == "bundle.json" else data)
        result = invoke("replay", bundle)
        assert result.exit_code == 1
        assert "EK772" in result.stderr
        assert where in result.stderr
