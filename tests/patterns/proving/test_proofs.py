"""What is proved is right, what is wrong is refuted by a program, and certificates hold for the text they are of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.thoroughness import TRIES_ALL

from exirkit.ir import ModelError, UsageError
from exirkit.patterns import (
    Certificate,
    LoadedBook,
    backend_books,
    certificate_of,
    certificate_text,
    load_book,
    named_books,
    parse_book,
    prove_rules,
    read_certificates,
    shipped_books,
    shipped_certificates,
    unconfirmed_certificate,
    valid_certificates,
)

pytest.importorskip("z3")

from exirkit.patterns.proving.prover import prove

HERE = Path(__file__).parent.parent

RULE = """rulebook: 1
rules:
- id: one
  vars: {{{vars}}}
  match: return {match}
  replace: return {replace}
{more}
"""


def book_of(variables: str, match: str, replace: str, more: str = "") -> LoadedBook:
    return parse_book(RULE.format(vars=variables, match=match, replace=replace, more=more)).require_valid()


def shown(variables: str, match: str, replace: str, more: str = "") -> Certificate:
    book = book_of(variables, match, replace, more)
    return certificate_of(book.rules[0], book)


PERMUTE = "aten.permute_copy.default"
VIEW = "aten.view_copy.default"
SLICE = "aten.slice_copy.Tensor"
LINEAR = "aten.linear.default(x, w)"
PRODUCT = f"aten.mm.default(x, {PERMUTE}(w, [1, 0]))"
NEGATED = "aten.neg.default(aten.exp.default(x))"


TOLERANT = "  equiv: {rtol: 1.0e-4, atol: 1.0e-5}"


WEIGHTS = 'x: "f32 [N, C, H, W]", w: "f32 [O, C, K, L]"'
IMAGES = f'{WEIGHTS}, s: "f32 [O, 1, 1]"'
CONVOLVED = "aten.convolution.default(x, {}, None, [2, 1], [1, 0], [1, 1], False, [0, 0], 1)"
SCALED = "aten.mul.Tensor(w, aten.view_copy.default(s, [O, 1, 1, 1]))"
SUM = "aten.sum.dim_IntList({}, [1])"
PULLED = f"aten.mul.Tensor({SUM.format('x')}, n)"
MEAN = "aten.mul.Scalar(aten.sum.dim_IntList(x, [1], True), 1.0 / B)"
NORMAL = "  equiv: {rtol: 1.0e-3, atol: 1.0e-3, values: normal, why: one}"
FILLED = f"  where: B > 0\n{NORMAL}"
RAISED = "aten.exp.default(aten.sub.Tensor(x, aten.amax.default(x, [1], True)))"
SHIFTED = f"aten.div.Tensor({RAISED}, aten.sum.dim_IntList({RAISED}, [1], True))"

BYTES = 'q: "i8 [*S]", s: "float in [0.001, 10]", z: "int in [-128, 127]"'
QUANTIZE = "quantized_decomposed.quantize_per_tensor.default({}, s, {}, -128, 127, i8)"
DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default({}, s, {}, -128, 127, i8)"
VALUE = DEQUANTIZE.format("q", "z")
ROUNDED = QUANTIZE.format(VALUE, "z")
POOLED = "aten.max_pool2d.default({}, [3, 2], [2, 2], [1, 1], [1, 1], True)"
SIZED = "aten.upsample_bilinear2d.vec({}, [3, 4], False, none)"
NEGATED_BYTES = "aten.sub.Scalar(aten.neg.default(aten._to_copy.default(q, dtype=i16)), -2 * z)"
NEGATIVE = f"aten._to_copy.default(aten.clamp.default({NEGATED_BYTES}, -128, 127), dtype=i8)"
SINH = "aten.mul.Scalar(aten.sub.Tensor(aten.exp.default(x), aten.exp.default(aten.neg.default(x))), 0.5)"
LAST = "aten.permute_copy.default(x, [0, 3, 1, 2])"
TWICE = "aten.amax.default(aten.amax.default(x, [0], True), [{}], True)"


@pytest.mark.parametrize(
    ("variables", "match", "replace", "more", "arithmetic", "is_of_all_ranks"),
    [
        ('x: "any [A, B, C]"', f"{PERMUTE}({PERMUTE}(x, [1, 2, 0]), [2, 0, 1])", "x", "", "free", True),
        ('x: "f32 [*S]"', NEGATED, NEGATED, "", "free", True),
        ('x: "f16 [*S]"', "aten.neg.default(aten.neg.default(x))", "x", "  equiv: {mode: exact}", "bits", True),
        ('x: "i8 [*S]"', "aten.sub.Tensor(x, aten.neg.default(x))", "aten.add.Tensor(x, x)", "", "free", True),
        ('x: "any [A, 6]"', f"{VIEW}(x, [A, 2, 3])", f"{VIEW}({VIEW}(x, [2 * A, 3]), [A, 2, 3])", "", "free", True),
        ('x: "any [P, *S]", n: "int in [0, 9]"', f"{SLICE}(x, 0, n, P, 1)", "x", "  where: n == 0", "free", False),
        ('x: "f32 [N, K]", w: "f32 [M, K]"', LINEAR, PRODUCT, TOLERANT, "reals", True),
        (IMAGES, f"aten.mul.Tensor({CONVOLVED.format('w')}, s)", CONVOLVED.format(SCALED), TOLERANT, "reals", True),
        ('x: "f32 [A, B]", n: "f32 []"', f"{SUM.format('aten.mul.Tensor(x, n)')}", PULLED, NORMAL, "reals", True),
        ('x: "f32 [A, B]"', "aten.mean.dim(x, [1], True)", MEAN, FILLED, "reals", True),
        (BYTES, ROUNDED, "q", "", "free", True),
        (BYTES, QUANTIZE.format(f"aten.neg.default({VALUE})", "z"), NEGATIVE, "", "bits", True),
        (BYTES, f"aten.relu.default({VALUE})", DEQUANTIZE.format("aten.clamp.default(q, z)", "z"), "", "bits", True),
        (BYTES, f"aten.mul.Scalar({VALUE}, 2.0)", VALUE.replace("s,", "s * 2.0,"), TOLERANT, "reals", True),
        ('x: "f32 [*S]"', "aten.sinh.default(x)", SINH, NORMAL, "reals", True),
        ('x: "f32 [A, B]"', "aten.amax.default(x, [0, 1], True)", TWICE.format(1), NORMAL, "reals", True),
        ('x: "any [*S]", p: "perm of x"', f"{PERMUTE}({PERMUTE}(x, p), inverse(p))", "x", "", "free", False),
    ],
)  # fmt: skip
def test_proved(variables: str, match: str, replace: str, more: str, arithmetic: str, *, is_of_all_ranks: bool) -> None:
    found = shown(variables, match, replace, more)
    assert found.status == "proved", found.reason
    assert found.arithmetic == arithmetic
    assert found.is_of_all_ranks == is_of_all_ranks
    assert found.paths > 0


@pytest.mark.parametrize(
    ("variables", "match", "replace", "more"),
    [
        ('x: "any [*S]", p: "perm of x"', f"{PERMUTE}({PERMUTE}(x, p), p)", "x", ""),
        ('x: "i8 [*S]"', "aten.relu.default(aten.abs.default(x))", "aten.abs.default(x)", ""),
        ('x: "f32 [*S]"', "aten.sub.Tensor(x, x)", "aten.mul.Scalar(x, 0)", "  equiv: {mode: exact}"),
        ('x: "f32 [*S]"', "aten.sub.Tensor(x, x)", "aten.full_like.default(x, 0)", ""),
        ('x: "any [P, *S]", n: "int in [0, 9]"', "aten.slice_copy.Tensor(x, 0, n, P, 1)", "x", ""),
        ('x: "any [A, B]"', "aten.view_copy.default(x, [B, A])", f"{PERMUTE}(x, [1, 0])", ""),
        ('x: "f32 [~S]", y: "f32 [~S]", S: "dims [*D]"', "aten.add.Tensor(x, aten.mul.Scalar(y, 0))", "x", ""),
        (IMAGES, f"aten.mul.Tensor({CONVOLVED.format('w')}, s)", CONVOLVED.format("w"), TOLERANT),
        (BYTES, QUANTIZE.format(VALUE, "0"), "q", ""),
        (f'{BYTES}, t: "float in [0.001, 10]"', ROUNDED.replace("i8), s,", "i8), t,"), "q", ""),
        (BYTES.replace("0.001, 10", "1e-44, 1e-42"), ROUNDED, "q", ""),
        (BYTES, f"aten.relu.default({VALUE})", DEQUANTIZE.format("aten.clamp.default(q, 0)", "z"), ""),
        (BYTES, f"aten.mul.Scalar({VALUE}, 2.0)", VALUE.replace("s,", "s * 3.0,"), TOLERANT),
        ('x: "f32 [*S]"', "aten.cosh.default(x)", SINH, NORMAL),
        ('x: "f32 [A, B, C]"', "aten.amax.default(x, [0, 1], True)", TWICE.format(2), NORMAL),
        ('x: "f32 [A, B, C, D]"', SIZED.format(LAST), f"{PERMUTE}({SIZED.format('x')}, [0, 3, 1, 2])", NORMAL),
        ('x: "f32 [A, B, C, D]"', POOLED.format("x"), POOLED.format("x").replace("True", "False"), ""),
        (WEIGHTS, CONVOLVED.format("w"), CONVOLVED.format("w").replace("[2, 1]", "[1, 1]"), TOLERANT),
        (
            'x: "f32 [A, B]"',
            "aten._softmax.default(x, 1, False)",
            SHIFTED.replace("[1], True)))", "[0], True)))", 1),
            TOLERANT,
        ),
        (
            'x: "f32 [A, B]", n: "f32 [A, B]"',
            SUM.format("aten.mul.Tensor(x, n)"),
            f"aten.mul.Tensor({SUM.format('x')}, {SUM.format('n')})",
            TOLERANT,
        ),
    ],
)
def test_not_proved(variables: str, match: str, replace: str, more: str) -> None:
    found = shown(variables, match, replace, more)
    assert found.status in ("refuted", "open"), found
    assert found.reason


def proof_of(variables: str, match: str, replace: str, more: str = "") -> tuple[str, str]:
    """Return what the prover says of a rule, and why; no program is searched that refutes it."""
    found = prove(book_of(variables, match, replace, more).rules[0])
    return found.status, found.reason or ""


# Of the sum of nothing only the shape is used, which both sides have.
OF_ROWS = f"aten.full_like.default({SUM.format('x')}, 0)"
OF_IMAGES = "aten.full_like.default(aten.expand_copy.default(aten.sum.dim_IntList(x, [2, 3], True), [N, C, 3, 4]), 0)"


@pytest.mark.parametrize(
    ("variables", "match", "call", "enough", "too_little"),
    [
        *(('x: "f32 [A, B]"', OF_ROWS, f"aten.{name}.default(x, [1])", "B > 0", "A > 0") for name in ("amax", "amin")),
        *(
            ('x: "f32 [N, C, H, W]"', OF_IMAGES, call, "H > 0 and W > 0", "W > 0 and N > 0 and C > 0")
            for call in (
                SIZED.format("x"),
                "aten._adaptive_avg_pool2d.default(x, [3, 4])",
                "aten.upsample_nearest2d.vec(x, [3, 4], none)",
            )
        ),
    ],
)
def test_what_kernels_need_of_sizes_is_to_follow(
    variables: str, match: str, call: str, enough: str, too_little: str
) -> None:
    """A replacement that raises for empty tensors is right only where a condition keeps these away."""
    made = f"aten.full_like.default({call}, 0)"
    for condition in ("", f"  where: {too_little}"):
        status, reason = proof_of(variables, match, made, condition)
        assert status == "open"
        assert "the replacement needs" in reason
    assert proof_of(variables, match, made, f"  where: {enough}") == ("proved", "")


TWO_IMAGES = 'x: "f32 [N, C, H, W]", y: "f32 [N, C, H, W]"'
TWO_GRIDS = 'x: "f32 [N, C, H, W]", y: "f32 [N, K, L, 2]", g: "f32 [N, K, L, 2]"'
SAMPLED = "aten.grid_sampler_2d.default({}, {}, 0, 0, False)"


@pytest.mark.parametrize(
    ("variables", "operand", "call"),
    [
        (TWO_GRIDS, "g", SAMPLED.format("x", "{}")),
        (TWO_IMAGES + ', g: "f32 [N, K, L, 2]"', "x", SAMPLED.format("{}", "g")),
        (TWO_IMAGES, "x", SIZED),
        (TWO_IMAGES, "x", "aten._adaptive_avg_pool2d.default({}, [3, 4])"),
        (TWO_IMAGES, "x", "aten.upsample_nearest2d.vec({}, [3, 4], none)"),
        (TWO_IMAGES, "x", "aten.reflection_pad2d.default({}, [1, 0, 2, 1])"),
    ],
)
def test_what_is_not_looked_into_depends_on_all_of_its_operands_and_on_nothing_else(
    variables: str, operand: str, call: str
) -> None:
    size = "2" if operand == "g" else "W"
    both = f"aten.cat.default([{operand}, y], 3)"
    same, other = f"{SLICE}({both}, 3, 0, {size}, 1)", f"{SLICE}({both}, 3, {size}, 2 * {size}, 1)"
    assert proof_of(variables, call.format(same), call.format(operand), NORMAL) == ("proved", "")
    assert proof_of(variables, call.format(other), call.format(operand), NORMAL)[0] == "open"


@pytest.mark.parametrize("shape", ["[]", "[*S]"])
@pytest.mark.parametrize(
    ("condition", "replace", "status"),
    [
        ("all_eq(c, 1)", "x", "proved"),
        ("all_eq(c, -1)", "aten.neg.default(x)", "proved"),
        ("all_eq(c, 2)", "aten.add.Tensor(x, x)", "proved"),
        ("all_eq(c, 2)", "x", "open"),
        ("not all_eq(c, 1)", "x", "open"),
        ("all_eq(c, 1) or all_eq(c, 2)", "x", "open"),
    ],
)
def test_what_conditions_say_of_elements(shape: str, condition: str, replace: str, status: str) -> None:
    variables, more = f'x: "f32 [*S]", c: "const f32 {shape}"', f"  where: {condition}\n{NORMAL}"
    assert proof_of(variables, "aten.mul.Tensor(x, c)", replace, more)[0] == status


def test_a_nan_does_not_refute_what_claims_nothing_of_it() -> None:
    # Of quantizing a NaN nothing is known, and the rule says so.
    clamped = f"aten.clamp.default({QUANTIZE.format('x', 'z')}, z)"
    variables = BYTES.replace('q: "i8', 'x: "f32')
    normal = "  equiv: {values: normal, lsb: 0, why: one}"
    assert shown(variables, QUANTIZE.format("aten.relu.default(x)", "z"), clamped, normal).status == "proved"


def test_fewer_dims_where_there_are_many_combinations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exirkit.patterns.proving.paths.MOST_PATHS", 100)
    book = book_of('x: "any [*S]", p: "perm of x", d: "axes of x"', f"{PERMUTE}(aten.flip.default(x, d), p)", FLIPPED)
    found = certificate_of(book.rules[0], book)
    assert found.most_dims == 2
    assert found.status == "proved"
    assert "0 to 2" in found.ranks
    assert unconfirmed_certificate(found, book.rules[0], book) is None


FLIPPED = f"aten.flip.default({PERMUTE}(x, p), [inverse(p)[norm(i, x)] for i in d])"


def test_refuted_by_a_program_with_its_values() -> None:
    found = shown('x: "i8 [*S]"', "aten.relu.default(aten.abs.default(x))", "aten.abs.default(x)")
    assert found.status == "refuted"
    assert "-128" in (found.reason or "")


def test_a_pattern_that_never_has_elements_proves_nothing() -> None:
    variables = 'a: "f32 [N, N]", c: "f32 [N, K]"'
    match = "aten.cat.default([aten.cat.default([a, a], 0), c], 1)"
    found = shown(variables, match, "aten.cat.default([a, a, c], 1)")
    assert found.status == "open"
    assert "no elements" in (found.reason or "")


def test_one_dim_is_not_a_proof_for_all_ranks_where_sizes_are_named() -> None:
    # Right for no dim and for one, wrong for two: it may not count as pointwise.
    variables = 'x: "f32 [*S]"'
    found = shown(
        variables,
        "aten.relu.default(x)",
        "aten.relu.default(aten.view_copy.default(x, shape(x)[:1] + shape(x)[1:][::-1]))",
    )
    assert found.status != "proved"


@pytest.mark.parametrize("name", ["known_bad_rules.yaml", "unsound_rules.yaml"])
def test_no_wrong_rule_is_proved(name: str) -> None:
    # `python -m benchmarks.rules.proofs` tries all of them, which takes minutes.
    book = load_book(HERE / name)
    chosen = [rule.id for rule in book.rules][::5]
    wrong = [one.rule for one in prove_rules(book, chosen, seconds=4) if one.status in ("proved", "bounded")]
    assert not wrong


def test_certificates_hold_for_their_text_only() -> None:
    good = book_of('x: "any [A, B]"', f"{PERMUTE}({PERMUTE}(x, [1, 0]), [1, 0])", "x")
    bad = book_of('x: "any [A, B]"', f"{PERMUTE}({PERMUTE}(x, [1, 0]), [0, 1])", "x")
    one = certificate_of(good.rules[0], good)
    text = certificate_text([one])
    read = read_certificates(text.encode(), "one.json")
    assert read.rules == (one,)
    assert valid_certificates(good, read) == {"one": one}
    assert unconfirmed_certificate(one, good.rules[0], good) is None
    # Another rule under the same id: the hash differs.
    assert valid_certificates(bad, read) == {}
    assert "changed" in str(unconfirmed_certificate(one, bad.rules[0], bad))
    # A forged one: the hash is right, and proving it again is not.
    wrong = certificate_of(bad.rules[0], bad)
    assert not wrong.is_proved
    forged = one.model_copy(update={"hash": wrong.hash})
    assert "status" in str(unconfirmed_certificate(forged, bad.rules[0], bad))
    digest = one.model_copy(update={"digest": "0" * 20})
    assert "digest" in str(unconfirmed_certificate(digest, good.rules[0], good))


@pytest.mark.parametrize("data", [b"", b"[]", b'{"proofs": 2}', b'{"proofs": 1, "rules": [{"rule": "a"}]}', b"\xff"])
def test_damaged_certificates(data: bytes) -> None:
    with pytest.raises(ModelError, match="EK281"):
        read_certificates(data, "broken.json")


def test_without_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exirkit.patterns.proving.campaign.find_spec", lambda name: None)
    book = book_of('x: "f32 [*S]"', NEGATED, NEGATED)
    made = Certificate(rule="one", hash="0" * 20, status="proved")
    with pytest.raises(UsageError, match="EK280"):
        next(prove_rules(book))
    # Even if the text of the rule has changed, which needs no solver to be seen: nothing was confirmed.
    with pytest.raises(UsageError, match="EK280"):
        unconfirmed_certificate(made, book.rules[0], book)


def test_shipped_certificates_are_those_of_the_books() -> None:
    proved = 0
    for name in (*shipped_books(), *named_books(), *backend_books()):
        book = load_book(name)
        stored = shipped_certificates(name)
        valid = valid_certificates(book, stored)
        assert len(valid) == len(stored.rules), f"exirkit rule prove {name} --certificates FILE --update"
        proved += sum(one.is_proved for one in valid.values())
    assert proved >= 45


MOST_PATHS = 10_000 if TRIES_ALL else 2


@pytest.mark.parametrize("name", [*shipped_books(), *named_books(), *backend_books()])
def test_shipped_certificates_hold(name: str) -> None:
    # Of each book the last one that takes little time, or all.
    book = load_book(name)
    found = valid_certificates(book, shipped_certificates(name)).values()
    proved = [one for one in found if one.is_proved and one.paths <= MOST_PATHS]
    for one in proved if TRIES_ALL else proved[-1:]:
        assert unconfirmed_certificate(one, book.rule(one.rule), book) is None


def test_the_file_is_deterministic() -> None:
    made = [certificate_text(prove_rules(load_book("canonicalize"), ["canonicalize.t-to-permute"])) for _ in range(2)]
    assert made[0] == made[1]
    assert json.loads(made[0])["rules"][0]["status"] == "proved"
