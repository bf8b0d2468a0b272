"""Command lines and calls of the lowering chain that are rejected."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tests.diagnostics.provocation import provokes
from tests.runtime_ref.assembly import Assembly
from typer.core import TyperGroup
from typer.main import get_command

from exirkit import Diagnostic, ExecutorchBackendConfig, MemoryPlanningPass, generate_memory_trace, to_edge
from exirkit.cli import mobilenet_v2
from exirkit.cli.app import app
from exirkit.cli.batches import BatchEntry, lowered_in_processes
from exirkit.cli.commands.compare import describe_failure, describe_missing, describe_runtime, describe_step
from exirkit.cli.commands.demo import run_demo
from exirkit.cli.commands.devtools.bundle_failure import bundle_failure
from exirkit.cli.commands.devtools.gap import finding_of
from exirkit.cli.commands.devtools.replay import replay
from exirkit.cli.commands.explain import code_text
from exirkit.cli.commands.verify import verify_file
from exirkit.cli.console import Steps
from exirkit.cli.errors import CommandError, Failure, failure_of
from exirkit.cli.files import check_writable
from exirkit.cli.input_files import make_inputs, read_inputs
from exirkit.cli.lowering import LowerOptions
from exirkit.cli.model import call_factory, export_methods, load_exported, parse_source
from exirkit.cli.program_file import chosen_plans
from exirkit.cli.tracing import tracing_errors
from exirkit.emit import lay_out, write_file
from exirkit.fuzz.comparison import (
    InstructionGap,
    MethodGap,
    NodePlace,
    NotTracedError,
    RuntimeDifference,
    TracedRuntime,
    ValueGap,
    WrongInstruction,
    WrongNode,
    WrongStep,
)
from exirkit.patterns import Application
from exirkit.program import read_bundle, with_weights, write_bundle
from exirkit.visualization import read_overlay


class Double(torch.nn.Module):
    """A model of one operator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


def exported() -> torch.export.ExportedProgram:
    return torch.export.export(Double(), (torch.ones(2),))


@provokes("EK769")
def data_file_in_a_folder(_: Path) -> None:
    config = ExecutorchBackendConfig(external_constants=lambda _node: "weights/first")
    linear = torch.nn.Linear(2, 2)
    to_edge(torch.export.export(linear, (torch.ones(1, 2),))).to_executorch(config)


@provokes("EK790")
def weights_of_another_model(_: Path) -> None:
    linear = torch.nn.Linear(2, 2)
    with_weights({"forward": torch.export.export(linear, (torch.ones(1, 2),))}, {"weight": torch.ones(3, 2)})


@provokes("EK702")
def module_instead_of_program(_: Path) -> None:
    to_edge({"forward": Double()})  # type: ignore[dict-item]


@provokes("EK703")
def method_that_the_manager_does_not_have(_: Path) -> None:
    to_edge(exported()).exported_program("backward")


@provokes("EK733")
def trace_of_an_edge_program(scratch: Path) -> None:
    generate_memory_trace(to_edge(exported()), scratch / "trace.json")  # type: ignore[arg-type]


@provokes("EK734")
def trace_without_planned_memory(scratch: Path) -> None:
    planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False)
    lowered = to_edge(exported()).to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning))
    generate_memory_trace(lowered, scratch / "trace.json")


@provokes("EK770")
def times_that_are_a_list(scratch: Path) -> None:
    path = scratch / "times.json"
    path.write_text("[1, 2]")
    read_overlay(path)


class Sparse(torch.nn.Module):
    """A model with a sparse buffer, which has no plain bytes."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.eye(2).to_sparse())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + x


@provokes("EK771")
def bundle_with_a_sparse_tensor(scratch: Path) -> None:
    write_bundle(scratch / "bundle.zip", {"forward": torch.export.export(Sparse(), (torch.ones(2),))})


@provokes("EK772")
def bundle_that_is_a_text(scratch: Path) -> None:
    path = scratch / "bundle.zip"
    path.write_text("no bundle")
    read_bundle(path)


def model_file(scratch: Path) -> str:
    path = scratch / "models.py"
    path.write_text("import torch\n\n\ndef make():\n    return torch.nn.ReLU(), (torch.ones(2),)\n")
    return f"{path}:make"


@provokes("EK773")
def bundle_of_no_failure(scratch: Path) -> None:
    bundle_failure(model_file(scratch), scratch / "bundle.zip")


@provokes("EK774")
def replay_without_passes(scratch: Path) -> None:
    options = {"level": 1, "target": "official_host", "passes": ["mine:Pass"], "rules": [], "pipelines": []}
    facts = {"options": options, "runs": 1, "seed": 0, "failure": None, "versions": {}}
    write_bundle(scratch / "bundle.zip", {"forward": exported()}, facts=facts)
    replay(scratch / "bundle.zip")


@provokes("EK704")
def program_saved_as_something_else(scratch: Path) -> None:
    to_edge(exported()).to_executorch().save(scratch / "model.bin")


@provokes("EK706")
def level_of_optimization_that_is_none(_: Path) -> None:
    to_edge(exported()).to_executorch(ExecutorchBackendConfig(optimization_level=3))


@provokes("EK707")
def less_memory_than_the_inputs_need(_: Path) -> None:
    to_edge(exported()).to_executorch(ExecutorchBackendConfig(arena_limit=8))


def as_command_error(error: Exception) -> CommandError:
    """Return the error that the command line makes of another one."""
    finding = failure_of(error).report.diagnostics[0]
    return CommandError(code=finding.code, message=finding.message, hint=finding.hint)


@provokes("EK711")
def option_that_is_not_there(_: Path) -> None:
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    with pytest.raises(Exception, match="--repat") as info:
        TyperGroup.main(group, ["run", "model.pte", "--repat", "3"], prog_name="exirkit", standalone_mode=False)
    raise as_command_error(info.value)


@provokes("EK712")
def output_with_another_ending(_: Path) -> None:
    check_writable(Path("model.bin"), ".pte")


@provokes("EK713")
def target_without_factory(_: Path) -> None:
    parse_source("models.py")


def write_models(scratch: Path, text: str) -> None:
    (scratch / "models.py").write_text(text)


@provokes("EK714")
def factory_that_is_not_there(scratch: Path) -> None:
    write_models(scratch, "def tiny(): ...\n")
    call_factory(parse_source(f"{scratch}/models.py:tinny"))


@provokes("EK715")
def factory_that_raises(scratch: Path) -> None:
    write_models(scratch, "def tiny():\n    return 1 / 0\n")
    call_factory(parse_source(f"{scratch}/models.py:tiny"))


@provokes("EK716")
def factory_without_inputs(_: Path) -> None:
    export_methods(Double(), strict=False, say=print)


class Branching(torch.nn.Module):
    """A model that torch.export does not take."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


@provokes("EK717")
def model_that_cannot_be_exported(_: Path) -> None:
    export_methods((Branching(), (torch.ones(2),)), strict=False, say=lambda _line: None)


@provokes("EK718")
def archive_that_is_not_a_program(scratch: Path) -> None:
    path = scratch / "model.pt2"
    path.write_bytes(b"nothing")
    load_exported(path)


@provokes("EK719")
def code_that_is_not_there(_: Path) -> None:
    code_text("EK000")


@provokes("EK721")
def inputs_that_are_text(scratch: Path) -> None:
    path = scratch / "x.npy"
    path.write_bytes(b"1 2 3")
    read_inputs([path])


@provokes("EK722")
def input_that_is_too_large(_: Path) -> None:
    made = Assembly()
    x = made.tensor([1 << 30, 1 << 30], planned=False)
    made.program([x], [])
    make_inputs(made.plan, "ones", torch.Generator())


@provokes("EK723")
def method_that_the_file_does_not_have(_: Path) -> None:
    chosen_plans(Assembly().program(), "backward")


@provokes("EK731")
def kernel_that_is_not_known(scratch: Path) -> object:
    made = Assembly()
    x = made.tensor([2])
    made.call("aten::relux.out", x, x, x)
    write_file(scratch / "model.pte", lay_out(made.program([x], [x])))
    return verify_file(scratch / "model.pte").diagnostics


@provokes("EK732")
def demo_that_differs(_: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mobilenet_v2, "make_demo", lambda: (Noisy(), (torch.ones(2),)))
        run_demo(None, Steps())


class Noisy(torch.nn.Module):
    """A model that gives something else when it is run than when it is exported."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if torch.compiler.is_exporting() else x + 1


@provokes("EK791")
def bug(_: Path) -> None:
    raise as_command_error(RuntimeError("something unforeseen"))


PLACE = NodePlace("aten_gelu_default", "aten.gelu.default(%x)", "model.py:7 in forward:  return x * gate", "body.1")
GAP = ValueGap("value", 0.25, 0.5, 5e-5, "0.75 instead of 0.5 at [0, 1]")


@provokes("EK735")
def wrong_rule(_: Path) -> Diagnostic:
    before = NodePlace("aten_mul_tensor", "aten.mul.Tensor(%x, %gate)")
    applied = Application(
        3, "fuse.silu", "aten_mul_tensor", ("aten_mul_tensor", "gate"), ("aten_gelu_default",), {}, 0.0
    )
    return describe_step(
        WrongStep(
            "forward", "apply-rules", "own.yaml", "fold-constants", GAP, "output 0 of run 1", application=applied,
            rule_place="book.yaml:6", node=WrongNode(PLACE, GAP, 0, before), made=(PLACE,),
        )
    )  # fmt: skip


@provokes("EK736")
def wrong_kernel(_: Path) -> Diagnostic:
    instruction = WrongInstruction(12, "aten::gelu.out", GAP, 5)
    found = RuntimeDifference("official runtime", "the lowered program on torch", instruction, PLACE)
    return describe_runtime("forward", found)


@provokes("EK737")
def runtime_that_rejects(_: Path) -> Diagnostic:
    return describe_failure("forward", "official runtime", "load-error: RuntimeError: 0x14")


@provokes("EK738")
def runtime_that_is_missing(_: Path) -> Diagnostic:
    return describe_missing("official runtime", "the executorch wheel is not installed")


@provokes("EK775")
def kernel_that_is_wrong(_: Path) -> Diagnostic:
    one = InstructionGap(4, "silu.out", PLACE, "silu.default", ("silu",), 0.5, GAP)
    return finding_of(MethodGap("forward", TracedRuntime.OFFICIAL, (one,), 5, (GAP,)))


@provokes("EK776")
def no_trace(_: Path) -> None:
    with tracing_errors():
        raise NotTracedError("crash: SIGSEGV")


@provokes("EK792")
def model_that_ends_its_process(scratch: Path) -> None:
    write_models(scratch, "import os\n\n\ndef tiny():\n    os._exit(9)\n")
    entry = BatchEntry(f"{scratch}/models.py:tiny", scratch / "tiny.pte")
    (outcome,) = lowered_in_processes([entry], LowerOptions(), jobs=2, libraries=())
    assert isinstance(outcome, Failure)
    (finding,) = outcome.report.diagnostics
    raise CommandError(code=finding.code, message=finding.message, hint=finding.hint)
