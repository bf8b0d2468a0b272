"""Acts have what they promise, and show a bug of the kind that they are for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from benchmarks.mutants.fresh_mutants import LIST, read_mutants
from tests.fuzz.generation.test_merged_calls import program_with

from exirkit.fuzz.compilers import ExirkitCompiler
from exirkit.fuzz.generation import Policy
from exirkit.fuzz.generation.acts.analysed import analysed_calls
from exirkit.fuzz.generation.acts.bounds import bounded_arithmetic, bounded_integers
from exirkit.fuzz.generation.acts.chains import converted_again
from exirkit.fuzz.generation.acts.comparing import comparisons
from exirkit.fuzz.generation.acts.large import large_values
from exirkit.fuzz.generation.acts.layouts import laid_out_results
from exirkit.fuzz.generation.acts.nearly_equal import equal_lists
from exirkit.fuzz.generation.acts.numbers import strange_numbers
from exirkit.fuzz.generation.acts.options import options
from exirkit.fuzz.generation.acts.sizes import calls_of_two_sizes
from exirkit.fuzz.generation.acts.ties import rounded_ties
from exirkit.fuzz.generation.acts.windows import gradients_of_maxima, strided_windows
from exirkit.fuzz.generation.acts.wrapping import wrapping_integers
from exirkit.fuzz.generation.acts.written import written_by_bodies, written_in_place
from exirkit.fuzz.generation.generating import generate
from exirkit.fuzz.generation.method.scope import Scope
from exirkit.fuzz.generation.operators.counting import data_sized
from exirkit.fuzz.generation.operators.quantizing import SCHEMES
from exirkit.fuzz.mutants import Mutant, applied
from exirkit.fuzz.mutants.model import named
from exirkit.fuzz.oracles import check
from exirkit.fuzz.triage import find_culprit

_SEVEN_BITS = Mutant(
    id="seven-bits",
    part="pass",
    culprits=("legalize-integers",),
    doc="The highest bit of an unsigned exponent is not examined.",
    module="passes.legalize.integers",
    function="_power_of_tensors",
    old="range(bits or _MOST_BITS)",
    new="range(min(bits or _MOST_BITS, _MOST_BITS))",
    program="",
)


def _other_book(name: str, old: str, new: str) -> Mutant:
    text = 'return (_folder() / f"{path}.yaml").read_text(encoding="utf-8")'
    return Mutant(
        id=name,
        part="rules",
        culprits=("simplify",),
        doc="A rule is applied where it must not be.",
        module="patterns.books.shipped",
        function="book_text",
        old=text,
        new=f"{text}.replace({old!r}, {new!r})",
        caches=("passes.pipelines.pipeline:_shipped",),
        program="",
    )


_NEGATED = _other_book("negated", '{x: "i* [~S]", y: "=x [~S]"', '{x: "f*|i* [~S]", y: "=x [~S]"')
_LIMIT = _other_book("limit", "range(x).hi < n", "range(x).hi <= n")

_KNOWN = read_mutants()
_OTHERS = read_mutants(LIST.with_name("mutants_fourth_set.yaml"))
_FIFTH = read_mutants(LIST.with_name("mutants_fifth_set.yaml"))
_SIXTH = read_mutants(LIST.with_name("mutants_sixth_set.yaml"))
_SEVENTH = read_mutants(LIST.with_name("mutants_seventh_set.yaml"))
_TIES = named("zero-point-before-rounding", _KNOWN)
_START = named("strided-copy-from-the-start", _KNOWN)


def test_powers_products_and_quotients_of_all_widths() -> None:
    programs = [program_with(wrapping_integers, seed) for seed in range(150)]
    calls = Counter(call.op for one in programs for call in one.methods[0].steps)
    assert min(calls[f"aten.{name}"] for name in ("pow.Tensor_Tensor", "pow.Scalar", "mul.Tensor", "fmod.Tensor")) >= 5
    dtypes = Counter(str(given.type.dtype) for one in programs for given in one.methods[0].inputs)
    assert min(dtypes[f"torch.{name}"] for name in ("int64", "int32", "int16", "int8", "uint8")) >= 10


def test_comparisons_of_given_numbers_are_compared_exactly() -> None:
    made = [program_with(comparisons, seed) for seed in range(40)]
    assert not any(one.undecided or one.inexact for one in made)
    text = " ".join(str(one.runs) for one in made)
    assert "nan" in text
    assert "inf" in text


@pytest.mark.parametrize(
    ("act", "one", "part", "op"),
    [
        (wrapping_integers, _SEVEN_BITS, "legalize-integers", "aten.pow."),
        (comparisons, _NEGATED, "simplify", "aten.gt.Tensor"),
        (bounded_integers, _LIMIT, "simplify", "aten.remainder.Scalar"),
        (rounded_ties, _TIES, "interpreter", "quantized_decomposed.quantize_per_tensor"),
        (strided_windows, _START, "interpreter", "aten.as_strided_copy"),
        (rounded_ties, named("zero-point-cut-off", _OTHERS), "interpreter", "quantized_decomposed.choose_qparams"),
        (rounded_ties, named("range-without-zero", _OTHERS), "interpreter", "quantized_decomposed.choose_qparams"),
        (written_in_place, named("place-written-to-widens", _OTHERS), "functionalize", "aten."),
        (written_by_bodies, named("what-the-second-branch-writes", _OTHERS), "functionalize", "cond"),
        (large_values, named("offsets-of-sixteen-bits", _OTHERS), "emitter", "aten."),
        (converted_again, named("integers-survive-any-float", _OTHERS), "simplify", "aten._to_copy"),
        (bounded_arithmetic, named("loops-that-stay-where-they-begin", _SIXTH), "simplify", "while_loop"),
        (calls_of_two_sizes, named("sizes-that-vary-are-alike", _SIXTH), "decompose-to-core", "aten.mish.default"),
        (equal_lists, named("lists-of-any-kind", _FIFTH), "emitter", "aten.cat"),
        (options, named("mean-without-its-dims", _SIXTH), "legalize-special-values", "aten.var.correction"),
        (options, named("windows-that-move-by-one", _SIXTH), "legalize-volumes", "aten.avg_pool3d"),
        (
            gradients_of_maxima,
            named("one-gradient-where-windows-overlap", _SIXTH),
            "decompose-to-core",
            "aten.max_pool2d_with_indices_backward",
        ),
        (analysed_calls, named("conditions-of-facts-are-not-asked", _SEVENTH), "simplify", "aten."),
        (strange_numbers, named("least-integer-does-not-fit", _SEVENTH), "emitter", "aten."),
        (
            SCHEMES["embedding"],
            named("axis-told-by-its-size", _SEVENTH),
            "fuse-quantized-embeddings",
            "quantized_decomposed.",
        ),
        (data_sized, named("mask-of-as-many-dims", _OTHERS), "decompose-counting", "aten.masked_select"),
    ],
    ids=lambda one: one.id if isinstance(one, Mutant) else None,
)
def test_a_bug_of_the_kind_is_found(act: Callable[[Scope], None], one: Mutant, part: str, op: str) -> None:
    chosen = one.compiler or ({"kernels": "official"} if part.startswith("legalize-") else {})
    compiler = ExirkitCompiler(**chosen)  # type: ignore[arg-type]
    features = ("dynamic",) if act is calls_of_two_sizes else ()
    made = [program_with(act, seed, *features) for seed in range(120)]
    made = [program for program in made if any(call.op.startswith(op) for call in program.methods[0].steps)]
    with applied(one):
        found = next((program for program in made if check(program, compiler=compiler).failures), None)
        assert found is not None
        failure = check(found, compiler=compiler).failures[0]
        assert find_culprit(found, failure, compiler=compiler).part == part
    assert check(found, compiler=compiler).is_good


def test_what_is_carried_twice_is_in_both_places() -> None:
    made = [generate(seed, Policy(focus=frozenset({"while_loop"}))) for seed in range(150)]
    loops = [(one, call) for one in made for call in one.methods[0].steps if call.op == "while_loop"]
    twice = [one for one, call in loops if len(set(call.bodies[1].outputs)) < len(call.bodies[1].outputs)]
    with applied(named("returned-twice-and-carried-once", _SEVENTH)):
        found = next((one for one in twice if check(one).failures), None)
        assert found is not None
        assert find_culprit(found, check(found).failures[0]).part == "emitter"
    assert check(found).is_good


def test_results_that_do_not_keep_their_layout_are_found() -> None:
    """Which pass is blamed is another matter: the layout gets lost behind the pass that should have stated it."""
    made = [program_with(laid_out_results, seed) for seed in range(60)]
    with applied(named("channels-last-is-not-stated", _FIFTH)):
        found = [one for one in made if any(each.oracle == "output-layout" for each in check(one).failures)]
    assert len(found) > 5
    assert check(found[0]).is_good


@pytest.mark.parametrize("name", ["index-of-another-table", "columns-from-the-end-of-the-rows"])
def test_bugs_of_rows_and_columns_are_found(name: str) -> None:
    compiler = ExirkitCompiler(kernels="official")
    made = [generate(seed, Policy(focus=frozenset({"large_state"}))) for seed in range(150)]
    rows: list[list[Any]] = [
        [call.args for call in one.methods[0].steps if call.op == "aten.index_put.default"] for one in made
    ]
    if name.startswith("columns"):
        made = [one for one, calls in zip(made, rows, strict=True) if any(args[1][0] is None for args in calls)]
    else:
        made = [one for one, calls in zip(made, rows, strict=True) if len(calls) > 1]
    with applied(named(name, _FIFTH)):
        found = next((program for program in made if check(program, compiler=compiler).failures), None)
        assert found is not None
        failure = check(found, compiler=compiler).failures[0]
        assert find_culprit(found, failure, compiler=compiler).part == "write-in-place"
    assert check(found, compiler=compiler).is_good
