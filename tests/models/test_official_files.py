"""Files of the official exporter on the reference runtime: it must understand more than what exirkit writes itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.models.agreement import assert_agree
from tests.models.zoo import CASES
from tests.official.oracle import OfficialExportError, OfficialRuntime

from exirkit.runtime_ref import Runtime, Verification

pytestmark = pytest.mark.executorch

# Each has something of its own: several methods, state, symbolic sizes, views, dtypes, branches, plain values.
NAMES = (
    "mlp", "simple_conv", "multi_output", "encode_decode", "two_stateful_methods", "returns_input_and_constant",
    "plain_values", "mobilenet_v2", "resnext_group_norm", "unet_bilinear", "bert", "gpt2", "lstm", "gru",
    "mixture_of_experts", "kv_cache", "buffers_swapped", "buffer_written_twice", "dynamic_batch", "dynamic_with_state",
    "dynamic_positions", "dynamic_views", "derived_twice", "float16", "bfloat16", "int64", "top_k", "scalar_positions",
    "slicing", "gather_and_scatter", "pooling", "channels_last_input", "views_of_inputs", "zero_sized", "branch",
    "branch_in_a_branch", "mapped_rows",
)  # fmt: skip
DEFECTIVE = [name for name, case in CASES.items() if case.official_defect]


@pytest.mark.parametrize("name", NAMES)
def test_official_file(name: str, official_export: Callable[[str], bytes], official_runtime: OfficialRuntime) -> None:
    case = CASES[name]
    data = official_export(name)
    ways: list[dict[str, Any]] = [{}, {"sanitize": True}, {"verification": Verification.Minimal}]
    for method_name, method in case.make().methods.items():
        calls = [call.leaves() for call in method.calls]
        theirs = official_runtime.run(data, calls, method=method_name).unwrap()
        for way in ways:
            loaded = Runtime.get().load_program(data, **way).load_method(method_name)
            ours = [list(loaded.execute(call.cloned().leaves())) for call in method.calls]
            assert_agree(ours, theirs, case.tolerance)
            assert_agree(ours, method.expected(), case.tolerance)
            assert loaded.metadata.num_inputs() == len(calls[0])
            assert loaded.metadata.num_outputs() == len(ours[0])


def test_no_case_with_a_known_defect_is_compared() -> None:
    assert not set(NAMES) & set(DEFECTIVE)


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
