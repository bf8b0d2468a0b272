"""Shipped target descriptions, and how those of other runtimes are made."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import yaml
from tools.kernels.costs import LIST, TIMES, described, times_of_traces, traced_time, write_programs

from exirkit import ExecutorchBackendConfig, to_edge
from exirkit.patterns import Target, Work, read_target
from exirkit.runtime_ref import Runtime, Tracer

PERMUTE = "aten.permute_copy.default"


class Gate(torch.nn.Module):
    """What -O2 makes linear layers and a sigmoid of, where the target has them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(16, 32), torch.nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.second(torch.tanh(self.first(x)))
        return torch.softmax(y, -1)


@pytest.mark.parametrize(("target", "has_linear"), [("official_host", True), ("portable", False)])
def test_programs_call_what_the_library_has(target: str, has_linear: bool) -> None:
    torch.manual_seed(0)
    model, x = Gate().eval(), torch.randn(3, 16)
    config = ExecutorchBackendConfig(optimization_level=2, target=target)
    made = to_edge(torch.export.export(model, (x,))).to_executorch(config)
    assert ("aten::linear" in {one.name for one in made.executorch_program.execution_plan[0].operators}) is has_linear
    (got,) = Runtime.get().load_program(made.buffer).load_method("forward").execute([x])
    torch.testing.assert_close(got, model(x), rtol=1e-5, atol=1e-6)


def test_the_portable_library_is_described_as_the_script_derives_it() -> None:
    pytest.importorskip("executorch")
    from tools.kernels.portable import KIN, OWN, portable

    shipped = Path(__file__).parents[3] / "patterns" / "targets" / "portable.yaml"
    assert portable() == yaml.safe_load(shipped.read_text(encoding="utf-8"))
    host, library = read_target("official_host"), read_target("portable")
    for name in (*KIN, *OWN):
        assert library.kernels[name].note, f"{name} was not measured, and does not say so"
    # Loops of the portable library are not faster than optimized kernels.
    work = Work(elements=10_000, macs=1_000_000, runs=100)
    assert all(library.kernels[name].of(work) >= host.kernels[name].of(work) for name in KIN)


def test_kernels_are_measured_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_programs(tmp_path, [PERMUTE])
    entries = yaml.safe_load((tmp_path / LIST).read_text(encoding="utf-8"))
    assert {one["operator"] for one in entries.values()} == {PERMUTE}
    # Nanoseconds of a device whose permutations cost 100 a call, 2 an element and 0.5 a run.
    stated = {
        name: 100 + 2 * one["work"]["elements"] + 0.5 * one["work"]["runs"] for name, one in list(entries.items())[1:]
    }
    (tmp_path / TIMES).write_text(yaml.safe_dump(stated), encoding="utf-8")
    made = Target.model_validate(described(times_of_traces(tmp_path), "board", "a board"))
    assert next(iter(entries)) in capsys.readouterr().err
    cost = made.kernels[PERMUTE]
    assert (cost.call_ns, cost.element_ns, cost.run_ns) == pytest.approx((100, 2, 0.5), rel=0.02)
    assert made.has("aten.view_copy.default")
    assert not made.has("aten.add.Tensor")


def test_times_are_read_from_traces(tmp_path: Path) -> None:
    write_programs(tmp_path, [PERMUTE])
    entries = yaml.safe_load((tmp_path / LIST).read_text(encoding="utf-8"))
    name, entry = next(iter(entries.items()))
    tracer = Tracer()
    method = Runtime.get().load_program((tmp_path / f"{name}.pte").read_bytes(), tracer=tracer).load_method("forward")
    for _ in range(3):
        method.execute([torch.rand(1, 4, 4, 4)])
    tracer.save(tmp_path / f"{name}.etdump")
    taken = [sum(one.end_ns - one.start_ns for one in run.instructions if "permute" in one.name) for run in tracer.runs]
    assert traced_time(tmp_path / f"{name}.etdump", PERMUTE, 2.0) == 2.0 * min(taken)
    assert times_of_traces(tmp_path) == {PERMUTE: [(Work(**entry["work"]), min(taken))]}
    with pytest.raises(SystemExit, match=r"did not run aten\.add\.Tensor"):
        traced_time(tmp_path / f"{name}.etdump", "aten.add.Tensor")


def test_what_was_not_measured_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=LIST):
        times_of_traces(tmp_path)
    work = asdict(Work(elements=8))
    (tmp_path / LIST).write_text(yaml.safe_dump({"one": {"operator": PERMUTE, "work": work}}), encoding="utf-8")
    with pytest.raises(SystemExit, match="neither traces"):
        times_of_traces(tmp_path)
    (tmp_path / TIMES).write_text("other: 5\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="does not list other"):
        times_of_traces(tmp_path)
