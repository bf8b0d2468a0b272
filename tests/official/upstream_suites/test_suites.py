"""Test suites of the official wheel: what passes through the official chain passes through ours."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
from tests.official.upstream_suites.plugin import matches
from tests.official.upstream_suites.running import Group, Known, modules_of, read_table, run_modules
from tests.official.upstream_suites.seen import BEGIN, PAGE, read_seen, seen_in, table_text, written
from tests.thoroughness import TRIES_ALL

TABLE = read_table()
SEEN = read_seen()
FOLDERS = ("xnnpack/test", "vulkan/test", "apple/coreml/test", "cadence/aot/tests", "cortex_m/test")
# What a suite expects to fail, it expects of each chain.
GOOD = ("passed", "expected failure")
NEEDED = sorted({one.needs for one in TABLE.known if one.needs})


@pytest.mark.executorch
@pytest.mark.parametrize("group", TABLE.groups, ids=lambda group: group.name)
def test_what_the_official_chain_passes_passes_through_ours(group: Group) -> None:
    if group.thorough and not TRIES_ALL:
        pytest.skip(f"{group.name} takes minutes of a core: EXIRKIT_TESTS=all runs it")
    missing = [name for name in group.needs if find_spec(name) is None]
    if missing:
        pytest.skip(f"{group.name} needs {', '.join(missing)}")
    not_run = [pattern for one in TABLE.known if not one.run for pattern in one.tests]
    outcomes, printed = run_modules(group.modules, not_run, preserve=group.preserve)
    assert outcomes, printed[-3000:]
    failed = {name: one.reason for name, one in outcomes.items() if one.outcome not in GOOD and not _known(name)}
    assert not failed, "\n\n".join(f"{name}\n{reason}" for name, reason in failed.items())
    fixed = [name for name, one in outcomes.items() if one.outcome in GOOD and any(map(_fails, _known(name)))]
    assert not fixed, f"these pass now; take them out of suites.yaml: {fixed}"
    silent = [module for module in group.modules if not any(_is_in(name, module) for name in outcomes)]
    assert not silent, f"no test of these has run: {silent}"
    # More pass where packages are installed without which the groups were counted.
    seen = None if any(map(find_spec, NEEDED)) else SEEN.get(group.name)
    differs = seen and seen_in(outcomes).differs(seen)
    assert not differs, f"seen.yaml and the documentation say otherwise, run {_seen_again(group)}: {differs}"
    idle = [
        module
        for module in group.modules
        if group.lowers and not any(one.steps for name, one in outcomes.items() if _is_in(name, module))
    ]
    assert not idle, f"no test of these has taken a step of our chain: {idle}"


@pytest.mark.parametrize("package", NEEDED)
def test_what_needs_a_package_is_named_where_it_is_missing(package: str) -> None:
    tests = [pattern for one in TABLE.known if one.needs == package for pattern in one.tests]
    if find_spec(package) is None:
        pytest.skip(f"these need {package}: {', '.join(tests)}")


def _seen_again(group: Group) -> str:
    """Return the command that counts a group again."""
    return f"`python -m tests.official.upstream_suites.seen '{group.name}'`"


@pytest.mark.executorch
def test_the_documentation_has_the_table_of_what_was_seen() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page, table_text(TABLE, SEEN)) == page, "run python -m tests.official.upstream_suites.seen --print"
    assert page.count(BEGIN) == 1
    assert set(SEEN) <= {group.name for group in TABLE.groups}
    unknown = [name for one in SEEN.values() for names in one.others.values() for name in names if not _known(name)]
    assert not unknown, "tests that do not pass have no reason"


def _known(test: str) -> list[Known]:
    return [one for one in TABLE.known if matches(test, one.tests)]


def _fails(known: Known) -> bool:
    """Return whether a test must not pass: it is known to fail, wherever it runs."""
    return not known.needs or find_spec(known.needs) is None


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
    assert all(why.strip() for why in (*(one.why for one in TABLE.known), *TABLE.left.values()))
    for test in (test for one in TABLE.known for test in one.tests):
        module = test.partition("::")[0].removesuffix(".py").replace("/", ".")
        assert any(matches(one, [module]) for one in listed), f"{test} is in no group"
