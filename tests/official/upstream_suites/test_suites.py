"""Test suites of the official wheel: what passes through the official chain passes through ours."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from tests.official.upstream_suites.running import Group, modules_of, read_table, run_modules

TABLE = read_table()
FOLDERS = ("xnnpack/test", "vulkan/test", "apple/coreml/test", "cadence/aot/tests", "cortex_m/test")


@pytest.mark.executorch
@pytest.mark.parametrize("group", TABLE.groups, ids=lambda group: group.name)
def test_what_the_official_chain_passes_passes_through_ours(group: Group) -> None:
    missing = [name for name in group.needs if find_spec(name) is None]
    if missing:
        pytest.skip(f"{group.name} needs {', '.join(missing)}")
    outcomes, printed = run_modules(group.modules, TABLE.not_run)
    assert outcomes, printed[-3000:]
    failed = {name: one.reason for name, one in outcomes.items() if one.outcome != "passed" and name not in TABLE.known}
    assert not failed, "\n\n".join(f"{name}\n{reason}" for name, reason in failed.items())
    fixed = [name for name, one in outcomes.items() if one.outcome == "passed" and name in TABLE.known]
    assert not fixed, f"these pass now; take them out of suites.yaml: {fixed}"
    silent = [module for module in group.modules if not any(_is_in(name, module) for name in outcomes)]
    assert not silent, f"no test of these has run: {silent}"
    idle = [
        module
        for module in group.modules
        if group.lowers and not any(one.steps for name, one in outcomes.items() if _is_in(name, module))
    ]
    assert not idle, f"no test of these has taken a step of our chain: {idle}"


def _is_in(test: str, module: str) -> bool:
    return test.startswith(module.replace(".", "/") + ".py")


@pytest.mark.executorch
def test_each_module_of_the_suites_is_in_the_table() -> None:
    listed = [module for group in TABLE.groups for module in group.modules]
    named = [*listed, *TABLE.left]
    assert len(named) == len(set(named))
    there = [module for folder in FOLDERS for module in modules_of(folder)]
    assert set(there) == set(named)


@pytest.mark.executorch
def test_the_table_gives_a_reason_for_each_test_that_does_not_pass() -> None:
    listed = {module for group in TABLE.groups for module in group.modules}
    assert all(why.strip() for why in (*TABLE.known.values(), *TABLE.left.values()))
    for test in TABLE.known:
        module = test.partition("::")[0].removesuffix(".py").replace("/", ".")
        assert module in listed, f"{test} is in no group"
