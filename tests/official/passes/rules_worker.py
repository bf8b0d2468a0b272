"""Rules inside the official exporter, in a process of its own: passes of ours, managers and programs of theirs."""

from __future__ import annotations

import functools
import importlib
import os
import sys
import traceback
import warnings
from collections import Counter
from typing import Any

import torch
from tests.official.passes.rule_cases import RuleCase
from tests.patterns.rule_files import book
from torch.export import ExportedProgram

from exirkit import ApplyRules
from exirkit.fuzz.official.wire import Header, pack, unpack
from exirkit.fuzz.official.worker import read_exactly, write_all
from exirkit.patterns.checking.pattern_programs import program_of
from exirkit.patterns.checking.trials.rule_trials import RuleTrials

MOST_SAMPLES = 8


def lower(request: Header) -> tuple[Header, list[bytes]]:
    """Lower a model; `route` says through which door the rules come in."""
    exporter = importlib.import_module("executorch.exir")
    from tests.official.passes.rule_cases import CASES

    case = CASES[request["case"]]
    passes = [
        ApplyRules([rule for name in books for rule in book(name).rules if rule.id in (case.rules or (rule.id,))])
        for books in case.passes
    ]
    edge = _through(exporter, request["route"], case, passes)
    reports = [one.report for one in passes]
    if request["route"] != "plain":
        assert None not in reports, "the official exporter did not call the pass"
    applied = sum((one.applied for one in reports if one is not None), Counter[str]())
    rejections = [rejection for one in reports if one is not None for rejection in one.rejections]
    faults = [f"{one.rule} at {one.node}: {one.reason}" for one in rejections if one.is_fault]
    blind = sorted({one.rule for one in rejections if not one.node})
    strangers = _not_the_librarys_own(edge.exported_program())
    pte = edge.to_executorch().buffer
    return {"applied": dict(applied), "faults": faults, "blind": blind, "strangers": strangers}, [bytes(pte)]


def _not_the_librarys_own(program: ExportedProgram) -> list[str]:
    """Return calls whose target is not the very handle that the library gives out, which its passes compare with."""
    registry = importlib.import_module("executorch.exir.dialects._ops").ops.edge
    targets = [node.target for node in program.graph.nodes if node.op == "call_function"]
    named = [one for one in targets if hasattr(one, "_schema")]
    own = [functools.reduce(getattr, one.__name__.split("."), registry) for one in named]
    return [str(one) for one, other in zip(named, own, strict=True) if one is not other]


def _through(exporter: Any, route: str, case: RuleCase, passes: list[ApplyRules]) -> Any:
    program = case.program()
    config = exporter.EdgeCompileConfig(
        _core_aten_ops_exception_list=[operator_named(f"aten.{name}") for name in case.kept],
        _skip_dim_order=case.skip_dim_order,
    )
    match route:
        case "plain":
            return exporter.to_edge_transform_and_lower(program, compile_config=config)
        case "program":
            return exporter.to_edge_transform_and_lower(program, transform_passes=passes, compile_config=config)
        case "transform":
            return exporter.to_edge(program, compile_config=config).transform(passes)
        case "module":
            # What older versions do with every pass: it is given the graph and nothing else.
            functions = [lambda module, one=one: one(module) for one in passes]
            return exporter.to_edge_transform_and_lower(program, transform_passes=functions, compile_config=config)
        case "bare":
            for one in passes:
                program = one(program).exported_program
            return exporter.to_edge_transform_and_lower(program, compile_config=config)
    raise ValueError(route)


def operator_named(name: str) -> Any:
    """Return the operator of torch with a name such as `aten.linear.default`."""
    return functools.reduce(getattr, name.split("."), torch.ops)


def try_rule(request: Header) -> tuple[Header, list[bytes]]:
    """Apply a rule to a program made from itself and lowered to Edge by the official exporter."""
    exporter = importlib.import_module("executorch.exir")
    rule = book(request["book"]).rule(request["rule"])
    trials = RuleTrials(rule, seed=7)
    answer: Header = {"status": "skipped", "text": "no sample"}
    seen = 0
    for number in range(1, 100):
        trial, _ = trials.trial(number, profile="normal")
        if trial is None:
            continue
        seen += 1
        program, inputs = program_of(trials, trial)
        try:
            edge = exporter.to_edge(program)
        except Exception as error:
            answer = {"status": "skipped", "text": f"to_edge fails: {type(error).__name__}: {error}"[:300]}
        else:
            apply = ApplyRules([rule])
            after = edge.transform([apply]).exported_program()
            problem = trials.compared(trial, list(after.module()(*inputs)))
            if problem is not None:
                return {"status": "wrong", "text": f"seed {trial.seed}: {problem}"}, []
            if apply.report is not None and apply.report.journal:
                return {"status": "fired", "text": ""}, []
            calls = [node.target for node in edge.exported_program().graph.nodes if node.op == "call_function"]
            names = ", ".join(dict.fromkeys(getattr(one, "__name__", str(one)) for one in calls))
            answer = {"status": "skipped", "text": f"to_edge leaves {names or 'nothing'}"}
        if seen == MOST_SAMPLES:
            break
    return answer, []


ANSWERS = {"lower": lower, "rule": try_rule}


def main() -> int:
    """Answer requests until there are no more."""
    stream = os.dup(1)
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # Passes join the official ones when they are made, if those are there by then.
    importlib.import_module("executorch.exir")
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
