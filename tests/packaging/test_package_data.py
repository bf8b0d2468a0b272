"""Files that are not Python and that the package reads are in the wheel."""

from __future__ import annotations

import fnmatch
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
DATA = (".yaml", ".json", ".typed")


def test_data_files_are_packaged() -> None:
    missing = []
    for package in SETUPTOOLS["packages"]:
        folder = (ROOT / "src").joinpath(*package.split(".")).resolve()
        patterns = [*SETUPTOOLS["package-data"]["*"], *SETUPTOOLS["package-data"].get(package, ())]
        for file in folder.rglob("*"):
            name = file.relative_to(folder)
            if file.suffix not in DATA or _belongs_elsewhere(package, name):
                continue
            if not any(_matches(name, one) for one in patterns):
                missing.append(f"{package}: {name}")
    assert not missing, "name them in [tool.setuptools.package-data]"


def _belongs_elsewhere(package: str, name: Path) -> bool:
    parts = name.parts[:-1]
    return any(".".join((package, *parts[: end + 1])) in SETUPTOOLS["packages"] for end in range(len(parts)))


def _matches(name: Path, pattern: str) -> bool:
    return len(name.parts) == pattern.count("/") + 1 and fnmatch.fnmatchcase(name.as_posix(), pattern)


@pytest.mark.parametrize("name", ["rulebook.schema.json", "rules/algebra.yaml", "codes.yaml"])
def test_some_files_that_must_be_there(name: str) -> None:
    assert (ROOT / "src" / "exirkit" / "patterns" / name).is_file()
