"""The bridge in a process of its own: what it imports must not change how other tests run."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
import warnings
from collections import Counter
from typing import Any
from unittest import mock

import torch
from tests.official.bridge_models import exported
from torch.export import ExportedProgram

from exirkit.fuzz.official.wire import Header, pack, unpack
from exirkit.fuzz.official.worker import read_exactly, write_all
from exirkit.ir import cheap_tracing

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
    return [(module.processed_bytes, module.named_data) for module in modules]


def lower(request: Header) -> Reply:
    """Lower a model through our chain and through theirs."""
    ours, bridge = importlib.import_module("exirkit"), importlib.import_module("exirkit.bridge")
    program = exported(request["model"])
    mine = ours.to_edge_transform_and_lower(program, partitioner=[bridge.OfficialPartitioner(partitioner())])
    other = importlib.import_module("executorch.exir").to_edge_transform_and_lower(program, partitioner=[partitioner()])
    answer = {"ours": delegated(mine.exported_program()), "theirs": delegated(other.exported_program())}
    return answer, [bytes(mine.to_executorch().buffer), bytes(other.to_executorch().buffer)]


def compare(request: Header) -> Reply:
    """Tell whether a backend makes the same of a model whether tracing is cheap or not."""
    ours, bridge = importlib.import_module("exirkit"), importlib.import_module("exirkit.bridge")
    program = exported(request["model"])
    made = []
    for tracing in (contextlib.nullcontext, cheap_tracing):
        with mock.patch("exirkit.bridge.backends.cheap_tracing", tracing):
            edge = ours.to_edge_transform_and_lower(program, partitioner=[bridge.OfficialPartitioner(partitioner())])
        made.append(payloads(edge.exported_program()))
    return {"same": made[0] == made[1], "count": len(made[0])}, []


def provoke(request: Header) -> Reply:
    """Return the diagnostic of a code that only the bridge gives."""
    bridge, ours = importlib.import_module("exirkit.bridge"), importlib.import_module("exirkit")
    details = importlib.import_module("executorch.exir.backend.backend_details")
    store = importlib.import_module("executorch.exir._serialize._named_data_store")

    class Outside(details.BackendDetails):  # type: ignore[misc, name-defined]
        @staticmethod
        def preprocess(edge_program: ExportedProgram, compile_specs: Any) -> Any:
            kept = store.NamedDataStore()
            kept.add_named_data("weights", b"heavy", external_tag="weights.bin")
            return details.PreprocessResult(b"light", data_store_output=kept.get_named_data_store_output())

    try:
        # What others have imported is not to be in the message.
        with mock.patch("exirkit.bridge.backends._imported_backends", return_value={"Outside": Outside}):
            backend = bridge.official_backend("Outside" if request["code"] == "EK752" else "Outsid")
        backend.preprocess_multimethod({"forward": [exported("any-batch")]}, {"forward": [[]]})
    except ours.DiagnosticError as error:
        return {"diagnostic": error.diagnostics[0].model_dump_json()}, []
    return {}, []


def page(request: Header) -> Reply:
    """Run the blocks of a page, in their order."""
    names: dict[str, Any] = {}
    for block in request["blocks"]:
        exec(compile(block, "page", "exec"), names)
    return {"names": sorted(names)}, []


ANSWERS = {"page": page, "compare": compare, "lower": lower, "provoke": provoke}


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
