"""Parts other than passes are blamed for what they raise or reject: verifiers, and emission inside of planning."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from exirkit.fuzz.compilers import ExirkitCompiler, LoweringTrace
from exirkit.fuzz.mutants import Mutant, applied
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import parse_program
from exirkit.fuzz.triage import find_culprit
from exirkit.fuzz.triage.localization import _first_of_the_last
from exirkit.passes.stage_events import StageEvent

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
_SAWTOOTH = """program(1)
s0 = symbol(2, 8)

def forward(x: "f32[s0]", y: "f32[1]"):
    a = aten.neg.default(x)
    b = aten.expand_copy.default(y, [s0 - 2 * (s0 // 2) + 1])
    c = aten.abs.default(b)
    return a, c

run("forward", s0=3, x=dyadic(1), y=dyadic(2))
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
}


def test_the_part_that_is_wrong_is_blamed() -> None:
    for part, one in _CASES.items():
        program, compiler = parse_program(one.program), ExirkitCompiler()
        assert check(program, compiler=compiler).is_good
        with applied(one):
            failure = check(program, compiler=compiler).failures[0]
            assert find_culprit(program, failure, compiler=compiler).part == part
        assert (failure.oracle == "operand-layouts") == (part in ("eliminate-views", "legalize-dim-order"))


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
