"""What was seen when the suites of the wheel ran through our chain: one table for the documentation.

    python -m tests.official.upstream_suites.seen             # run all groups whose packages are there
    python -m tests.official.upstream_suites.seen vulkan      # or some of them
    python -m tests.official.upstream_suites.seen --print     # write the table only

A group is one run, in a process of its own. Its counts go into `seen.yaml`, and from there into the documentation; the
test that runs a group compares what it sees with them.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import yaml
from tests.official.upstream_suites.plugin import matches
from tests.official.upstream_suites.running import HERE, ROOT, Group, Outcome, Table, read_table, run_modules

FILE = HERE / "seen.yaml"
PAGE = ROOT / "docs" / "how_to" / "official_backends.md"
BEGIN, END = "<!-- suites: written by tests.official.upstream_suites.seen -->\n", "<!-- end of suites -->\n"


@dataclass(frozen=True)
class Seen:
    """How the tests of a group ended in one run.

    Attributes:
        passed: How many passed.
        expected: How many failed as the suite itself expects.
        others: By outcome and name, the tests that ended in another way.
        cpu_s: What the tests took, in seconds of a core.
    """

    passed: int
    expected: int
    others: Mapping[str, tuple[str, ...]]
    cpu_s: int

    @property
    def tests(self) -> int:
        """How many tests ended."""
        return self.passed + self.expected + sum(map(len, self.others.values()))

    def differs(self, other: Seen) -> str:
        """Return in what two runs differ, apart from the time; empty if in nothing.

        A test that is expected to fail now and then passes, with the random numbers that its module draws.
        """
        mine, theirs = ({"good": one.passed + one.expected, **one.others} for one in (self, other))
        return ", ".join(
            f"{key}: {mine.get(key)}, not {theirs.get(key)}"
            for key in {**mine, **theirs}
            if mine.get(key) != theirs.get(key)
        )


def seen_in(outcomes: Mapping[str, Outcome]) -> Seen:
    """Count the outcomes of one run."""
    ends = Counter(one.outcome for one in outcomes.values())
    others: dict[str, list[str]] = {}
    for name, one in sorted(outcomes.items()):
        if one.outcome not in ("passed", "expected failure"):
            others.setdefault(one.outcome, []).append(name)
    return Seen(
        ends["passed"],
        ends["expected failure"],
        {outcome: tuple(names) for outcome, names in sorted(others.items())},
        round(sum(one.cpu_s for one in outcomes.values())),
    )


def read_seen(file: Path = FILE) -> dict[str, Seen]:
    """Read what was seen, by group."""
    data = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else None
    return {
        name: Seen(**{**one, "others": {outcome: tuple(names) for outcome, names in one["others"].items()}})
        for name, one in (data or {}).items()
    }


def table_text(table: Table, seen: Mapping[str, Seen]) -> str:
    """Return the table of the documentation."""
    lines = [
        "| group | tests | pass | fail as the suite expects | do not pass, and why | s of a core |",
        "|---|---|---|---|---|---|",
    ]
    for group in table.groups:
        one = seen.get(group.name)
        if one is not None:
            why = _reasons(table, one)
            lines.append(f"| {group.name} | {one.tests} | {one.passed} | {one.expected or ''} | {why} | {one.cpu_s} |")
    absent = [group.name + _needs(group) for group in table.groups if group.name not in seen]
    if absent:
        lines += ["", f"Not counted in this way yet: {', '.join(absent)}."]
    return "\n".join(lines) + "\n"


def _needs(group: Group) -> str:
    return f" (which needs {', '.join(group.needs)})" if group.needs else ""


def _reasons(table: Table, seen: Seen) -> str:
    """Return how many tests do not pass for each of the known reasons."""
    reasons: Counter[str] = Counter()
    for outcome, names in seen.others.items():
        for name in names:
            known = next((one.why for one in table.known if matches(name, one.tests)), outcome)
            reasons[" ".join(known.split())] += 1
    return "; ".join(f"{count}: {why}" for why, count in reasons.items())


def written(page: str, text: str) -> str:
    """Return a page with the table inserted."""
    return re.sub(re.escape(BEGIN) + r".*?" + re.escape(END), lambda _: BEGIN + text + END, page, flags=re.DOTALL)


def main(arguments: list[str]) -> None:
    """Run groups, and write what was seen."""
    table, seen = read_table(), read_seen()
    not_run = [pattern for one in table.known if not one.run for pattern in one.tests]
    for group in table.groups if "--print" not in arguments else ():
        if (arguments and group.name not in arguments) or any(find_spec(name) is None for name in group.needs):
            continue
        outcomes, _ = run_modules(group.modules, not_run, preserve=group.preserve)
        seen[group.name] = seen_in(outcomes)
        order = {one.name: asdict(seen[one.name]) for one in table.groups if one.name in seen}
        plain = {
            name: {**one, "others": {outcome: list(names) for outcome, names in one["others"].items()}}
            for name, one in order.items()
        }
        FILE.write_text(yaml.safe_dump(plain, sort_keys=False, width=120), encoding="utf-8")
        sys.stdout.write(f"{group.name}: {seen[group.name].passed} of {seen[group.name].tests}\n")
        sys.stdout.flush()
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), table_text(table, seen)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
