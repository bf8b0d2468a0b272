"""Bytes that stay in a file: whose the file is, and when it goes."""

from __future__ import annotations

import io
from pathlib import Path

from exirkit.exir.provided.named_data import FileBackedData


def test_a_file_that_is_another_ones_stays(tmp_path: Path) -> None:
    file = tmp_path / "weights.bin"
    file.write_bytes(b"12345")
    with FileBackedData(str(file)) as data:
        assert (len(data), bytes(data)) == (5, b"12345")
        copied = io.BytesIO()
        data.write_to_file(copied)
        assert copied.getvalue() == b"12345"
    assert file.read_bytes() == b"12345"


def test_a_file_that_is_taken_over_goes_once(tmp_path: Path) -> None:
    file = tmp_path / "weights.bin"
    file.write_bytes(b"12345")
    data = FileBackedData.move_from(str(file))
    assert not file.exists()
    assert [one.read_bytes() for one in tmp_path.iterdir()] == [b"12345"]
    data.close()
    assert list(tmp_path.iterdir()) == []
    data.close()
