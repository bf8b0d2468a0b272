"""Certificates beside program files: written by `lower`, checked by `verify`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cli.conftest import Invoke, document

SOURCE = """
import torch


class Turned(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x).permute(1, 0).permute(1, 0) * 1.0


def turned():
    return Turned(), (torch.ones(2, 3),)
"""


def test_a_certificate_says_what_made_a_file_and_is_checked(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "turned.py").write_text(SOURCE)
    lowered = invoke("lower", "turned.py:turned", "-o", "turned.pte", "--certificate", "--json")
    assert lowered.exit_code == 0, lowered.stderr
    path = tmp_path / "turned.pte.cert"
    assert document(lowered.stdout).certificate == path.name
    stated: dict[str, Any] = json.loads(path.read_text())
    changed = {one["name"] for one in stated["passes"] if one["changed"]}
    assert {"replace-views-with-copies", "simplify", "convert-to-out-variants"} <= changed
    rules = {one["rule"]: one for one in stated["rules"]}
    assert rules["canonicalize.permute-permute-merge"]["status"] == "proved"
    assert all(one["samples"] and one["seed"] is not None for one in rules.values())
    assert {one["of"] for one in stated["verifiers"]} >= {"to_edge.yaml", "to_executorch.yaml", "forward", "file"}

    fine = invoke("verify", "turned.pte", "--certificate", "--require", "tried")
    assert (fine.exit_code, "rules that were applied" in fine.stdout) == (0, True), fine.stdout
    assert invoke("verify", "turned.pte", "--require", "tried").exit_code == 2

    def codes(edit: Callable[[dict[str, Any]], object], *options: str) -> set[str]:
        edited = json.loads(json.dumps(stated))
        edit(edited)
        path.write_text(json.dumps(edited))
        report = document(invoke("verify", "turned.pte", "--certificate", "--json", *options).stdout)
        assert report.ok == (not report.diagnostics)
        return {one.code for one in report.diagnostics}

    def first_rule(**fields: Any) -> Callable[[dict[str, Any]], object]:
        return lambda it: it["rules"][0].update(fields)

    assert codes(lambda it: it) == set()
    assert codes(lambda it: it["program"].update(sha256="0" * 64)) == {"EK782"}
    assert codes(lambda it: it["program"].update(nbytes=3)) == {"EK782"}
    assert codes(lambda it: it.update(data=[it["program"] | {"name": "none.ptd"}])) == {"EK782"}
    assert codes(lambda it: it.update(data=[it["program"] | {"name": "../turned.pte"}])) == {"EK781"}
    assert codes(lambda it: it["verifiers"][0].update(findings=["EK301"])) == {"EK788"}
    assert codes(lambda it: it.update(verifiers=[])) == {"EK788"}
    assert codes(first_rule(samples=7)) == {"EK783"}
    assert codes(first_rule(digest="0" * 20)) == {"EK783"}
    assert codes(first_rule(status="refuted")) == set(), "more has become known of the same text"
    assert codes(first_rule(status="untried"), "--require", "tried") == {"EK784"}
    assert codes(first_rule(status="tried"), "--require", "tried") == set(), "at least tried"
    assert codes(lambda it: it.update(more=1)) == {"EK781"}
    # Of a rule with another text, nothing here says whether the certificate is right.
    path.write_text(json.dumps(stated | {"rules": [stated["rules"][0] | {"hash": "0" * 20, "status": "untried"}]}))
    report = document(invoke("verify", "turned.pte", "--certificate", "--json").stdout)
    assert (report.ok, report.changed_rules) == (True, [stated["rules"][0]["rule"]])
    path.unlink()
    assert "EK712" in invoke("verify", "turned.pte", "--certificate").stderr
