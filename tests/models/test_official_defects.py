"""What the zoo says about the official exporter is true: such a case fails there, or answers wrongly."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.models.agreement import assert_agree
from tests.models.zoo import CASES
from tests.official.oracle import OfficialExportError, OfficialRuntime

pytestmark = [pytest.mark.slow, pytest.mark.executorch]

DEFECTIVE = [name for name, case in CASES.items() if case.official_defect]


@pytest.mark.parametrize("name", DEFECTIVE)
def test_the_official_exporter_has_the_defect(
    name: str, official_export: Callable[[str], bytes], official_runtime: OfficialRuntime
) -> None:
    case = CASES[name]
    try:
        program = official_export(name)
    except OfficialExportError:
        return
    for method_name, method in case.make().methods.items():
        result = official_runtime.run(program, [call.leaves() for call in method.calls], method=method_name)
        if result.failure is None:
            with pytest.raises(AssertionError):
                assert_agree(result.outputs, method.expected(), case.tolerance)
