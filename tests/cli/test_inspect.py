from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.conftest import Invoke, document, write_program
from tests.emit.sample_programs import full_program
from tests.runtime_ref.assembly import Assembly

from exirkit.emit import KernelCall


def report(invoke: Invoke, *args: str | Path) -> Any:
    result = invoke("inspect", *args, "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    return document(result.stdout)


def test_everything_is_reported(invoke: Invoke, program_file: Path) -> None:
    found = report(invoke, program_file, "--instructions", "--values")
    assert found.nbytes == program_file.stat().st_size == sum(vars(found.bytes_by_kind).values())
    assert found.bytes_by_kind.constants == 8
    assert [(each.index, each.shape, each.nbytes) for each in found.largest_constants] == [(1, [2], 8)]
    (method,) = found.methods
    assert method.name == "forward"
    (x,) = method.inputs
    assert (x.dtype, x.shape, x.dynamism, x.role, x.arena, x.offset) == ("float32", [4, 2], "bound", "planned", 1, 0)
    assert [(each.kind, each.content) for each in method.outputs] == [("Tensor", None), ("Int", 3)]
    assert method.outputs[0].offset == 32
    assert method.arenas == [64]
    assert [(each.name, each.calls) for each in method.operators] == [("aten::add.out", 1)]
    assert method.listing == ["aten::add.out(%1, %0, %3, %2, %2)"]
    assert method.values is not None
    assert [each.index for each in method.values] == list(range(method.value_count))


def test_listings_are_absent_unless_asked_for(invoke: Invoke, program_file: Path) -> None:
    (method,) = report(invoke, program_file).methods
    assert method.listing is None
    assert method.values is None


def test_people_see_a_table(invoke: Invoke, program_file: Path) -> None:
    text = invoke("inspect", program_file, "--instructions", "--values").stdout
    for fact in ("method forward: 1 instructions", "float32 4x2 at most", "planned, arena 1 at 32", "%3  Int"):
        assert fact in text
    assert "aten::add.out(%1, %0, %3, %2, %2)" in text
    # What is listed is apart from what stands before it.
    lines = [line.strip() for line in text.splitlines()]
    for head in ("largest constants", "method forward", "step ", "value "):
        (place,) = [at for at, line in enumerate(lines) if line.startswith(head)]
        assert lines[place - 1] == ""


def test_a_program_with_every_table(invoke: Invoke, tmp_path: Path) -> None:
    path = write_program(tmp_path / "full.pte", full_program())
    found = report(invoke, path, "--instructions", "--values")
    assert found.nbytes == sum(vars(found.bytes_by_kind).values())
    assert invoke("inspect", path, "--instructions", "--values").exit_code == 0


def test_methods_can_be_selected(invoke: Invoke, program_file: Path) -> None:
    assert [each.name for each in report(invoke, program_file, "--method", "forward").methods] == ["forward"]
    result = invoke("inspect", program_file, "--method", "backward")
    assert result.exit_code == 2
    assert result.stderr == "error[EK723]: there is no method 'backward' (methods: forward)\n"


def test_files_that_make_no_sense_can_be_examined(invoke: Invoke, tmp_path: Path) -> None:
    made = Assembly()
    made.add(KernelCall(op_index=9, args=[7, -1]))
    made.delegate("Unknown", 3)
    made.plan.delegates.clear()
    made.tensor([-3, 2])
    path = write_program(tmp_path / "odd.pte", made.program([12], [-5]))
    (method,) = report(invoke, path, "--instructions", "--values").methods
    assert method.inputs[0].kind == method.outputs[0].kind == "not there"
    assert method.listing == ["operator 9, which is not there(%7, %-1)", "delegate 0 [not there](%3)"]
    assert invoke("inspect", path, "--instructions", "--values").exit_code == 0


@pytest.mark.parametrize("name", ["\x1b[31mred\x1b[0m", "[bold]x[/bold]", "two\nlines", ":smile:"])
def test_names_from_files_cannot_speak_to_the_terminal(invoke: Invoke, tmp_path: Path, name: str) -> None:
    made = Assembly()
    x = made.constant(torch.ones(1))
    made.program([], [x])
    made.plan.name = name
    result = invoke("inspect", write_program(tmp_path / "names.pte", made.program()))
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    shown = name.replace("\x1b", r"\x1b").replace("\n", r"\n")
    assert f"method {shown}:" in result.stdout
