"""The bridge in a process of its own: what it imports must not change how other tests run."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from tests.official.backends import layouts
from tests.official.backends.delegate_graphs import seen_graphs, transposed
from tests.official.backends.migrated_worker import MODELS
from tests.official.backends.models import exported
from tests.official.backends.other_backends import OTHERS
from tests.official.quantization.models import quantized
from torch.export import ExportedProgram
from torch.fx import GraphModule

from exirkit.fuzz.official.wire import Header, pack, unpack
from exirkit.fuzz.official.worker import read_exactly, write_all
from exirkit.program import cheap_tracing

Reply = tuple[Header, list[bytes]]


def partitioner() -> Any:
    """Return a new XNNPACK partitioner."""
    return importlib.import_module("executorch.backends.xnnpack.partition.xnnpack_partitioner").XnnpackPartitioner()


def delegated(program: ExportedProgram) -> Header:
    """Count delegates of a program, the operators within them, and the calls that are left."""
    calls = [node for node in program.graph.nodes if node.op == "call_function" and "getitem" not in str(node.target)]
    delegates = [node for node in calls if "executorch_call_delegate" in str(node.target)]
    taken: Counter[str] = Counter()
    for node in delegates:
        inside = getattr(program.graph_module, node.args[0].target).original_module.graph.nodes
        taken.update(
            one.target.__name__ for one in inside if one.op == "call_function" and hasattr(one.target, "_schema")
        )
    return {"delegates": len(delegates), "taken": dict(taken), "left": len(calls) - len(delegates)}


def payloads(program: ExportedProgram) -> list[Any]:
    """Return what backends made of the parts of a program."""
    modules = [module for name, module in program.graph_module.named_children() if name.startswith("lowered_module")]
    return [(module.processed_bytes, module.named_data, module.external_data) for module in modules]


def lower(request: Header) -> Reply:
    """Lower a model through our chain and through theirs."""
    ours, bridge = importlib.import_module("exirkit"), importlib.import_module("exirkit.bridge")
    program = exported(request["model"])
    mine = ours.to_edge_transform_and_lower(program, partitioner=[bridge.OfficialPartitioner(partitioner())])
    other = importlib.import_module("executorch.exir").to_edge_transform_and_lower(program, partitioner=[partitioner()])
    answer = {"ours": delegated(mine.exported_program()), "theirs": delegated(other.exported_program())}
    return answer, [bytes(mine.to_executorch().buffer), bytes(other.to_executorch().buffer)]


def lower_quantized(request: Header) -> Reply:
    """Lower a quantised model through our chain and through theirs."""
    ours, bridge = importlib.import_module("exirkit"), importlib.import_module("exirkit.bridge")
    theirs = importlib.import_module("executorch.exir")
    program, inputs = quantized(request["model"])
    eager = program.module()(*inputs)
    if request["way"] == "at once":
        mine = ours.to_edge_transform_and_lower(program, partitioner=[bridge.OfficialPartitioner(partitioner())])
        other = theirs.to_edge_transform_and_lower(program, partitioner=[partitioner()])
    else:
        mine = ours.to_edge(program).to_backend(bridge.OfficialPartitioner(partitioner()))
        other = theirs.to_edge(program).to_backend(partitioner())
    answer = {
        "ours": delegated(mine.exported_program()),
        "theirs": delegated(other.exported_program()),
        "inputs": [one.tolist() for one in inputs],
        "eager": [one.tolist() for one in (eager if isinstance(eager, tuple) else (eager,))],
    }
    return answer, [bytes(mine.to_executorch().buffer), bytes(other.to_executorch().buffer)]


def lower_with_books(request: Header) -> Reply:
    """Lower a model with XNNPACK's own passes, and with the chain of books in place of them."""
    ours, bridge = importlib.import_module("exirkit"), importlib.import_module("exirkit.bridge")
    kind, name = request["kind"], request["model"]
    if kind == "quantized":
        program, inputs = quantized(name)
        for node in program.graph.find_nodes(op="placeholder") if request.get("tag") else ():
            node.meta["custom"] = {"delegate_constant_tag": request["tag"]}
    elif kind == "layouts":
        program, inputs = layouts.exported(name)
    elif kind == "small":
        torch.manual_seed(3)
        module, inputs = MODELS[name]()
        program = torch.export.export(module.eval(), inputs)
    else:
        program, inputs = exported(name), ()
    made, moved = [], []
    for chain in (None, "xnnpack"):
        chosen = [bridge.OfficialPartitioner(partitioner(), chain=chain)]
        with seen_graphs() as graphs:
            made.append(ours.to_edge_transform_and_lower(program, partitioner=chosen))
        moved.append(transposed(graphs))
    before, after = (payloads(one.exported_program()) for one in made)
    files = [bytes(one.to_executorch().buffer) for one in made]
    tags = sorted({file for _, _, external in after for file in external})
    answer: Header = {"delegates": len(before), "same": before == after, "moved": moved, "tags": tags}
    if kind == "layouts":
        answer["error"] = [_error(program, inputs, data) for data in files]
    else:
        answer["inputs"] = [one.tolist() for one in inputs]
    return answer, files


def run_no_class(request: Header) -> Reply:
    """Lower a model without and with the chain of books, and say which of XNNPACK's pass classes ran each time."""
    ours, bridge = importlib.import_module("exirkit"), importlib.import_module("exirkit.bridge")
    base = importlib.import_module("executorch.exir.pass_base").ExportPass
    module, inputs = MODELS[request["model"]]()
    ran: list[str] = []
    original = base.call

    def call(self: Any, graph_module: GraphModule) -> Any:
        ran.append(type(self).__name__)
        return original(self, graph_module)

    program = torch.export.export(module.eval(), inputs)
    answer: Header = {}
    with mock.patch.object(base, "call", call):
        for chain in (None, "xnnpack"):
            ran.clear()
            chosen = [bridge.OfficialPartitioner(partitioner(), chain=chain)]
            made = ours.to_edge_transform_and_lower(program, partitioner=chosen)
            answer[str(chain)] = {"ran": list(ran), "delegates": len(payloads(made.exported_program()))}
    return answer, []


def _error(program: ExportedProgram, inputs: tuple[torch.Tensor, ...], data: bytes) -> float:
    """Return by how much the results of a file differ from those of the program on the official runtime, at most."""
    runtime = importlib.import_module("executorch.runtime").Runtime.get()
    method = runtime.load_program(data).load_method("forward")
    want = program.module()(*inputs)
    pairs = zip(method.execute(list(inputs)), want if isinstance(want, tuple) else (want,), strict=True)
    return max(float((got.double() - one.double()).abs().max()) for got, one in pairs)


def lower_int4(request: Header) -> Reply:
    """Lower a linear with int4 weights through our chain, or say why it is rejected."""
    ours, bridge = importlib.import_module("exirkit"), importlib.import_module("exirkit.bridge")
    program, inputs = quantized(request["model"])
    chosen = [bridge.OfficialPartitioner(partitioner())]
    try:
        made = ours.to_edge_transform_and_lower(program, partitioner=chosen)
    except ours.DiagnosticError as error:
        return {"diagnostic": error.diagnostics[0].model_dump_json()}, []
    answer = {"inputs": [one.tolist() for one in inputs], "eager": program.module()(*inputs).tolist()}
    return {**answer, "untried": bridge.check_delegates(made)}, [bytes(made.to_executorch().buffer)]


def lower_weights_of_torchao(request: Header) -> Reply:
    """Lower a model with integer weights in both ways, and say which of them are rejected."""
    ours, bridge = importlib.import_module("exirkit"), importlib.import_module("exirkit.bridge")
    program, inputs = quantized(request["model"])
    chosen = [bridge.OfficialPartitioner(partitioner())]
    ways: dict[str, Callable[[], Any]] = {
        "at once": lambda: ours.to_edge_transform_and_lower(program, partitioner=chosen),
        "after to_edge": lambda: ours.to_edge(program).to_backend(chosen[0]),
    }
    answer = {"inputs": [one.tolist() for one in inputs], "eager": program.module()(*inputs).tolist()}
    files = []
    for way, lowered in ways.items():
        try:
            files.append(bytes(lowered().to_executorch().buffer))
        except ours.DiagnosticError as error:
            answer[way] = error.diagnostics[0].model_dump_json()
    return answer, files


def check_damaged(request: Header) -> Reply:
    """Say what is wrong with a delegate whose bytes are not what the backend made."""
    ours, bridge = importlib.import_module("exirkit"), importlib.import_module("exirkit.bridge")
    made = ours.to_edge_transform_and_lower(
        exported("squashing"), partitioner=[bridge.OfficialPartitioner(partitioner())]
    )
    untried = bridge.check_delegates(made)
    made.exported_program().graph_module.lowered_module_0._processed_bytes = b"not a graph of XNNPACK"
    try:
        bridge.check_delegates(made)
    except ours.DiagnosticError as error:
        return {"diagnostic": error.diagnostics[0].model_dump_json(), "untried": untried}, []
    del request
    return {}, []


def lower_for(request: Header) -> Reply:
    """Lower a model for one of the other backends, through our chain and through theirs."""
    other = OTHERS[request["backend"]]
    module = importlib.import_module(f"executorch.backends.{other.module}")
    program = exported("any-batch")

    def asked() -> Any:
        return getattr(module, other.partitioner)(**other.choices)

    mine = importlib.import_module("exirkit").to_edge_transform_and_lower(
        program, partitioner=[importlib.import_module("exirkit.bridge").OfficialPartitioner(asked())]
    )
    theirs = importlib.import_module("executorch.exir").to_edge_transform_and_lower(program, partitioner=[asked()])
    answer = {"ours": delegated(mine.exported_program()), "theirs": delegated(theirs.exported_program())}
    return answer, [bytes(mine.to_executorch().buffer)]


def take_in(request: Header) -> Reply:
    """Take in what the official package has lowered to Edge: bare, then delegated by us, and delegated by it."""
    bridge, theirs = importlib.import_module("exirkit.bridge"), importlib.import_module("executorch.exir")
    program = exported(request["model"])
    edge = theirs.to_edge(program)
    text = str(edge.exported_program().graph)
    bare = bridge.edge_from_official(edge)
    after = bare.to_backend(bridge.OfficialPartitioner(partitioner()))
    before = bridge.edge_from_official(
        theirs.to_edge_transform_and_lower(program, partitioner=[partitioner()]).exported_program()
    )
    lowered = [one.to_executorch() for one in (bare, after, before)]
    shown = [one.exported_program() for one in (after, before)]
    views = [_looks_official(bridge.official_program(one), one, bridge) for one in shown]
    delegates = [len(one.executorch_program.execution_plan[0].delegates) for one in lowered]
    same = text == str(edge.exported_program().graph)
    return {"delegates": delegates, "same": same, "views": views}, [bytes(one.buffer) for one in lowered]


def _looks_official(view: ExportedProgram, program: ExportedProgram, bridge: Any) -> bool:
    """Return whether delegates of a view are official ones of official programs, and come back as they were."""
    kind = importlib.import_module("executorch.exir.lowered_backend_module").LoweredBackendModule
    edge = importlib.import_module("executorch.exir.dialects.edge._ops").EdgeOpOverload
    back = bridge.edge_from_official(view).exported_program()
    found = []
    for name, delegate in view.graph_module.named_children():
        mine = getattr(program.graph_module, name)
        if isinstance(mine, GraphModule):
            # A body of control flow.
            continue
        data = delegate.named_data_store_output
        stored = {key: bytes(data.buffers[entry.buffer_index]) for key, entry in data.pte_data.items()}
        targets = [node.target for node in delegate.original_module.graph.nodes if hasattr(node.target, "_schema")]
        found += [
            isinstance(delegate, kind),
            bool(targets) and all(isinstance(one, edge) for one in targets),
            delegate.processed_bytes == mine.processed_bytes and stored == mine.named_data,
            getattr(back.graph_module, name) is mine,
        ]
    return bool(found) and all(found)


def share(request: Header) -> Reply:
    """Lower two methods whose delegates have a weight in common."""
    ours, bridge = importlib.import_module("exirkit"), importlib.import_module("exirkit.bridge")
    programs = {"forward": exported("any-batch"), "again": exported("any-batch", then=torch.nn.Tanh())}
    partitioners = [bridge.OfficialPartitioner(partitioner())]
    lowered = ours.to_edge_transform_and_lower(programs, partitioner=partitioners).to_executorch()
    single = ours.to_edge_transform_and_lower(programs["forward"], partitioner=partitioners).to_executorch()
    del request
    return {}, [bytes(lowered.buffer), bytes(single.buffer)]


def plan(request: Header) -> Reply:
    """Lower a model in the official chain, with memory planned there by a policy of ours."""
    ours, bridge = importlib.import_module("exirkit"), importlib.import_module("exirkit.bridge")
    theirs = importlib.import_module("executorch.exir")
    policy = importlib.import_module("exirkit.passes").parse_memory_policy(request["policy"])
    planner = bridge.OfficialMemoryPlanning(ours.MemoryPlanningPass(policy=policy))
    programs = {method: exported(model) for method, model in request["methods"].items()}
    config = theirs.ExecutorchBackendConfig(memory_planning_pass=planner, emit_mutable_buffer_names=True)
    return {}, [bytes(theirs.to_edge(programs).to_executorch(config).buffer)]


def plan_officially(request: Header) -> Reply:
    """Lower methods through our chain, with memory planned by a planning pass of the official package."""
    ours, bridge = importlib.import_module("exirkit"), importlib.import_module("exirkit.bridge")
    planning = importlib.import_module("executorch.exir.passes").MemoryPlanningPass
    module = importlib.import_module("executorch.exir.memory_planning")
    algorithm = module.MemoryPlanningAlgorithmSuite([getattr(module, request["algorithm"])])
    chosen = bridge.official_planning_pass(planning(algorithm, **request["options"]))
    programs = {method: exported(model) for method, model in request["methods"].items()}
    try:
        made = ours.to_edge(programs).to_executorch(ours.ExecutorchBackendConfig(memory_planning_pass=chosen))
    except ours.DiagnosticError as error:
        return {"diagnostic": error.diagnostics[0].model_dump_json()}, []
    specs = importlib.import_module("executorch.exir.tensor").TensorSpec
    view = bridge.official_program(made.exported_program(next(iter(programs))))
    shown = [node.meta["spec"] for node in view.graph.nodes if isinstance(node.meta.get("spec"), specs)]
    ends = [one.mem_offset + one.allocated_memory for one in shown if one.mem_id == 1 and one.storage_base is None]
    return {"end": max(ends)}, [bytes(made.buffer)]


def compare(request: Header) -> Reply:
    """Return whether a backend makes the same of a model, tracing is cheap or not."""
    ours, bridge = importlib.import_module("exirkit"), importlib.import_module("exirkit.bridge")
    program = exported(request["model"])
    made = []
    for tracing in (contextlib.nullcontext, cheap_tracing):
        with mock.patch("exirkit.bridge.backends.cheap_tracing", tracing):
            edge = ours.to_edge_transform_and_lower(program, partitioner=[bridge.OfficialPartitioner(partitioner())])
        made.append(payloads(edge.exported_program()))
    return {"same": made[0] == made[1], "count": len(made[0])}, []


_KNOWN_DEFECTS: dict[str, Callable[[], Reply]] = {
    "EK755": lambda: lower_int4({"model": "odd-width"}),
    "EK756": lambda: check_damaged({}),
}


def provoke(request: Header) -> Reply:
    """Return the diagnostic of a code that only the bridge gives."""
    bridge, ours = importlib.import_module("exirkit.bridge"), importlib.import_module("exirkit")
    try:
        if request["code"] == "EK753":
            policy = "policy: 1\npools: [{name: npu, device: 'cuda:0'}]\n"
            return plan({"methods": {"forward": "any-batch"}, "policy": policy})
        if request["code"] in _KNOWN_DEFECTS:
            return _KNOWN_DEFECTS[request["code"]]()
        if request["code"] == "EK766":
            bridge.original_pass("torch.nn:Linear")
        if request["code"] == "EK767":
            config = importlib.import_module("exirkit.fuzz").CampaignConfig
            bridge.AgainstBench(config(against=("torch:relu",), models=("tests.official.backends.models:__name__",)))
        if request["code"] == "EK768":
            config = importlib.import_module("exirkit.fuzz").CampaignConfig
            bridge.AgainstBench(config(against=("torch:relu",), oracles=("dialect-agreement",)))
        if request["code"] == "EK780":
            importlib.import_module("exirkit.bridge.chains").check_chain("CoreMLBackend", "xnnpack")
        if request["code"] == "EK754":
            return plan({"methods": {"forward": "choosing"}, "policy": "policy: 1\npools: [{name: sram}]\n"})
        # What others have imported is not to be in the message.
        with mock.patch("exirkit.bridge.backends._imported_backends", return_value={"Outside": object}):
            bridge.official_backend("Outsid")
    except ours.DiagnosticError as error:
        return {"diagnostic": error.diagnostics[0].model_dump_json()}, []
    return {}, []


ANSWERS = {
    "compare": compare,
    "lower": lower,
    "lower_for": lower_for,
    "lower_weights_of_torchao": lower_weights_of_torchao,
    "lower_with_books": lower_with_books,
    "check_damaged": check_damaged,
    "lower_int4": lower_int4,
    "lower_quantized": lower_quantized,
    "plan": plan,
    "plan_officially": plan_officially,
    "provoke": provoke,
    "run_no_class": run_no_class,
    "share": share,
    "take_in": take_in,
}


def main() -> int:
    """Answer requests until there are no more."""
    stream = os.dup(1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    write_all(stream, pack({"ready": os.getpid()}))
    while True:
        try:
            request, _ = unpack(read_exactly)
        except EOFError:
            return 0
        try:
            answer, blobs = ANSWERS[request["op"]](request)
        except Exception:
            answer, blobs = {"failure": traceback.format_exc()}, []
        write_all(stream, pack({**answer, "number": request["number"]}, blobs))


if __name__ == "__main__":
    sys.exit(main())
