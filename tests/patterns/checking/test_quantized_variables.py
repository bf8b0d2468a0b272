"""Variables that stand for quantized values: in every scheme, with their parameters, tried at ties and at the ends."""

from __future__ import annotations

import random

import pytest
import torch

from exirkit.ir import GraphEditor, register_quantized_decomposed
from exirkit.patterns import LoadedBook, RuleEngine, check_book, parse_book, trace_rule
from exirkit.patterns.types.parser import parse_variable
from exirkit.patterns.types.quantized import QuantizedVariable
from exirkit.patterns.types.sampling import Sampler
from exirkit.patterns.types.scanner import VariableSyntaxError

register_quantized_decomposed()
Q = torch.ops.quantized_decomposed
HEAD = "rulebook: 1\nrules:\n- id: it\n"
PERMUTED = """  vars: {x: "TYPE [*S]", p: "perm of x"}
  match: return aten.permute_copy.default(x, p)
  replace: return dequantized(aten.permute_copy.default(x.q, p), x, axis=AXIS)
"""
SAME = """  vars: {x: "TYPE [*S]"}
  match: return quantized(x, x)
  where: [CONDITIONS]
  replace: return x.q
"""


def book(text: str, **words: str) -> LoadedBook:
    for word, value in words.items():
        text = text.replace(word, value)
    return parse_book(HEAD + text, "book.yaml")


def codes(loaded: LoadedBook) -> list[str]:
    return [one.code for one in loaded.found]


class Permuted(torch.nn.Module):
    scales: torch.Tensor
    zeros: torch.Tensor

    def __init__(self, scheme: str) -> None:
        super().__init__()
        self.scheme = scheme
        self.register_buffer("scales", torch.tensor([0.5, 0.25, 2.0]))
        self.register_buffer("zeros", torch.tensor([0, 3, -128]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.scheme == "tensor":
            y = Q.dequantize_per_tensor.default(x, 0.5, -3, -128, 127, torch.int8)
        elif self.scheme == "tensors":
            y = Q.dequantize_per_tensor.tensor(x, self.scales[0], self.zeros[1], -128, 127, torch.int8)
        else:
            y = Q.dequantize_per_channel.default(x, self.scales, self.zeros, 1, -128, 127, torch.int8)
        return torch.permute_copy(y, (2, 0, 1))


@pytest.mark.parametrize("scheme", ["tensor", "tensors", "channel"])
@pytest.mark.parametrize("type_", ["q8", "qi8", "qu8"])
def test_one_rule_for_every_scheme(scheme: str, type_: str) -> None:
    loaded = book(PERMUTED, TYPE=type_, AXIS="inverse(p)[x.axis]").require_valid()
    model, x = Permuted(scheme), torch.randint(-128, 128, (2, 3, 4), dtype=torch.int8)
    editor = GraphEditor(torch.export.export(model, (x,)))
    report = RuleEngine(loaded.rules).run(editor)
    assert report.applied == ({} if type_ == "qu8" else {f"it[{scheme}]": 1})
    assert torch.equal(editor.program.module()(x), model(x))
    moved = [node for node in editor.program.graph.nodes if "permute" in str(node.target)]
    assert (moved[0].meta["val"].dtype == torch.int8) == (type_ != "qu8")


@pytest.mark.parametrize(("axis", "is_right"), [("inverse(p)[x.axis]", True), ("p[x.axis]", False), ("x.axis", False)])
def test_an_axis_that_goes_elsewhere_is_noticed(axis: str, is_right: bool) -> None:
    verdict = check_book(book(PERMUTED, TYPE="q8 per channel", AXIS=axis), trials=60, is_strict=True)
    assert verdict.is_accepted == is_right


@pytest.mark.parametrize(
    ("conditions", "is_right"),
    [
        ('"x.lo == iinfo(x.dtype).min", "x.hi == iinfo(x.dtype).max"', True),
        ('"x.lo == iinfo(x.dtype).min"', False),
        ('"x.hi == iinfo(x.dtype).max"', False),
    ],
)
@pytest.mark.parametrize("type_", ["q8 per tensor", "qi8 per channel", "q16 per tensors"])
def test_integers_outside_of_the_limits_are_tried(type_: str, conditions: str, is_right: bool) -> None:
    assert check_book(book(SAME, TYPE=type_, CONDITIONS=conditions), trials=100).is_accepted == is_right


def test_values_between_two_integers_are_tried() -> None:
    """Rounding to even and rounding half up differ only there."""
    text = """  vars: {x: "f32 [*S]", r: "qi8 params per tensor [*S]"}
  match: return quantized(x, r)
  where: "r.lo == -128 and r.hi == 127 and r.zero == 0"
  replace: |
    y = aten.floor.default(aten.add.Scalar(aten.mul.Scalar(x, 1 / r.scale), 0.5))
    return aten._to_copy.default(aten.clamp.default(y, -128, 127), dtype=i8)
  equiv: {values: normal, lsb: 0, why: NaN is undefined}
"""
    verdict = check_book(book(text), trials=60)
    assert not verdict.is_accepted
    assert "EK240" in [one.code for rule in verdict.rules for one in rule.found]


def test_conditions_on_the_scheme_choose() -> None:
    text = PERMUTED.replace("  replace", "  where: x.scheme != 'channel'\n  replace").replace(", axis=AXIS", "")
    assert [one.id for one in book(text, TYPE="q8").rules] == ["it[tensor]", "it[tensors]"]
    only = text.replace("x.scheme != 'channel'", "x.axis is not none")
    assert [one.id for one in book(only, TYPE="q8").rules] == ["it[channel]"]
    never = text.replace("x.scheme != 'channel'", "x.scheme == 'channel'")
    assert codes(book(never, TYPE="q8 per tensor")) == ["EK276"]


def test_parameters_of_a_list_of_tensors() -> None:
    text = """  vars: {p: "q8 params per tensor [*S]", xs: "list of =p.dtype [*S]", d: "axis of S"}
  match: return aten.cat.default([dequantized(x, p) for x in xs], d)
  replace: return dequantized(aten.cat.default(xs, d), p)
"""
    assert check_book(book(text), trials=60, is_strict=True).is_accepted


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (("TYPE [*S]", "q8 [*S] | none"), "EK276", "cannot be none"),
        (('p: "perm of x"', 'p: "perm of x", x_zero: int'), "EK276", "x.zero"),
        (("x.q", "x.ints"), "EK276", "no 'ints'"),
        (("x.q, p), x", "x.q, p), p"), "EK277", "quantized variable"),
        (("axis=AXIS", "axes=0"), "EK277", "no argument 'axes'"),
        (("TYPE [*S]", "q8 params [*S]"), "EK276", "not a value"),
        (("TYPE [*S]", "q8 per chanel [*S]"), "EK216", "not a scheme"),
        (("TYPE [*S]", "const q8 params [*S]"), "EK216", "parameters are of sizes"),
    ],
)
def test_wrong_uses(change: tuple[str, str], code: str, message: str) -> None:
    loaded = book(PERMUTED.replace(*change), TYPE="q8", AXIS="0")
    found = [one for one in loaded.found if one.code == code]
    assert found
    assert message in found[0].message


def test_a_place_in_a_rule_that_is_decomposed() -> None:
    text = PERMUTED.replace("return dequantized", "|\n    y = x.q\n    return dequantizzed")
    (one,) = book(text, TYPE="q8", AXIS="0").found[:1]
    assert one.location is not None
    assert one.location.line == 8


@pytest.mark.parametrize("text", list(QuantizedVariable.EXAMPLES))
def test_types_are_written_as_they_are_read(text: str) -> None:
    variable = parse_variable("x", text)
    assert parse_variable("x", str(variable)) == variable


@pytest.mark.parametrize("text", ["scales of x at", "zero_points single", "low_limit x", "q8 per", "scale of x"])
def test_types_that_are_not_whole(text: str) -> None:
    with pytest.raises(VariableSyntaxError):
        parse_variable("x", text)


def test_parameters_belong_together() -> None:
    loaded = book(PERMUTED, TYPE="q8 per channel", AXIS="0")
    sampler, rng = Sampler(loaded.rules[0].variables), random.Random(0)
    ends = set()
    for _ in range(200):
        values = sampler.sample(rng).values
        x, scale, zero = values["x_q"], values["x_scale"], values["x_zero"]
        limits = torch.iinfo(x.dtype)
        assert scale.shape == zero.shape == (x.shape[values["x_axis"]],)
        assert values["x_dtype"] == x.dtype
        assert bool(((zero >= limits.min) & (zero <= limits.max)).all())
        assert bool((scale > 0).all())
        ends |= {int(one) for one in zero} & {limits.min, limits.max}
    assert ends >= {-128, 127, 0, 255}


BATCHED = """  vars: {a: "f32 [M, K]", b: "const f32 [K, N]"}
  match: return aten.mm.default(a, b)
  replace: |
    w = aten.view_copy.default(b, [1, K, N])
    return aten.view_copy.default(aten.bmm.default(aten.view_copy.default(a, [1, M, K]), w), [M, N])
  quantized: {QUANTIZED}
  equiv: {rtol: 1.0e-5, why: other kernels sum in another order}
"""


class Product(torch.nn.Module):
    w: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("w", torch.arange(-6, 6, dtype=torch.int8).view(4, 3))
        self.register_buffer("scales", torch.tensor([0.5, 0.25, 2.0]))
        self.register_buffer("zeros", torch.tensor([0, 0, 1]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = Q.dequantize_per_channel.default(self.w, self.scales, self.zeros, 1, -128, 127, torch.int8)
        return Q.quantize_per_tensor.default(x @ w, 0.5, -3, -128, 127, torch.int8)


def test_a_variant_moves_integers() -> None:
    loaded = book(BATCHED, QUANTIZED="b: per_channel(1 -> 2), result: per_tensor").require_valid()
    assert [one.id for one in loaded.rules] == ["it", "it[quantized][tensor]", "it[quantized][tensors]"]
    assert {one.rule.origin for one in loaded.rules} == {"it"}
    editor = GraphEditor(torch.export.export(Product(), (torch.randn(2, 4),)))
    report = RuleEngine(loaded.rules[1:]).run(editor)
    assert report.applied == {"it[quantized][tensor]": 1}
    x = torch.randn(2, 4)
    assert int((editor.program.module()(x).int() - Product()(x).int()).abs().max()) <= 1
    views = [node.meta["val"].dtype for node in editor.program.graph.nodes if "view" in str(node.target)]
    assert sorted(map(str, views)) == ["torch.float32", "torch.int8", "torch.int8"]


@pytest.mark.parametrize(
    ("quantized", "is_right"),
    [
        ("b: per_channel(1 -> 2), result: any", True),
        ("a: any, b: per_tensor", True),
        ("b: per_channel(1 -> 1)", False),
        ("b: per_channel(0 -> 2), result: any", False),
    ],
)
def test_the_dim_of_a_variant_is_tried(quantized: str, is_right: bool) -> None:
    verdict = check_book(book(BATCHED, QUANTIZED=quantized), trials=40, is_strict=True)
    assert verdict.is_accepted == is_right, [one.message for rule in verdict.rules for one in rule.found]


@pytest.mark.parametrize(
    ("quantized", "change", "code"),
    [
        ("c: any", None, "EK278"),
        ("b: per_row", None, "EK278"),
        ("result: per_channel(0 -> 0)", None, "EK278"),
        ("b: any", ("const f32 [K, N]", "const f32 [K, N] | none"), "EK278"),
        ("b: any", ("  match", "  let: c = b * 2\n  match"), "EK278"),
        ("b: any", ("w = aten.view_copy.default(b, [1, K, N])", "w = aten.unsqueeze_copy.default(a @ b, 0)"), "EK221"),
        ("result: any", ("return aten.mm.default(a, b)", "return aten.mm.default(a, b), aten.exp.default(b)"), "EK278"),
    ],
)
def test_variants_that_there_are_not(quantized: str, change: tuple[str, str] | None, code: str) -> None:
    assert code in codes(book(BATCHED.replace(*change) if change else BATCHED, QUANTIZED=quantized))


def test_a_trace_names_the_shorter_form() -> None:
    def pattern(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(Q.dequantize_per_tensor.default(x, 0.5, 3, -128, 127, torch.int8))

    made = trace_rule(pattern, torch.abs, {"x": torch.zeros(2, 3, dtype=torch.int8)}, rule_id="it")
    assert "a variable typed `q8 [*S]`" in made.text
