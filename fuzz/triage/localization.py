"""Fault localization: from a failure to the pass, rule application, planner, emitter or runtime that is its culprit."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from exirkit.emit import read_program
from exirkit.fuzz.compilers import Compiler, ExirkitCompiler, FunctionCompiler, LoweringTrace, Snapshot
from exirkit.fuzz.examination import (
    Examination,
    ExpectedLayouts,
    FailedError,
    Failure,
    RejectedError,
    Verdict,
    compared,
    emission_fault,
    equivalent,
    replanned,
    run_dialect,
    was_met_before,
)
from exirkit.fuzz.official import missing_reason
from exirkit.fuzz.oracles import ORACLES, calls_of_several_orders, check, examine, oracles_named
from exirkit.fuzz.programs import Program
from exirkit.ir import Diagnostic, DiagnosticError, TensorSpec, dim_order_from_stride, graphs_by_path, pytree
from exirkit.passes import ApplyRules
from exirkit.patterns import bisect_rewrites
from exirkit.verifiers import check_form, check_metadata, check_quantization

from .overwritten import first_overwritten
from .placements import first_misplaced, fits
from .rejected_calls import NO_KERNEL, pass_against_deviations, pass_in_charge

_BEFORE_THE_FILE = ("eager-run", "lowering", "metadata-agreement", "dialect-agreement")
_RUNS = ("poisoned-run", "memory-sanitizer", "repeated-runs", "changing-shapes")


@dataclass(frozen=True)
class Culprit:
    """The part of a compiler that a failure comes from.

    Attributes:
        part: Name of a pass, or `export`, `planner`, `emitter`, `interpreter`, `official-runtime`,
            `official-exporter`, `compiler` (a black box), `eager` (the program itself).
        application: Number of the rule application, counted from 1, where the pass applies rules.
        rule: Id of that rule.
        method: Name of the method in which it shows.
        evidence: How that was found out.
    """

    part: str
    application: int | None = None
    rule: str | None = None
    method: str | None = None
    evidence: str = ""

    def __str__(self) -> str:
        applied = f", rule {self.rule}, application {self.application}" if self.rule else ""
        return f"{self.part}{applied}"


def find_culprit(program: Program, failure: Failure, *, compiler: Compiler | None = None, seed: int = 0) -> Culprit:
    """Find the part of a compiler that a failure comes from.

    The oracle that found the failure names its suspects, which are tried in their order.

    Args:
        program: The program; the smaller, the faster.
        failure: What an oracle found.
        compiler: What lowered it.
        seed: As for `check`.
    """
    examination = Examination(program, compiler or ExirkitCompiler(), seed)
    suspects = ORACLES[failure.oracle].suspects
    foreign = examination.compiler
    if foreign.is_black_box and suspects[0] in _NEEDS_OWN_CHAIN:
        tells = isinstance(foreign, FunctionCompiler) and foreign.tells_of_passes
        suspects = ("passes", "black box") if tells else ("black box",)
    return _first_culprit(examination, failure, suspects)


def _first_culprit(examination: Examination, failure: Failure, suspects: Sequence[str]) -> Culprit:
    try:
        for suspect in suspects:
            step = STEPS.get(suspect)
            if step is None:
                return Culprit(suspect, evidence="everything before it is right")
            found = step(examination, failure)
            if found is not None:
                return found
    except (FailedError, RejectedError) as error:
        return Culprit(failure.stage or "compiler", evidence=str(error))
    return _stage(examination, failure)


def _stage(examination: Examination, failure: Failure) -> Culprit:
    """Name the part at which the oracle found the failure."""
    return Culprit(
        failure.stage or "compiler", rule=failure.details.get("rule"), evidence=f"found there by {failure.oracle}"
    )


def _program(examination: Examination, failure: Failure) -> Culprit:
    return Culprit(failure.stage or "eager", evidence="the program cannot be run or built")


def _export(examination: Examination, failure: Failure) -> Culprit | None:
    is_first = failure.stage == "export"
    return Culprit("export", evidence="metadata are wrong before the first pass") if is_first else None


def _verifier(examination: Examination, failure: Failure) -> Culprit | None:
    """Ask the checks about the programs before the first pass: what they say against these, they say wrongly."""
    codes = set(re.findall(r"\bEK\d+", failure.symptom))
    for method, program in examination.exported.items():
        found = [one for one in (*check_form(program), *check_quantization(program)) if one.code in codes]
        if found:
            evidence = f"rejects what torch.export has made: {found[0].headline()}"
            return Culprit("verifier", method=method, evidence=evidence)
    compiler = examination.compiler
    if not isinstance(compiler, ExirkitCompiler) or not codes & (_SIGNATURE_CODES | _VALUE_CODES):
        return None
    unchecked = replace(compiler, verify="none")
    if not check(examination.program, compiler=unchecked, seed=examination.seed).is_good:
        return None
    # A signature that is wrong shows in the file, and what is recorded of values after each pass in runs of it.
    if codes & _SIGNATURE_CODES or _records_truth(examination, unchecked):
        return Culprit("verifier", evidence="everything is right without the checks")
    return None


_SIGNATURE_CODES = frozenset(f"EK{number}" for number in range(323, 329))
_VALUE_CODES = frozenset(("EK315", "EK316", "EK318", "EK354"))


def _records_truth(examination: Examination, compiler: ExirkitCompiler) -> bool:
    """Whether what is recorded of values is what they are, in the program of each method after each pass."""
    trace = LoweringTrace(has_state=examination.trace.has_state, keeps_snapshots=True)
    lowering = compiler.lower(examination.exported, trace)
    for method in examination.methods:
        one_method = _of_method(examination, method)
        for one in trace.path_to(method, lowering.planned.get(method)):
            run = run_dialect(one_method, "snapshot", {method: one.program}, is_layout_promised=False)
            if run.error is None and run.findings:
                return False
    return True


def _equivalent(examination: Examination, failure: Failure) -> Culprit:
    """Find the culprit of the equivalent program's failure, or name the whole chain if nothing else shows it."""
    changed, note = equivalent(examination.program, examination.seed)
    verdict = check(changed, compiler=examination.compiler, seed=examination.seed)
    if verdict.is_good:
        return Culprit(failure.stage or "compiler", evidence=f"only in comparison: {note}")
    return find_culprit(changed, verdict.failures[0], compiler=examination.compiler, seed=examination.seed)


def _earlier_oracles(examination: Examination, failure: Failure) -> Culprit | None:
    """Only if all dialects are right it is what comes behind them."""
    earlier = examine(examination, oracles_named(_BEFORE_THE_FILE)).failures
    return _first_culprit(examination, earlier[0], ("passes", "planner")) if earlier else None


def _other_plans(examination: Examination, failure: Failure) -> Culprit | None:
    """Test whether a plan without reuse helps."""
    for layout in ("naive", "reversed"):
        other = Examination(examination.program, examination.compiler, examination.seed)
        other.share(examination)
        try:
            other.take_file(replanned(examination, layout).buffer)
        except DiagnosticError:
            continue
        if _is_clean(examine(other, oracles_named(("eager-run", *_RUNS)))):
            return Culprit("planner", evidence=f"right with plan {layout}")
    return None


def _plan(examination: Examination, failure: Failure) -> Culprit | None:
    """Name the planner for places that are wrong, unless a view that it was given does not fit into its base."""
    if failure.stage != "planner" or not _PLAN_CODES & set(re.findall(r"\bEK\d+", failure.symptom)):
        return None
    path, error = _way_to_error(examination)
    graphs = [module.graph for one in path[-1:] for _, module in graphs_by_path(one.program.graph_module)]
    leaves = [leaf for graph in graphs for node in graph.nodes for leaf in pytree.tree_leaves(node.meta.get("spec"))]
    if error is not None and all(fits(leaf) for leaf in leaves if isinstance(leaf, TensorSpec)):
        return Culprit("planner", evidence="what it was given is right, its plan is not")
    return None


def _way_to_error(examination: Examination) -> tuple[list[Snapshot], Exception | None]:
    """Lower a program once more, and return the snapshots on the way to what the chain raises, and that."""
    trace = LoweringTrace(keeps_snapshots=True)
    try:
        examination.compiler.lower(examination.exported, trace)
    except Exception as error:  # whatever the chain raises is what is localized here
        return trace.path_so_far(examination.exported), error
    return [], None


def _failing_kernel(examination: Examination, failure: Failure) -> Culprit | None:
    """Name the pass in charge of a call with which a kernel ends the process."""
    if "EK657" not in failure.symptom:
        return None
    theirs = _of_official_runtime(examination)
    if theirs is not None and theirs.is_good:
        return Culprit("interpreter", evidence="the official runtime runs the call")
    trace = LoweringTrace(keeps_snapshots=True)
    lowering = examination.compiler.lower(examination.exported, trace)
    finding = Diagnostic.of("EK657", failure.message)
    for method in examination.methods:
        named = pass_in_charge(finding, trace.path_to(method, lowering.planned.get(method)))
        if named is not None:
            return Culprit(named[0], method=method, evidence=named[1])
    return None


def _rejected_calls(examination: Examination, failure: Failure) -> Culprit | None:
    """Name the pass in charge of a call that no kernel of the target takes."""
    if not NO_KERNEL & set(re.findall(r"\bEK\d+", failure.symptom)):
        return None
    path, error = _way_to_error(examination)
    findings = error.diagnostics if isinstance(error, DiagnosticError) else ()
    found = next((one for one in findings if one.code in NO_KERNEL), None)
    named = found and pass_in_charge(found, path)
    return Culprit(named[0], evidence=named[1]) if named else None


_PLAN_CODES = frozenset(f"EK{number}" for number in range(341, 347))


def _shared_views(examination: Examination, failure: Failure) -> Culprit | None:
    """Test whether it helps if no value shares the memory of another, and what does is not right as it is."""
    compiler = examination.compiler
    if not isinstance(compiler, ExirkitCompiler) or not compiler.remove_view_copy:
        return None
    other = replace(compiler, remove_view_copy=False)
    oracles = dict.fromkeys(("eager-run", *_RUNS, failure.oracle))
    if not _is_clean(check(examination.program, compiler=other, oracles=oracles)):
        return None
    if failure.oracle in _RUNS:
        theirs = _of_official_runtime(examination)
        if theirs is not None and theirs.is_good:
            return Culprit("interpreter", evidence="the official runtime gives the right results of the views")
    elif failure.stage == "emitter" and _shows_memory_of_caller(examination, failure):
        return Culprit("emitter", evidence="it rejects a view of memory that the caller provides")
    return Culprit("eliminate-views", evidence="right with remove_view_copy=False")


def _shows_memory_of_caller(examination: Examination, failure: Failure) -> bool:
    """Whether the value that a failure is about is a view of an input which the caller gives a place."""
    path, _ = _way_to_error(examination)
    nodes = {f"%{node.name}": node for one in path[-1:] for node in one.program.graph.nodes}
    shown = nodes[failure.node].meta.get("spec") if failure.node in nodes else None
    base = shown.storage_base if isinstance(shown, TensorSpec) else None
    return base is not None and any(
        node.op == "placeholder" and node.meta.get("spec") is base and base.mem_offset is None
        for node in nodes.values()
    )


def _of_official_runtime(examination: Examination) -> Verdict | None:
    """Return what the official runtime makes of a file, None where it is not there or cannot be asked."""
    if missing_reason():
        return None
    verdict = examine(examination, oracles_named(("official-runtime",)))
    return None if verdict.not_run else verdict


def _shared_results(examination: Examination, failure: Failure) -> Culprit | None:
    """Test whether a result has taken the memory of a value that is read later."""
    for method, program in examination.lowering.planned.items():
        found = first_overwritten(program)
        if found is not None:
            evidence = f"%{found[0].name} reads %{found[1].name}, in whose memory something else was computed before"
            return Culprit("write-in-place", method=method, evidence=evidence)
    return None


def _layout_passes(examination: Examination, failure: Failure) -> Culprit | None:
    """Return the pass that gives kernels one layout, if it leaves several, or the one behind it that makes several."""
    trace = LoweringTrace(has_state=examination.trace.has_state, keeps_snapshots=True, always_after=(_ONE_LAYOUT,))
    method = str(failure.details["method"])
    lowering = examination.compiler.lower(examination.exported, trace)
    path = trace.path_to(method, lowering.planned.get(method))
    first = next((at for at, one in reversed([*enumerate(path)]) if one.stage == _ONE_LAYOUT), None)
    for one in () if first is None else path[first:]:
        if any(True for _ in calls_of_several_orders(one.program)):
            return Culprit(one.stage, method=method, evidence=f"kernels get several layouts after {one.stage}")
    return None


_ONE_LAYOUT = "legalize-dim-order"


def _emission(examination: Examination, failure: Failure) -> Culprit | None:
    """Compare the file with the graph."""
    verdict = examine(examination, oracles_named(("memory-plan",)))
    return None if verdict.is_good else Culprit("emitter", evidence=verdict.failures[0].message)


def _emission_of_other_plan(examination: Examination, failure: Failure) -> Culprit | None:
    """Compare the file that another plan gave with its graph."""
    try:
        made = replanned(examination, failure.details["layout"])
        file = read_program(made.buffer)
    except DiagnosticError:
        return None
    for method in examination.lowering.planned:
        fault = emission_fault(made.exported_program(method), file, method)
        if fault is not None:
            return Culprit("emitter", method=method, evidence=f"%{fault[0]}: {fault[1]}")
    return None


def _deviations(examination: Examination, failure: Failure) -> Culprit | None:
    """Name the pass that goes around a kernel of the official runtime, if it helps to compute as torch does."""
    compiler = examination.compiler
    if not isinstance(compiler, ExirkitCompiler) or not examination.is_for_official:
        return None
    as_torch = Examination(examination.program, replace(compiler, kernels="any"), examination.seed)
    as_torch.share(examination)
    if not _is_clean(examine(as_torch, oracles_named(("eager-run", *_RUNS)))):
        return None
    lowering = examination.lowering
    for method, program in lowering.planned.items():
        found = pass_against_deviations(program, lowering.data, method, examination.inputs[method])
        if found is not None:
            return Culprit(found[0], method=method, evidence=found[1])
    return None


def _runtimes(examination: Examination, failure: Failure) -> Culprit:
    """Compare with what the official runtime makes of the same file."""
    other = _of_official_runtime(examination)
    if other is None:
        return Culprit("interpreter", evidence="graph and file agree, and other plans do not help")
    if other.is_good:
        return Culprit("interpreter", evidence="the official runtime gives the right results")
    if not any(_is_of_the_same(failure, one) for one in other.failures):
        return Culprit("interpreter", evidence="the official runtime gives other results that are wrong")
    return Culprit("emitter", evidence="the official runtime gives wrong results too")


def _black_box(examination: Examination, failure: Failure) -> Culprit:
    """Ask our interpreter and the official runtime about the file of a black box."""
    name = "official-exporter" if "official" in examination.compiler.describe().lower() else "compiler"
    if failure.oracle == "lowering" or missing_reason() or examination.lowering.functions:
        return Culprit(failure.stage or name, evidence="it raised" if failure.oracle == "lowering" else "")
    theirs = examine(examination, oracles_named(("official-runtime",)))
    ours = examine(examination, oracles_named(_RUNS))
    if _is_clean(theirs) and not ours.is_good:
        return Culprit("interpreter", evidence="the official runtime gives the right results")
    if _is_clean(ours) and not theirs.is_good:
        return Culprit("official-runtime", evidence="our interpreter gives the right results")
    return Culprit(name, evidence="both runtimes agree that the file is wrong")


def _is_clean(verdict: Verdict) -> bool:
    return verdict.is_good and not verdict.not_run


def _is_of_the_same(failure: Failure, other: Failure) -> bool:
    """Return whether two failures are about the same result: kernels of the official runtime have bugs of their own."""
    compared = {"method", "run"} <= failure.details.keys() & other.details.keys()
    return not compared or (failure.node, failure.details["method"]) == (other.node, other.details["method"])


def _loader(examination: Examination, failure: Failure) -> Culprit | None:
    """Name the interpreter if it rejects the instructions of the graph, which the official runtime runs."""
    if failure.stage != "emitter" or not _INSTRUCTION_CODES & set(re.findall(r"\bEK\d+", failure.symptom)):
        return None
    file = read_program(examination.lowering.data)
    if any(emission_fault(one, file, method) for method, one in examination.lowering.planned.items()):
        return None
    theirs = _of_official_runtime(examination)
    is_good = theirs is not None and theirs.is_good
    return Culprit("interpreter", evidence="the official runtime runs the file") if is_good else None


_INSTRUCTION_CODES = frozenset(f"EK{number}" for number in (601, 602, 604, 606))


def _stated_layouts(examination: Examination, failure: Failure) -> Culprit | None:
    """Name the pass that states the layouts of results if it has left that one out: no later pass need keep it."""
    trace = LoweringTrace(has_state=examination.trace.has_state, keeps_snapshots=True, always_after=(_STATES_LAYOUTS,))
    method, place = str(failure.details["method"]), int((failure.node or "").removeprefix("output "))
    lowering = examination.compiler.lower(examination.exported, trace)
    path = trace.path_to(method, lowering.planned.get(method))
    program = next((one.program for one in path if one.stage == _STATES_LAYOUTS), None)
    if program is None or _has_other_layouts(_of_method(examination, method), method)(program):
        return None
    names = [spec.arg.name for spec in program.graph_signature.output_specs if spec.kind is OutputKind.USER_OUTPUT]
    result = next(node for node in program.graph.nodes if node.name == names[place])
    if "memory_format" in result.kwargs or not any(map(_is_channels_last, program.graph.nodes)):
        return None
    evidence = f"nothing states the layout of %{result.name} that it has after {_STATES_LAYOUTS}"
    return Culprit(_STATES_LAYOUTS, method=method, evidence=evidence)


def _is_channels_last(node: Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and tuple(dim_order_from_stride(value.stride(), value.shape)) == (0, 2, 3, 1)


_STATES_LAYOUTS = "state-result-layouts"


def _allocation(examination: Examination, failure: Failure) -> Culprit | None:
    """Check the offsets of a memory plan: neither the checker of plans nor the specs are asked for sizes.

    Whether two tensors share bytes at the wrong time is not checked: other plans show that.
    """
    found = next(filter(None, map(first_misplaced, examination.lowering.planned.values())), None)
    return None if found is None else Culprit("planner", evidence=found)


_IsBad = Callable[[ExportedProgram], bool]


def _culprit_among_passes(examination: Examination, failure: Failure) -> Culprit | None:
    """Return the first pass after which a program is wrong in the way of a failure, or None if there is none.

    The chain runs once more and keeps a snapshot after every pass. All of them are run in their order, so that
    it does not matter if a later pass hides what an earlier one has done.
    """
    trace = LoweringTrace(has_state=examination.trace.has_state, keeps_snapshots=True)
    methods = [str(failure.details["method"])] if "method" in failure.details else examination.methods
    try:
        lowering = examination.compiler.lower(examination.exported, trace)
        paths = {method: trace.path_to(method, lowering.planned.get(method)) for method in methods}
    except Exception as error:  # whatever the chain raises is what is localized here
        # What sends the chain another way is to blame for what it meets there.
        path = trace.path_so_far(examination.exported, is_given_up=True)
        at = _first_that_cannot_run(path, _run_of(examination, path[0].method)) if path else None
        if at is not None:
            return _within_pass(path, at, path[at].method, _has_false_metadata)
        first = trace.gave_up()
        if first is not None and was_met_before(error):
            return Culprit(first, evidence="gave up for what the other way raises, too")
        path = trace.path_so_far(examination.exported)
        paths = {path[0].method: path} if path and path[0].method in methods else {}
    for method, path in paths.items():
        is_bad = _is_wrong_like(examination, method, failure)
        # Layouts are promised late: those of a program that is not so far may be anything.
        is_late = failure.symptom == _LAYOUT
        found = _first_of_the_last(path, is_bad) if is_late else _first_bad(path, is_bad)
        if failure.oracle == "lowering":
            # What torch.export has made is not what the chain raises because of.
            found = None if found is not None and path[found].stage == "export" else found
            # A pass may raise because of what an earlier one recorded, strides of a view for a copy say, long before
            # anything comes out wrong.
            misleading = _first_bad(path[:found], _has_false_metadata)
            if misleading is not None:
                return _within_pass(path, misleading, method, _has_false_metadata)
            if found is None:
                found = _first_that_cannot_run(path, _run_of(examination, method))
        if found is not None:
            return _within_pass(path, found, method, _is_wrong_like(examination, method, failure))
    return None


_LAYOUT = "metadata layout"


def _first_that_cannot_run(path: Sequence[Snapshot], runs: Callable[[ExportedProgram], bool]) -> int | None:
    """Return the first of the last snapshots that torch does not run, if it runs what was there before them.

    A later stage may only be the first one with a check that sees why.
    """
    return _first_of_the_last(path, lambda program: not runs(program)) or None


def _first_of_the_last(path: Sequence[Snapshot], is_bad: _IsBad) -> int | None:
    """Return the first of the bad snapshots that no good one follows."""
    first = len(path)
    while first and is_bad(path[first - 1].program):
        first -= 1
    return first if first < len(path) else None


def _run_of(examination: Examination, method: str) -> Callable[[ExportedProgram], bool]:
    """Return what tests whether torch runs a program of a method at all."""
    one_method = _of_method(examination, method)

    def runs(program: ExportedProgram) -> bool:
        return run_dialect(one_method, "snapshot", {method: program}, is_layout_promised=False).error is None

    return runs


def _of_method(examination: Examination, method: str) -> Examination:
    program = replace(examination.program, runs=tuple(examination.runs_of(method)))
    one_method = Examination(program, examination.compiler, examination.seed)
    # What has been computed already need not be computed again.
    one_method.share(examination)
    return one_method


def _has_false_metadata(program: ExportedProgram) -> bool:
    return bool(check_metadata(program, layouts=True))


def _first_bad(path: Sequence[Snapshot], is_bad: _IsBad) -> int | None:
    return next((at for at, one in enumerate(path) if is_bad(one.program)), None)


def _is_wrong_like(examination: Examination, method: str, failure: Failure) -> _IsBad:
    """Return what tests whether a program of a method is wrong in the way of a failure."""
    one_method = _of_method(examination, method)
    if failure.oracle == "output-layout":
        return _has_other_layouts(one_method, method)
    is_about_layout = failure.symptom == _LAYOUT
    cannot_run = failure.symptom.startswith("raised graph cannot be run")

    def is_bad(program: ExportedProgram) -> bool:
        run = run_dialect(one_method, "snapshot", {method: program}, is_layout_promised=is_about_layout)
        if failure.oracle == "metadata-agreement":
            return any(one.symptom == failure.symptom for one in run.findings)
        if run.error is not None:
            # Between two dialects there may be programs that torch does not run; that alone says nothing.
            return cannot_run
        if failure.oracle == "lowering" and run.findings:
            return True
        return any(True for _ in compared(one_method, "dialect-agreement", "snapshot", run.results, is_lowered=True))

    return is_bad


def _has_other_layouts(examination: Examination, method: str) -> _IsBad:
    """Return what tests whether results of a program lie in memory otherwise than they should."""
    expected = ExpectedLayouts(examination, method)

    def is_bad(program: ExportedProgram) -> bool:
        run = run_dialect(examination, "snapshot", {method: program}, is_layout_promised=False)
        return run.error is None and expected.first_other([one.outputs for one in run.results[method]]) is not None

    return is_bad


def _within_pass(path: Sequence[Snapshot], at: int, method: str, is_bad: _IsBad) -> Culprit:
    """Name the pass, and the application of a rule where it applies rules."""
    culprit = path[at]
    evidence = f"wrong after {culprit.stage}" + (f", right after {path[at - 1].stage}" if at else "")
    if at and isinstance(culprit.edit, ApplyRules):
        try:
            found = bisect_rewrites(
                path[at - 1].program, culprit.edit.engine.rules, lambda one: not is_bad(one), culprit.edit.options
            )
        except DiagnosticError:
            return Culprit(culprit.stage, method=method, evidence=evidence)
        if found.culprit is not None:
            evidence += f"; %{found.culprit.root} was rewritten"
            return Culprit(culprit.stage, found.culprit.number, found.culprit.rule, method, evidence)
    return Culprit(culprit.stage, method=method, evidence=evidence)


STEPS: Mapping[str, Callable[[Examination, Failure], Culprit | None]] = {
    "program": _program,
    "equivalent program": _equivalent,
    "export": _export,
    "verifier": _verifier,
    "passes": _culprit_among_passes,
    "earlier oracles": _earlier_oracles,
    "allocation": _allocation,
    "other plans": _other_plans,
    "rejected calls": _rejected_calls,
    "failing kernel": _failing_kernel,
    "plan": _plan,
    "shared views": _shared_views,
    "shared results": _shared_results,
    "layout passes": _layout_passes,
    "stated layouts": _stated_layouts,
    "loader": _loader,
    "emission": _emission,
    "emission of other plan": _emission_of_other_plan,
    "deviations": _deviations,
    "runtimes": _runtimes,
    "black box": _black_box,
    "stage": _stage,
}
"""What `suspects` of oracles name; any other name there is a culprit itself."""

_NEEDS_OWN_CHAIN = STEPS.keys() - {"program", "equivalent program"}
