"""`exirkit migrate`: what it prints, and what it writes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Invoke

SOURCE = "from executorch.exir import to_edge  # lowers\nfrom executorch.exir.passes import ToDevicePass\n"


def folder_with(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "inner" / ".hidden").mkdir(parents=True)
    (folder / "inner" / "one.py").write_text(SOURCE)
    (folder / "inner" / ".hidden" / "two.py").write_text(SOURCE)
    (folder / "other.py").write_text("import os\n")
    (folder / "broken.py").write_text("def f(:\n")
    (folder / "notes.txt").write_text(SOURCE)
    (folder / "link.py").symlink_to(folder / "other.py")
    (folder / "inner" / "one.py").chmod(0o755)
    return folder


def test_nothing_is_written_unless_asked(invoke: Invoke, tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    done = invoke("migrate", folder, "--diff")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert "+from exirkit.exir import to_edge  # lowers" in lines
    assert "2 files read, 1 file would change; `--write` changes them, `--diff` shows how" in lines
    assert lines[-1] == "1 name without a counterpart"
    assert (folder / "inner" / "one.py").read_text() == SOURCE


def test_writing(invoke: Invoke, tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    done = invoke("migrate", folder, "--write", "--json")
    report = json.loads(done.stdout)
    one = folder / "inner" / "one.py"
    assert one.read_text() == SOURCE.replace("executorch", "exirkit")
    assert one.stat().st_mode & 0o777 == 0o755
    assert report["changed"] == [str(one)]
    assert report["written"]
    assert [(each["file"], each["line"], each["name"]) for each in report["missing"]] == [
        (str(one), 2, "executorch.exir.passes.ToDevicePass")
    ]
    assert "model.to(device)" in report["missing"][0]["why"]
    assert [each.partition(": ")[0] for each in report["unread"]] == [str(folder / "broken.py")]
    assert (folder / "inner" / ".hidden" / "two.py").read_text() == SOURCE
    again = json.loads(invoke("migrate", folder, "--write", "--json").stdout)
    assert again["changed"] == []


def test_a_file_and_other_prefixes(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text("from executorch.backends.arm import x\n")
    assert invoke("migrate", file, "--map", "executorch.backends=mine", "--write").exit_code == 0
    assert file.read_text() == "from mine.arm import x\n"


def test_wrong_usage(invoke: Invoke, tmp_path: Path) -> None:
    for arguments in ([tmp_path / "nothing"], [tmp_path, "--map", "executorch"], [tmp_path, "--map", "a=b-c"]):
        done = invoke("migrate", *arguments)
        assert done.exit_code == 2
        assert "EK711" in done.stderr
