"""The repository layout and pyproject.toml agree (see the header of pyproject.toml)."""

import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import exirkit

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("emit", "fuzz", "ir", "passes", "patterns", "runtime_ref", "verifiers")


@pytest.fixture(scope="module")
def tool() -> dict[str, dict[str, list[str]]]:
    tables: dict[str, dict[str, list[str]]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    return tables


@pytest.mark.parametrize("room", ROOMS)
def test_room_is_a_real_directory_linked_into_the_package(room: str) -> None:
    link = ROOT / "src" / "exirkit" / room
    assert (ROOT / room).is_dir()
    assert not (ROOT / room).is_symlink()
    assert link.is_symlink(), f"{link} is not a link: on Windows, enable Developer Mode and core.symlinks"
    assert link.readlink() == Path("..", "..", room)


def test_every_package_on_disk_is_listed(tool: dict[str, dict[str, list[str]]]) -> None:
    inits = (p for room in ROOMS for p in (ROOT / room).rglob("__init__.py"))
    found = {"exirkit"} | {"exirkit." + ".".join(p.parent.relative_to(ROOT).parts) for p in inits}
    front = (p for p in (ROOT / "src" / "exirkit").iterdir() if p.name not in ROOMS and p.is_dir())
    inits = (init for p in front for init in p.rglob("__init__.py"))
    found |= {".".join(p.parent.relative_to(ROOT / "src").parts) for p in inits}
    assert found == set(tool["setuptools"]["packages"])


def test_no_room_was_imported_bare() -> None:
    assert not set(ROOMS) & set(sys.modules)


def test_package_is_typed() -> None:
    assert files(exirkit).joinpath("py.typed").is_file()
