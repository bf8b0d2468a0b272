"""Files of the official exporter give what eager PyTorch gives, run after run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.models.agreement import assert_agree
from tests.models.zoo import CASES

from exirkit.runtime_ref import Runtime, Verification

pytestmark = [pytest.mark.slow, pytest.mark.executorch]

NAMES = (
    "mlp",
    "simple_conv",
    "mobilenet_v2",
    "bert",
    "gpt2",
    "lstm",
    "kv_cache",
    "dynamic_batch",
    "dynamic_with_state",
    "top_k",
    "int64",
    "float16",
    "bfloat16",
    "views_of_inputs",
    "mapped_rows",
)


@pytest.mark.parametrize("name", NAMES)
def test_official_file(name: str, official_export: Callable[[str], bytes]) -> None:
    case = CASES[name]
    program = Runtime.get().load_program(official_export(name), verification=Verification.Minimal)
    for method_name, method in case.make().methods.items():
        loaded = program.load_method(method_name)
        outputs = [loaded.execute(call.leaves()) for call in method.calls]
        assert_agree(outputs, method.expected(), case.tolerance)
        assert loaded.metadata.num_inputs() == len(method.calls[0].leaves())
        assert loaded.metadata.num_outputs() == len(outputs[0])
