"""Parts other than passes are blamed for what they raise or reject: verifiers, and emission inside of planning."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from benchmarks.mutants.fresh_mutants import LIST, read_mutants

from exirkit import GraphEditor, Pass, ops
from exirkit.fuzz.compilers import ExirkitCompiler, LoweringTrace
from exirkit.fuzz.examination import LAYOUTS, Examination, Failure, was_met_before
from exirkit.fuzz.mutants import Mutant, MutantResult, MutationBenchOptions, applied, mutant, run_mutant
from exirkit.fuzz.mutants.model import named
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import parse_program
from exirkit.fuzz.triage import find_culprit, localization, localized, placements
from exirkit.fuzz.triage.localization import _first_of_the_last
from exirkit.fuzz.triage.overwritten import first_overwritten
from exirkit.ir import TensorSpec, copy_program
from exirkit.passes.stage_events import StageEvent

_NEGATION = """program(1)

def forward(x: "f32[2]"):
    y = aten.neg.default(x)
    return y

run("forward", x=dyadic(1))
"""
_CONSTANT = """program(1)
c = constant("f32[3]", dyadic(3))

def forward(x: "f32[3]"):
    y = aten.mul.Tensor(x, c)
    return y

run("forward", x=dyadic(1))
"""
_UNIT_DIM = """program(1)

def forward(x: "f32[2, 1, 3, 2]"):
    y = aten.clone.default(x, memory_format=torch.contiguous_format)
    z = aten.neg.default(y)
    return z

run("forward", x=dyadic(1, layout="channels_last"))
"""
_SHARED_WEIGHT = """program(1)
w = constant("f32[2, 3, 2, 2]", dyadic(3))

def forward(x: "f32[2, 3, 2, 2]", y: "f32[2, 3, 2, 2]"):
    a = aten.mul.Tensor(x, w)
    b = aten.mul.Tensor(y, w)
    return a, b

run("forward", x=dyadic(1, layout="channels_last"), y=dyadic(2))
"""
_SHIFT_BESIDE_OTHERS = """program(1)

def forward(x: "i32[4]", n: "i32[4]", f: "f32[2, 3]"):
    a = aten.bitwise_left_shift.Tensor(x, n)
    b, _ = aten.median.dim(f, 1)
    c = aten.neg.default(x)
    return a, b, c

run("forward", x=numbers([1, 3, -5, 7]), n=numbers([1, 32, 64, 40]), f=dyadic(1))
"""
_SCALES_PER_CHANNEL = """program(1)

def forward(x: "f32[1, 3]", scales: "f64[3]", offsets: "i64[3]"):
    a = quantized_decomposed.quantize_per_channel.default(x, scales, offsets, 1, 0, 15, torch.uint8)
    return a

run("forward", x=numbers([4, 2, 8]), scales=numbers([0.125, 0.5, 0.125]), offsets=zeros())
"""
_SOME_LARGE_VALUES = """program(1)

def forward(x: "f32[3000]"):
    a = aten.neg.default(x)
    b = aten.sin.default(a)
    c = aten.cos.default(b)
    d = aten.tanh.default(c)
    e = aten.abs.default(d)
    f = aten.add.Tensor(e, e)
    g = aten.mul.Tensor(f, f)
    h = aten.sub.Tensor(g, x)
    return h

run("forward", x=dyadic(1))
"""
_SEED_OF_NAIVE = sorted(LAYOUTS).index("naive")
_SAWTOOTH = """program(1)
s0 = symbol(2, 8)

def forward(x: "f32[s0]", y: "f32[1]"):
    a = aten.neg.default(x)
    b = aten.expand_copy.default(y, [s0 - 2 * (s0 // 2) + 1])
    c = aten.abs.default(b)
    return a, c

run("forward", s0=3, x=dyadic(1), y=dyadic(2))
"""

_UNIT_DIM_CAST = """program(1)

def forward(x: "f32[2, 1, 3, 2]"):
    y = aten._to_copy.default(x, dtype=torch.float64)
    z = aten.neg.default(y)
    return z

run("forward", x=dyadic(1, layout="channels_last"))
"""
_LARGE_STATE = """program(1)
b = buffer("f32[1200]", dyadic(3))

def forward(x: "f32[1200]"):
    y = aten.mul.Tensor(b, 0.5)
    z = aten.add.Tensor(b, x)
    w = aten.sum.default(z)
    update(b, y)
    return w

run("forward", x=dyadic(1))
run("forward", x=dyadic(2))
"""
_WRITTEN_IN_WINDOWS = """program(1)

def forward(x: "f32[2, 3]"):
    y = aten.neg.default(x)
    z = aten.unfold.default(y, 1, 1, 1)
    w = aten.add_.Scalar(z, 1)
    v = aten.abs.default(y)
    return v

run("forward", x=dyadic(1))
"""
_RUNNING_MAXIMUM = """program(1)

def forward(x: "f32[2, 3]"):
    y, i = aten.cummax.default(x, -1)
    return y, i

run("forward", x=dyadic(1))
"""


def _mutant(module: str, function: str, old: str, new: str, program: str) -> Mutant:
    return Mutant(
        id="other",
        part="pass",
        culprits=(),
        doc="",
        module=module,
        function=function,
        old=old,
        new=new,
        program=program,
    )


_CASES = {
    "verifier": _mutant(
        "verifiers.signature", "_stored", "else (program.constants,)", "else (program.state_dict,)", _CONSTANT
    ),
    "emitter": _mutant(
        "emit.values", "call_values", "named.get(parameter.name", "named.fetch(parameter.name", _CONSTANT
    ),
    "eliminate-views": _mutant(
        "passes.to_executorch.propagate_specs",
        "_is_same",
        "and old.dim_order == new.dim_order",
        "and _memory_order(old) == _memory_order(new)",
        _UNIT_DIM,
    ),
    "legalize-dim-order": _mutant(
        "passes.legalize.dim_order",
        "_Legalizer._made_in_order",
        'return editor.add_constant(_in_memory(tensor, order), name=f"{node.name}_laid_out", origins=node)',
        "return (editor.set_tensor(node, _in_memory(tensor, order)), node)[1]",
        _SHARED_WEIGHT,
    ),
    "use-dim-order-operators": _mutant(
        "passes.to_edge.edge_operators",
        "UseDimOrderOperators.edit",
        "list(dim_order_from_stride(value.stride(), value.shape))",
        "sorted(range(value.dim()), key=lambda dim: -value.stride(dim))",
        _UNIT_DIM_CAST,
    ),
    "write-in-place": _mutant(
        "passes.to_executorch.in_place",
        "_Memory._is_dead_after",
        "return len(later) == 1 and self._copies_back(later[0], root, spec)",
        "return any(self._copies_back(one, root, spec) for one in later)",
        _LARGE_STATE,
    ),
    # Both ways of decomposing call this.
    "decompose-to-core": _mutant(
        "passes.to_aten.decompositions", "_places", "dim %= max(x.dim(), 1)", "dim = int(dim)", _RUNNING_MAXIMUM
    ),
}


_QUANTIZED_AT_THE_LIMIT = """program(1)
n = constant("i8[2, 3]", numbers([1, 2, 3, -4, 5, 127]))
s = constant("f32[2]", numbers([0.5, 2]))
z = constant("i64[2]", numbers([127, 3]))

def forward(x: "f32[2, 3]"):
    w = quantized_decomposed.dequantize_per_channel.default(n, s, z, 0, -128, 127, torch.int8)
    y = aten.mul.Tensor(x, w)
    return y

run("forward", x=dyadic(1))
"""
# What the checks say against a program, they say when the planner runs, and they would say it before the first pass.
_OTHER_CHECK = _mutant(
    "verifiers.quantization",
    "_parameters",
    "one.zero_points > one.high",
    "one.zero_points >= one.high",
    _QUANTIZED_AT_THE_LIMIT,
)
# A check that raises something of its own.
_BROKEN_CHECK = _mutant(
    "verifiers.dialects", "_is_weak", "{one.dtype for one in tensors}", "{one.dtypes for one in tensors}", _CONSTANT
)


def test_the_part_that_is_wrong_is_blamed() -> None:
    for part, one in (*_CASES.items(), ("verifier", _OTHER_CHECK), ("verifier", _BROKEN_CHECK)):
        program, compiler = parse_program(one.program), ExirkitCompiler()
        assert check(program, compiler=compiler).is_good
        with applied(one):
            failure = check(program, compiler=compiler).failures[0]
            assert find_culprit(program, failure, compiler=compiler).part == part
        assert (failure.oracle == "operand-layouts") == (part in ("eliminate-views", "legalize-dim-order"))


_OTHER_LISTS = [one for file in sorted(LIST.parent.glob("*.yaml")) for one in read_mutants(file)]


_NO_KERNEL = Failure("lowering", "rejected EK359", "", "planner")


def _blame_of_witness(name: str) -> MutantResult:
    return run_mutant(named(name, _OTHER_LISTS), MutationBenchOptions(only_witnesses=True))


@pytest.mark.parametrize(
    "name",
    [
        # What states the layouts of results has left one out.
        "rows-unless-all-is-channels-last",
        "channels-last-is-not-stated",
        # Calls that no kernel takes, because of their layouts and of parameters of quantized values.
        "bodies-read-rows",
        "scales-stay-narrow",
        # The emitter rejects a view of what the caller gives a place.
        "views-of-the-caller-need-a-place",
        # A check of recorded dtypes.
        "numbers-widen-what-they-do-not",
        # Passes that run without a pipeline, before the first one of `to_executorch`.
        "zero-points-of-some-rows",
        "differences-of-eight-bits",
        # File and graph differ: in the sign of a zero, and in what is moved instead of copied.
        "minus-zero-left-out",
        "zeros-of-both-signs-are-one",
        "carried-values-are-moved",
        # Kernels that compute otherwise than torch, and one that ends the process.
        "as-many-elements-as-the-correction",
        "digits-lost-in-short-sums",
        "zero-points-beyond-the-upper-limit",
        # Files that are rejected rightly.
        "arenas-without-bytes-are-left-out",
        "only-the-first-result-is-named",
        "texts-without-an-end",
    ],
)
def test_bugs_of_other_lists_are_blamed_rightly_in_their_programs(name: str) -> None:
    result = _blame_of_witness(name)
    assert result.is_blame_right, (result.killed_by, result.blamed)


@pytest.mark.executorch
@pytest.mark.parametrize("name", ["no-jump-to-the-end", "shown-for-good", "tokens-of-the-first-dim-only"])
def test_the_interpreter_is_blamed_for_files_that_the_official_runtime_runs_rightly(name: str) -> None:
    result = _blame_of_witness(name)
    assert result.blamed == "interpreter"


_SUM_AND_VARIANCE = """program(1)

def forward(x: "f32[2, 3]", i: "i32[40]"):
    a = aten.add.Tensor(x, x)
    s = aten.sum.dim_IntList(i, [0], dtype=torch.int32)
    v = aten.var.correction(x, [0], correction=2)
    return a, s, v

run("forward", x=dyadic(1), i=dyadic(2, bits=0))
"""


def test_a_deviation_is_sought_among_all_kernels() -> None:
    # Kernels of sums deviate as well, but not for these elements.
    program, compiler = parse_program(_SUM_AND_VARIANCE), ExirkitCompiler(kernels="official")
    assert check(program, compiler=compiler).is_good
    with applied(named("as-many-elements-as-the-correction", _OTHER_LISTS)):
        failure = check(program, compiler=compiler).failures[0]
        assert find_culprit(program, failure, compiler=compiler).part == "legalize-special-values"


def test_a_call_without_a_kernel_is_blamed_on_the_pass_that_made_it() -> None:
    program = parse_program(_NEGATION)
    swap = _Replacing("swap", ops.edge.aten.neg.default, ops.edge.aten.digamma.default)
    given = ExirkitCompiler(kernels="official")
    assert localization._rejected_calls(Examination(program, given, 0), _NO_KERNEL) is None
    found = localization._rejected_calls(Examination(program, replace(given, passes=(swap,)), 0), _NO_KERNEL)
    assert found is not None
    assert found.part == "swap"


def test_another_way_is_blamed_for_what_it_alone_meets() -> None:
    # Torch has to trace again what writes through windows.
    program = parse_program(_WRITTEN_IN_WINDOWS)
    one = _mutant(
        "passes.to_aten.whole_graph",
        "DecomposeWholeGraph.call",
        "table.update(beyond_core())",
        "table.update(beyond_core(None))",
        _WRITTEN_IN_WINDOWS,
    )
    with applied(one):
        failure = check(program).failures[0]
        assert find_culprit(program, failure).part == "decompose-whole-graph"


def test_memory_that_is_overwritten_in_time_is_not_a_finding() -> None:
    for text in (_LARGE_STATE, _SHARED_WEIGHT, _UNIT_DIM_CAST):
        for compiler in (ExirkitCompiler(), ExirkitCompiler(in_place=True, kernels="official")):
            planned = Examination(parse_program(text), compiler, 0).lowering.planned
            assert [first_overwritten(one) for one in planned.values()] == [None]


def _raised_again(first: str, then: str) -> BaseException:
    """Return what the second of two ways raises, which is tried because the first one raised."""
    text = "def helper(kind): raise kind\ndef one(kind):\n    helper(kind)\ndef other(kind):\n    raise kind\n"
    made: dict[str, Any] = {}
    exec(compile(text, "/somewhere/exirkit/made.py", "exec"), made)
    try:
        try:
            made[first](RuntimeError)
        except RuntimeError:
            made[then](RuntimeError)
    except RuntimeError as error:
        return error
    raise AssertionError


def test_two_ways_meet_the_same_where_the_same_call_raises() -> None:
    assert was_met_before(_raised_again("one", "one"))
    assert was_met_before(_raised_again("one", "helper"))
    assert not was_met_before(_raised_again("one", "other"))
    assert not was_met_before(RuntimeError())


def test_what_torch_has_made_is_not_blamed_for_what_the_chain_rejects() -> None:
    # Torch records one for a size that is one or two, which a run shows; the chain rejects something else.
    one = _mutant(
        "passes.to_executorch.symbolic_shapes",
        "SizeBounds._evaluate",
        "exact = int(max(results))",
        "exact = int(results[-1])",
        _SAWTOOTH,
    )
    program, compiler = parse_program(one.program), ExirkitCompiler()
    with applied(one):
        failure = check(program, compiler=compiler).failures[0]
        assert failure.symptom == "raised ContractError EK338"
        assert find_culprit(program, failure, compiler=compiler).part == "bound-symbolic-shapes"


class _Replacing(Pass):
    """Calls one operator in place of another."""

    def __init__(self, name: str, old: Any, new: Any) -> None:
        self.name = name  # type: ignore[misc]
        self.old, self.new = old, new

    def edit(self, editor: GraphEditor) -> None:
        for node in editor.graph.nodes:
            if node.target is self.old:
                editor.retarget(node, self.new, node.args, {})


@pytest.mark.parametrize(("symptom", "part"), [("metadata layout", "back"), ("metadata dtype", "export")])
def test_layouts_are_blamed_on_what_they_are_wrong_behind_for_good(
    monkeypatch: pytest.MonkeyPatch, symptom: str, part: str
) -> None:
    program = parse_program(_NEGATION)
    neg, absolute = ops.edge.aten.neg.default, ops.edge.aten.abs.default
    compiler = ExirkitCompiler(passes=(_Replacing("away", neg, absolute), _Replacing("back", absolute, neg)))

    def is_bad(lowered: torch.export.ExportedProgram) -> bool:
        return any("neg" in str(node.target) for node in lowered.graph.nodes)

    monkeypatch.setattr(localization, "_is_wrong_like", lambda *given: is_bad)
    failure = Failure("metadata-agreement", symptom, "", details={"method": "forward"})
    found = localization._culprit_among_passes(Examination(program, compiler, 0), failure)
    assert found is not None
    assert found.part == part


def _given_up(trace: LoweringTrace, program: torch.export.ExportedProgram) -> None:
    """Note two passes, and that the chain begins again in another way."""

    def tell(moment: Any, position: int, name: str, *, is_modified: bool = False) -> None:
        made = copy_program(program) if is_modified else program
        trace.see(StageEvent(moment, 1, "chain", position, "1", name, made, is_modified))

    tell("start", 0, "")
    for position, name in enumerate(("first", "second")):
        tell("before", position, name)
        tell("after", position, name, is_modified=True)
    tell("before", 0, "whole")


def test_what_sends_the_chain_another_way_is_blamed_for_what_it_meets_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Meeting(ExirkitCompiler):
        """Raises on the other way."""

        def lower(self, exported: Any, trace: Any = None) -> Any:
            _given_up(trace, exported["forward"])
            raise RuntimeError

    def runs_of(examination: Examination, method: str) -> Any:
        asked: list[Any] = []

        def runs(lowered: Any) -> bool:
            # Programs are asked about from the last one back: that of "second" does not run.
            asked.append(lowered)
            return len(asked) > 1

        return runs

    program = parse_program(_NEGATION)
    monkeypatch.setattr(localization, "_run_of", runs_of)
    failure = Failure("lowering", "raised graph cannot be run", "")
    found = localization._culprit_among_passes(Examination(program, Meeting(), 0), failure)
    assert found is not None
    assert found.part == "second"


def test_a_way_that_was_given_up_is_kept_for_blame() -> None:
    program = torch.export.export(torch.nn.ReLU(), (torch.zeros(2),))
    trace = LoweringTrace(keeps_snapshots=True)

    def tell(moment: Any, position: int, name: str, *, is_modified: bool = False) -> None:
        trace.see(StageEvent(moment, 1, "chain", position, "1", name, program, is_modified))

    tell("start", 0, "")
    for position, name in enumerate(("first", "second")):
        tell("before", position, name)
        tell("after", position, name, is_modified=True)
    assert trace.path_so_far({"forward": program}, is_given_up=True) == []
    # The group begins again in another way.
    tell("before", 0, "whole")
    given_up = trace.path_so_far({"forward": program}, is_given_up=True)
    assert [one.stage for one in given_up] == ["export", "first", "second"]
    assert "second" not in [one.stage for one in trace.path_so_far({"forward": program})]


def test_the_first_of_the_last_bad_programs() -> None:
    path: Any = [SimpleNamespace(program=one) for one in ("bad", "good", "bad", "bad")]

    def is_bad(program: Any) -> bool:
        return bool(program == "bad")

    assert _first_of_the_last(path, is_bad) == 2
    assert _first_of_the_last(path[:2], is_bad) is None
    assert _first_of_the_last(path[:1], is_bad) == 0


@pytest.mark.parametrize("name", ["base-dies-before-its-view", "view-beside-its-base", "reduction-of-channels-last"])
def test_the_planner_is_blamed_for_its_plan_and_a_pass_for_what_it_leaves_undone(name: str) -> None:
    one = mutant(name)
    program = parse_program(one.program)
    with applied(one):
        failure = check(program).failures[0]
        culprit = find_culprit(program, failure)
    assert culprit.part in one.culprits
    assert check(program).is_good


def test_a_view_that_its_base_cannot_hold_is_not_the_planners() -> None:
    base = TensorSpec(torch.float32, (2, 3))
    inner = TensorSpec(torch.float32, (3,))
    inner.storage_base, inner.storage_offset_bytes = base, 12
    outer = TensorSpec(torch.float32, (3,))
    outer.storage_base, outer.storage_offset_bytes = base, 16
    assert [placements.fits(one) for one in (base, inner, outer)] == [True, True, False]


def test_a_plan_without_reuse_that_is_written_wrongly_is_the_emitters() -> None:
    # What a value takes with the usual plan lies below 64 KiB, with a plan without reuse it does not.
    one = named("offsets-of-sixteen-bits", read_mutants(LIST.with_name("mutants_fourth_set.yaml")))
    program = parse_program(_SOME_LARGE_VALUES)
    with applied(one):
        failure = check(program, oracles=("other-memory-plan",), seed=_SEED_OF_NAIVE).failures[0]
        culprit = find_culprit(program, failure, seed=_SEED_OF_NAIVE)
    assert (failure.details["layout"], culprit.part) == ("naive", "emitter")


def test_sizes_of_a_view_are_the_emitters() -> None:
    one = named("views-sized-at-their-bound", read_mutants(LIST.with_name("mutants_fourth_set.yaml")))
    program = parse_program(one.program)
    with applied(one):
        failure = check(program).failures[0]
        assert (failure.oracle, find_culprit(program, failure).part) == ("memory-plan", "emitter")


def test_a_small_program_is_asked_for_the_culprit() -> None:
    # What else a program does has its own culprits: a pass that another call needs, or a choice of the compiler.
    program = parse_program(_SHIFT_BESIDE_OTHERS)
    third = read_mutants(LIST.with_name("mutants_third_set.yaml"))
    with applied(named("shifted-by-more-than-its-bits", third)):
        compiler = ExirkitCompiler(in_place=True)
        failure = check(program, compiler=compiler).failures[0]
        found = localized(program, failure, compiler, trials=60)
    assert (found.culprit.part, found.is_repeated) == ("decompose-to-core", True)
    assert [step.op for step in found.program.methods[0].steps] == ["aten.bitwise_left_shift.Tensor"]
    assert found.compiler == ExirkitCompiler()


@pytest.mark.executorch
def test_a_small_program_stays_one_that_the_official_runtime_gets_right() -> None:
    # With a scale of zero both runtimes differ from eager PyTorch, as they do without the mutant.
    program = parse_program(_SCALES_PER_CHANNEL)
    with applied(named("limits-of-the-dtype", read_mutants(LIST.with_name("mutants_fourth_set.yaml")))):
        failure = check(program).failures[0]
        found = localized(program, failure, ExirkitCompiler(), trials=100)
    assert (found.culprit.part, found.is_repeated) == ("interpreter", True)
    assert check(found.program, oracles=("official-runtime",)).is_good
