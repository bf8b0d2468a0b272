"""Codes in the source and their descriptions agree."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "exirkit"

# Each room, the first digit of its codes, and the directories that belong to it.
ROOMS: dict[str, tuple[str, Path]] = {
    "ir": ("1", ROOT / "ir"),
    "patterns": ("2", ROOT / "patterns"),
    "verifiers": ("3", ROOT / "verifiers"),
    "passes": ("4", ROOT / "passes"),
    "emit": ("5", ROOT / "emit"),
    "runtime_ref": ("6", ROOT / "runtime_ref"),
    "fuzz": ("8", ROOT / "fuzz"),
    "exirkit": ("7", PACKAGE),
}
EXISTING = {name: (digit, path) for name, (digit, path) in ROOMS.items() if path.is_dir()}

CODE = re.compile(r"EK\d{3}")


def sources(directory: Path) -> Iterator[Path]:
    """Yield the Python files of a room; links to other rooms are not followed."""
    for path in sorted(directory.iterdir()):
        if path.suffix == ".py":
            yield path
        elif path.is_dir() and not path.is_symlink():
            yield from sources(path)


def raised(directory: Path) -> dict[str, str]:
    """Return the codes that stand as texts of their own in the source of a room, and where."""
    found: dict[str, str] = {}
    for path in sources(directory):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
                found.setdefault(node.value, f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def own(room: str) -> dict[str, str]:
    """Return what `raised` does, without codes of other rooms that this one looks for in what they raise."""
    others = {code for name, (_, path) in EXISTING.items() if name != room for code in described(path)}
    return {code: where for code, where in raised(EXISTING[room][1]).items() if code not in others or room != "fuzz"}


def described(directory: Path) -> dict[str, dict[str, str]]:
    """Return the entries of a room's codes.yaml."""
    path = directory / "codes.yaml"
    return yaml.safe_load(path.read_text()) if path.is_file() else {}


@pytest.mark.parametrize("room", EXISTING)
def test_codes_are_described_where_they_are_raised(room: str) -> None:
    source, texts = own(room), described(EXISTING[room][1])
    missing = {code: where for code, where in source.items() if code not in texts}
    assert not missing, f"not in {room}/codes.yaml"
    assert not set(texts) - set(source), f"in {room}/codes.yaml, but nothing raises them"


@pytest.mark.parametrize("room", EXISTING)
def test_the_first_digit_names_the_room(room: str) -> None:
    digit, directory = EXISTING[room]
    wrong = [code for code in {**own(room), **described(directory)} if code[2] != digit]
    assert not wrong


def test_every_code_is_described_once() -> None:
    # A YAML mapping keeps the last of equal keys in silence, so the lines are counted.
    lines = Counter(
        line.rstrip(":")
        for _, directory in EXISTING.values()
        if (directory / "codes.yaml").is_file()
        for line in (directory / "codes.yaml").read_text().splitlines()
        if re.fullmatch(r"EK\d{3}:", line)
    )
    assert [code for code, count in lines.items() if count > 1] == []


@pytest.mark.parametrize("room", EXISTING)
def test_descriptions_are_well_formed(room: str) -> None:
    _, directory = EXISTING[room]
    for code, entry in described(directory).items():
        assert CODE.fullmatch(code)
        assert {"title", "text"} <= set(entry) <= {"title", "text", "expected", "hint"}, code
        title, text = entry["title"], entry["text"]
        assert 0 < len(title) <= 80, code
        assert not title.endswith("."), code
        assert "\n" not in title, code
        assert text.strip().endswith((".", "`", ")")), code
        assert max(map(len, text.splitlines())) <= 140, code


def test_codes_that_are_mentioned_exist() -> None:
    known = {code for _, directory in EXISTING.values() for code in described(directory)}
    unknown = {
        f"{path.relative_to(ROOT)}: {code}"
        for _, directory in EXISTING.values()
        for path in sources(directory)
        for code in CODE.findall(path.read_text())
        if code not in known
    }
    assert not unknown
