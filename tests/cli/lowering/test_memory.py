from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.conftest import Invoke, document, write_program
from tests.runtime_ref.assembly import Assembly

from exirkit.emit import read_program


def report(invoke: Invoke, *args: str | Path) -> Any:
    result = invoke("memory", *args, "--json")
    assert result.exit_code == 0, result.stderr
    return document(result.stdout)


def test_a_program_file(invoke: Invoke, program_file: Path) -> None:
    (method,) = report(invoke, program_file).methods
    (pool,) = method.pools
    assert (pool.arena, pool.nbytes, pool.live_nbytes, pool.lower_bound, pool.waste) == (1, 64, 64, 64, 0)
    assert (pool.values, pool.total_nbytes, pool.at, pool.instruction) == (2, 64, 0, "aten::add.out")
    assert [(each.name, each.kind, each.offset, each.nbytes, each.spans, each.at_peak) for each in method.largest] == [
        ("input 0", "input", 0, 32, [[0, 0]], True),
        ("%2", "output", 32, 32, [[0, 0]], True),
    ]
    text = invoke("memory", program_file).stdout
    for fact in ("method forward: 1 instruction", "lower bound", "0: aten::add.out", "float32[4, 2] at most", "*"):
        assert fact in text


def test_a_model_has_names_and_source_lines(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    page, drawing, trace = tmp_path / "plan.html", tmp_path / "plan.svg", tmp_path / "plan.json"
    found = report(
        invoke, f"{model_file}:tiny", "--top", "1", "--html", page, "--svg", drawing, "--trace", trace, "--in-place"
    )
    assert (found.svg, found.html, found.trace) == (str(drawing), str(page), str(trace))
    (method,) = found.methods
    (largest,) = method.largest
    assert (largest.name, largest.nbytes) == ("x", 32)
    (pool,) = method.pools
    # The result of relu lies over that of the layer.
    assert (pool.nbytes, pool.lower_bound, pool.total_nbytes) == (64, 64, 80)
    assert pool.source is not None
    assert "return self.linear(x).relu()" in pool.source
    assert pool.module == "linear"
    assert "relu" in page.read_text()
    assert drawing.read_text().startswith("<svg ")
    assert {event["dur"] for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"} == {24, 32}


def test_a_pt2_file_and_a_planner(invoke: Invoke, tmp_path: Path) -> None:
    class Chain(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin().cos().sin().cos()

    torch.export.save(torch.export.export(Chain(), (torch.ones(4),)), tmp_path / "chain.pt2")
    (method,) = report(invoke, tmp_path / "chain.pt2", "--planner", "naive", "-O", "0").methods
    assert (method.pools[0].nbytes, method.pools[0].lower_bound, method.pools[0].waste) == (80, 32, 48)
    assert len(method.largest) == 5


def test_a_better_order_is_shown(invoke: Invoke, tmp_path: Path) -> None:
    class Fan(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            wide = [(x * number).repeat(16) for number in range(2, 6)]
            return torch.stack([each.sum() for each in wide])

    torch.export.save(torch.export.export(Fan(), (torch.ones(64),)), tmp_path / "fan.pt2")
    sizes = [report(invoke, tmp_path / "fan.pt2", *more).methods[0].pools[0].nbytes for more in ([], ["--schedule"])]
    assert sizes[1] < 0.5 * sizes[0]


def test_a_memory_policy_names_and_limits_the_arenas(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "policy: 1\nplanner: greedy\npools:\n- {name: fast, limit: 40}\n- {name: slow}\n"
        "rules:\n- {kind: input, pool: slow}\n"
    )
    (method,) = report(invoke, f"{model_file}:tiny", "--policy", policy).methods
    assert [(pool.name, pool.arena, pool.limit) for pool in method.pools] == [("fast", 1, 40), ("slow", 2, None)]
    assert {value.name: value.arena for value in method.largest}["x"] == 2
    assert all(pool.nbytes <= 40 for pool in method.pools)
    invoke("lower", f"{model_file}:tiny", "-o", tmp_path / "tiny.pte")
    (method,) = report(invoke, tmp_path / "tiny.pte", "--policy", policy).methods
    (pool,) = method.pools
    assert (pool.name, pool.limit) == ("fast", 40)
    assert pool.nbytes > 40
    assert "1 fast" in invoke("memory", tmp_path / "tiny.pte", "--policy", policy).stdout
    assert "EK486" in invoke("memory", f"{model_file}:tiny", "--policy", policy, "--planner", "naive").stderr
    policy.write_text("policy: 1\npools: [{name: fast, size: 3}]\n")
    result = invoke("memory", f"{model_file}:tiny", "--policy", policy)
    assert (result.exit_code, "error[EK48" in result.stderr) == (1, True)


def test_methods_are_chosen_by_name(invoke: Invoke, program_file: Path) -> None:
    assert [method.name for method in report(invoke, program_file, "--method", "forward").methods] == ["forward"]
    result = invoke("memory", program_file, "--method", "backward")
    assert result.exit_code == 2
    assert "EK723" in result.stderr
    assert "methods: forward" in result.stderr


def test_a_program_without_planned_memory(invoke: Invoke, tmp_path: Path) -> None:
    made = Assembly()
    path = write_program(tmp_path / "none.pte", made.program([], [made.constant(torch.ones(2))]))
    assert report(invoke, path).methods == []
    assert "no planned memory" in invoke("memory", path).stdout


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (["nowhere.pte"], 1, "EK712"),
        (["nowhere.pt2"], 1, "EK713"),
        (["model.onnx"], 2, "EK713"),
        (["add.pte", "--html", "plan.txt"], 2, "EK712"),
        (["add.pte", "--svg", "nowhere/plan.svg"], 1, "EK712"),
        (["torn.pte"], 1, "EK5"),
        (["wild.pte"], 1, "EK6"),
    ],
)
def test_what_cannot_be_shown(
    invoke: Invoke, program_file: Path, tmp_path: Path, args: list[str], code: int, told: str
) -> None:
    (tmp_path / "torn.pte").write_bytes(program_file.read_bytes()[:90])
    made = Assembly()
    x = made.tensor([4])
    made.call("aten::add.out", x, x, made.argument(1), 77, 77)
    write_program(tmp_path / "wild.pte", made.program([x], [x]))
    result = invoke("memory", *args)
    assert result.exit_code == code, result.stderr
    assert f"error[{told}" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_names_from_files_cannot_speak_to_the_terminal(invoke: Invoke, tmp_path: Path) -> None:
    made = Assembly()
    x, out, state = made.tensor([4]), made.tensor([4]), made.tensor([4], name="\x1b[31mred")
    made.call("aten::add.out", x, state, made.argument(1), out, out)
    path = write_program(tmp_path / "names.pte", made.program([x], [out]))
    result = invoke("memory", path, "--html", tmp_path / "x.html", "--svg", tmp_path / "x.svg")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "\\x1b[31mred" in result.stdout
    assert "\x1b" not in (tmp_path / "x.html").read_text() + (tmp_path / "x.svg").read_text()


def test_lowering_by_a_memory_policy(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "policy: 1\nplanner: greedy\npools:\n- {name: fast, limit: 40}\n- {name: slow}\n"
        "rules:\n- {kind: input, pool: slow}\n"
    )
    made = tmp_path / "pooled.pte"
    result = invoke("lower", f"{model_file}:tiny", "-o", made, "--memory-policy", policy)
    assert result.exit_code == 0, result.stderr
    (plan,) = read_program(made.read_bytes()).program.execution_plan
    _, fast, slow = plan.non_const_buffer_sizes
    assert 0 < fast <= 40
    assert slow > 0
    twice = invoke("lower", f"{model_file}:tiny", "-o", made, "--memory-policy", policy, "--planner", "naive")
    assert "EK486" in twice.stderr


def test_one_set_of_arenas_for_all_methods(invoke: Invoke, tmp_path: Path) -> None:
    source = tmp_path / "two_methods.py"
    source.write_text(
        "import torch\n\n\n"
        "class Step(torch.nn.Module):\n"
        "    def __init__(self, size):\n"
        "        super().__init__()\n"
        "        self.register_buffer('total', torch.zeros(size))\n\n"
        "    def forward(self, x):\n"
        "        self.total.add_(x)\n"
        "        return self.total.sin()\n\n\n"
        "def both():\n"
        "    sizes = {'one': 4, 'two': 12}\n"
        "    return {name: torch.export.export(Step(size), (torch.ones(size),)) for name, size in sizes.items()}\n"
    )
    found = report(invoke, f"{source}:both")
    sums = {method.name: sum(pool.nbytes for pool in method.pools) for method in found.methods}
    # In arena 1 they take turns; the buffers are their own.
    assert [(one.arena, one.nbytes, vars(one.methods)) for one in found.together] == [
        (1, sums["two"] - 48, {"one": sums["one"] - 16, "two": sums["two"] - 48}),
        (2, 16, {"one": 16}),
        (3, 48, {"two": 48}),
    ]
    policy = tmp_path / "policy.yaml"
    policy.write_text("policy: 1\nmethods: separate\npools: [{name: fast, limit: 4096}, {name: slow}]\n")
    found = report(invoke, f"{source}:both", "--policy", policy)
    assert [(one.arena, one.name, list(vars(one.methods))) for one in found.together] == [
        (1, "fast", ["one"]),
        (3, "fast", ["two"]),
    ]
    assert {pool.limit for method in found.methods for pool in method.pools if pool.nbytes} == {4096}
    assert "one set of arenas for all methods" in invoke("memory", f"{source}:both").stdout
