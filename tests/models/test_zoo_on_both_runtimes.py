"""Every case of the zoo, lowered by us, answers like eager PyTorch on our interpreter and on the official runtime."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.models.agreement import assert_agree
from tests.models.case import Built, ModelCase, Value
from tests.models.zoo import CASES
from tests.official.oracle import OfficialRuntime

import exirkit
from exirkit.runtime_ref import Runtime

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Lowered:
    """A case, the file that we make of it, and the right answers of each method."""

    case: ModelCase
    built: Built
    buffer: bytes
    expected: dict[str, list[list[Value]]]


@pytest.fixture(scope="class", params=list(CASES.values()), ids=list(CASES))
def lowered(request: pytest.FixtureRequest) -> Lowered:
    """One case; class scope keeps its tests together, so that it is lowered once."""
    case: ModelCase = request.param
    built = case.make()
    exported = built.export()
    programs = exported["forward"] if set(exported) == {"forward"} else exported
    buffer = exirkit.to_edge(programs).to_executorch().buffer
    return Lowered(case, built, buffer, {name: method.expected() for name, method in built.methods.items()})


class TestLoweredCase:
    def test_on_our_interpreter(self, lowered: Lowered) -> None:
        for name, method in lowered.built.methods.items():
            loaded = Runtime.get().load_program(lowered.buffer).load_method(name)
            got = [list(loaded.execute(call.leaves())) for call in method.calls]
            assert_agree(got, lowered.expected[name], lowered.case.tolerance)

    @pytest.mark.executorch
    def test_on_the_official_runtime(self, lowered: Lowered, official_runtime: OfficialRuntime) -> None:
        for name, method in lowered.built.methods.items():
            calls = [call.leaves() for call in method.calls]
            got = official_runtime.run(lowered.buffer, calls, method=name).unwrap()
            assert_agree(got, lowered.expected[name], lowered.case.tolerance)
