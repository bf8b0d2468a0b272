"""The file of a lowered program: as bytes, and written."""

from __future__ import annotations

import io

import torch

from exirkit import to_edge


def test_the_manager_holds_the_bytes_that_it_gives_away() -> None:
    program = torch.export.export(torch.nn.Linear(3, 2), (torch.zeros(1, 3),))
    manager = to_edge(program).to_executorch()
    # `Runtime.get().load_program(manager.buffer)` of the official package does not keep them alive.
    assert manager.buffer is manager.buffer
    written = io.BytesIO()
    manager.write_to_file(written)
    assert written.getvalue() == manager.buffer
