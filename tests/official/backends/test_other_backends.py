"""Official backends that cannot be run here: files with their delegates are well formed and hold what theirs hold."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.official.backends.other_backends import OTHERS
from tests.official.backends.process import ask_bridge
from tests.official.oracle import OfficialRuntime

from exirkit import DiagnosticError
from exirkit.emit import read_program
from exirkit.runtime_ref import Runtime

pytestmark = [pytest.mark.executorch, pytest.mark.slow]

# Copies that change nothing are not there in our Edge programs.
GONE = {"dim_order_ops._clone_dim_order.default", "aten.expand_copy.default"}


@pytest.mark.parametrize("name", OTHERS)
def test_files_with_their_delegates_are_loaded(name: str, official_runtime: OfficialRuntime) -> None:
    answer, (pte,) = ask_bridge({"op": "lower_for", "backend": name})
    ours, theirs = (Counter(answer[one]["taken"]) for one in ("ours", "theirs"))
    assert theirs
    assert set(theirs - ours) <= GONE
    assert answer["ours"]["delegates"] <= answer["theirs"]["delegates"]
    ids = {delegate.id for plan in read_program(pte).program.execution_plan for delegate in plan.delegates}
    assert ids == {OTHERS[name].backend}
    assert set(official_runtime.metadata(pte)) == {"forward"}
    with pytest.raises(DiagnosticError) as raised:
        Runtime.get().load_program(pte).load_method("forward")
    assert raised.value.code == "EK621"
    assert OTHERS[name].backend in str(raised.value)
