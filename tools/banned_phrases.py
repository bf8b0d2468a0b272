"""Finds phrases of `banned_phrases.yaml` in the files of the repository; exit code 1 if there are any.

Usage: python tools/banned_phrases.py [FILE ...]
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

_TABLE = Path(__file__).with_suffix(".yaml")
_ENDINGS = (".py", ".md", ".yaml", ".yml", ".toml", ".txt", ".js", ".html")
# Not our words: names of other projects' models and tests, and text of theirs.
_EXCLUDED = (
    "tools/banned_phrases",
    "benchmarks/architectures/library.yaml",
    "docs/reference/architectures.md",
    "tests/official/upstream_suites/suites.yaml",
)


def findings(path: str, text: str, phrases: dict[str, str]) -> Iterator[str]:
    """Yield one line for each banned phrase in a file, or in its name."""
    any_of_them = re.compile("|".join(phrases))
    for number, line in enumerate([path, *text.splitlines()]):
        # Parts of names are words too, in snake case and in camel case.
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", line).replace("_", " ").lower()
        for phrase, advice in phrases.items() if any_of_them.search(words) else ():
            if found := re.search(rf"(?<![a-z])(?:{phrase})(?![a-z])", words):
                where = f"{path}:{number}" if number else path
                yield f"{where}: {found[0]!r}: write {advice}"


def main(paths: list[str]) -> int:
    """Print all findings; return the exit code."""
    table = yaml.safe_load(_TABLE.read_text(encoding="utf-8"))
    phrases = {one["phrase"]: one["write"] for one in table["phrases"]}
    former = re.compile("|".join(table["former_names"]))
    if not paths:
        listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines()
        paths = [one for one in listed if one.endswith(_ENDINGS) and not one.startswith(_EXCLUDED)]
    found = [
        one
        for path in paths
        if Path(path).is_file()
        for one in findings(path, former.sub("", Path(path).read_text("utf-8")), phrases)
    ]
    print("\n".join(found) or f"no banned phrases in {len(paths)} files")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
