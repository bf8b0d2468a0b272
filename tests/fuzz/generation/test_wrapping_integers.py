"""Integers that wrap around are in programs, and a pass that leaves out a bit of them is found."""

from __future__ import annotations

from collections import Counter

from tests.fuzz.generation.test_merged_calls import program_with

from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.generation.acts.wrapping import wrapping_integers
from exirkit.fuzz.mutants import Mutant, applied
from exirkit.fuzz.oracles import check
from exirkit.fuzz.triage import find_culprit

_SEVEN_BITS = Mutant(
    id="seven-bits",
    part="pass",
    culprits=("legalize-integers",),
    doc="The highest bit of an unsigned exponent is not examined.",
    module="passes.legalize.integers",
    function="_power_of_tensors",
    old="bits = 8 if dtype is torch.uint8 else _MOST_BITS",
    new="bits = _MOST_BITS",
    program="",
)


def test_powers_products_and_quotients_of_all_widths() -> None:
    programs = [program_with(wrapping_integers, seed) for seed in range(150)]
    calls = Counter(call.op for one in programs for call in one.methods[0].steps)
    assert min(calls[f"aten.{name}"] for name in ("pow.Tensor_Tensor", "pow.Scalar", "mul.Tensor", "fmod.Tensor")) >= 5
    dtypes = Counter(str(given.type.dtype) for one in programs for given in one.methods[0].inputs)
    assert min(dtypes[f"torch.{name}"] for name in ("int64", "int32", "int16", "int8", "uint8")) >= 10


def test_a_bit_that_is_left_out_is_found() -> None:
    compiler = ExirkitCompiler(kernels="official")
    for seed in range(300):
        program = program_with(wrapping_integers, seed)
        ops = {call.op for call in program.methods[0].steps}
        if not ops & {"aten.pow.Tensor_Tensor", "aten.pow.Scalar"}:
            continue
        with applied(_SEVEN_BITS) as reach:
            verdict = check(program, compiler=compiler)
            if verdict.failures:
                assert reach.count
                assert find_culprit(program, verdict.failures[0], compiler=compiler).part == "legalize-integers"
                break
    else:
        raise AssertionError("no program shows it")
    assert check(program, compiler=compiler).is_good
