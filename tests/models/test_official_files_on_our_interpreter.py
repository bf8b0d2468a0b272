"""Files of the official exporter run on our interpreter: it must not understand only what we write ourselves."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.models.agreement import assert_agree
from tests.models.zoo import CASES
from tests.official.oracle import OfficialRuntime

from exirkit.runtime_ref import Runtime

pytestmark = [pytest.mark.slow, pytest.mark.executorch]

# Each has something of its own: several methods, state, symbolic sizes, views, dtypes, branches, plain values.
NAMES = (
    "mlp",
    "multi_output",
    "encode_decode",
    "two_stateful_methods",
    "returns_input_and_constant",
    "plain_values",
    "resnext_group_norm",
    "unet_bilinear",
    "bert",
    "gru",
    "mixture_of_experts",
    "kv_cache",
    "buffers_swapped",
    "buffer_written_twice",
    "dynamic_batch",
    "dynamic_positions",
    "dynamic_views",
    "derived_twice",
    "float16",
    "int64",
    "scalar_positions",
    "slicing",
    "gather_and_scatter",
    "pooling",
    "channels_last_input",
    "zero_sized",
    "branch",
    "branch_in_a_branch",
    "mapped_rows",
)


@pytest.mark.parametrize("name", NAMES)
def test_official_file(name: str, official_export: Callable[[str], bytes], official_runtime: OfficialRuntime) -> None:
    case = CASES[name]
    program = official_export(name)
    for method_name, method in case.make().methods.items():
        calls = [call.leaves() for call in method.calls]
        loaded = Runtime.get().load_program(program).load_method(method_name)
        ours = [list(loaded.execute(call)) for call in calls]
        theirs = official_runtime.run(program, calls, method=method_name).unwrap()
        assert_agree(ours, theirs, case.tolerance)
        assert_agree(ours, method.expected(), case.tolerance)


def test_no_case_with_a_known_defect_is_taken_for_the_truth() -> None:
    assert [name for name in NAMES if CASES[name].official_defect] == []
