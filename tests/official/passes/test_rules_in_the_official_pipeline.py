"""Passes made from rules work in the official exporter, and its files compute what the models do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.official.oracle import ROOT, OfficialRuntime
from tests.official.passes.rule_cases import CASES
from tests.patterns.rule_files import rule_ids

from exirkit.fuzz.official.process import WorkerProcess
from exirkit.fuzz.official.wire import Header

pytestmark = [pytest.mark.executorch, pytest.mark.slow]

BOOKS = ("canonicalize", "algebra")
ROUTES = [(name, route) for name in CASES for route in ("program", "transform", "module")]
BARE = [name for name, case in CASES.items() if case.bare is not None]

# What the official `to_edge` writes in another way before any pass sees it.
REWRITTEN_BEFORE = {
    "canonicalize.transpose-to-permute",
    "canonicalize.t-to-permute",
    "canonicalize.cat-of-split-remove",
    "canonicalize.slice-all-remove",
    "canonicalize.slice-of-all-remove",
}


@pytest.fixture(scope="module")
def worker() -> Iterator[WorkerProcess]:
    """The official exporter with our passes, in a process of its own."""
    with WorkerProcess("tests.official.passes.rules_worker", ROOT) as process:
        yield process


def ask(worker: WorkerProcess, request: Header) -> tuple[Header, list[bytes]]:
    answer, blobs = worker.request(request, timeout_s=180.0)
    assert "failure" not in answer, answer["failure"]
    return answer, blobs


def check_outputs(official: OfficialRuntime, name: str, pte: bytes) -> None:
    case = CASES[name]
    model = case.model()
    calls = [case.inputs(), case.inputs(batch=7)] if case.batch else [case.inputs()]
    for inputs, outputs in zip(calls, official.run(pte, calls).unwrap(), strict=True):
        torch.testing.assert_close(outputs[0], model(*inputs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "route"), ROUTES)
def test_rules_in_the_official_exporter(
    name: str, route: str, worker: WorkerProcess, official_runtime: OfficialRuntime
) -> None:
    case = CASES[name]
    answer, (pte,) = ask(worker, {"op": "lower", "case": name, "route": route})
    is_blind = route == "module" and case.module is not None
    assert answer["applied"] == dict(case.module or {} if is_blind else case.applied)
    assert answer["faults"] == []
    assert answer["strangers"] == []
    check_outputs(official_runtime, name, pte)


@pytest.mark.parametrize("name", BARE)
def test_rules_before_the_official_exporter(
    name: str, worker: WorkerProcess, official_runtime: OfficialRuntime
) -> None:
    answer, (pte,) = ask(worker, {"op": "lower", "case": name, "route": "bare"})
    assert answer["applied"] == dict(CASES[name].bare or {})
    assert answer["faults"] == []
    check_outputs(official_runtime, name, pte)


@pytest.mark.parametrize("name", ["normalised", "folded"])
def test_rules_about_stored_tensors_say_that_a_graph_does_not_show_them(name: str, worker: WorkerProcess) -> None:
    whole, _ = ask(worker, {"op": "lower", "case": name, "route": "program"})
    assert whole["blind"] == []
    graph, _ = ask(worker, {"op": "lower", "case": name, "route": "module"})
    assert set(CASES[name].applied) <= set(graph["blind"])


@pytest.mark.parametrize("name", ["shuffles", "views", "neutral", "normalised", "folded", "casts"])
def test_rules_make_official_files_smaller(name: str, worker: WorkerProcess) -> None:
    _, (plain,) = ask(worker, {"op": "lower", "case": name, "route": "plain"})
    _, (better,) = ask(worker, {"op": "lower", "case": name, "route": "program"})
    assert len(better) < len(plain)


@pytest.mark.parametrize(("book", "rule"), rule_ids(*BOOKS))
def test_rule_fires_on_an_official_program_made_from_itself(book: str, rule: str, worker: WorkerProcess) -> None:
    answer, _ = ask(worker, {"op": "rule", "book": book, "rule": rule})
    if answer["status"] == "skipped" and rule in REWRITTEN_BEFORE:
        pytest.skip(answer["text"])
    assert answer["status"] == "fired", answer["text"]
    assert rule not in REWRITTEN_BEFORE, "the official exporter leaves it to us now"
