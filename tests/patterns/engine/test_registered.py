"""Predicates and builders in Python: registered, marked as opaque, tried like any rule, and blamed by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.patterns.exported_programs import exported, outputs, targets

from exirkit.ir import GraphEditor, UsageError, copy_program
from exirkit.patterns import BuilderTools, LoadedBook, RuleEngine, builder, check_book, parse_book, predicate
from exirkit.patterns.functions import registered as registry
from exirkit.patterns.functions.words import WORDS

ATEN = torch.ops.aten


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    """Leave no word behind."""
    words, builders = dict(WORDS), dict(registry._BUILDERS)
    yield
    WORDS.clear()
    WORDS.update(words)
    registry._BUILDERS.clear()
    registry._BUILDERS.update(builders)


def book(text: str) -> LoadedBook:
    return parse_book("rulebook: 1\nrules:\n" + text, "book.yaml")


POWERS = """
- id: square
  vars: {x: "f32 [*S]", n: "int in [-4, 4]"}
  match: return aten.pow.Tensor_Scalar(x, n)
  where: is_two(n)
  replace: return aten.mul.Tensor(x, x)
"""
SCALE = """
- id: scale
  vars: {x: "f32 [*B, M, K]", w: "const f32 [N, K]", c: "float in [0.5, 2.0]"}
  match: return aten.mul.Scalar(aten.linear.default(x, w), c)
  replace: return build.scaled_linear(x, w, factor=c)
  equiv: {rtol: 1.0e-4, atol: 1.0e-4}
"""


def is_two(n: int) -> bool:
    """Whether a number is two."""
    return n == 2


def scaled_linear(make: BuilderTools, x: Any, w: Any, *, factor: float) -> Any:
    """Scale the weight and not the result."""
    weight = make.value(w)
    if weight is None:
        return make.reject("the weight is not known")
    return make.call("aten.linear.default", x, weight * factor)


def test_a_predicate_is_a_word() -> None:
    predicate("is_two", pure=True)(is_two)
    loaded = book(POWERS).require_valid()
    assert loaded.rules[0].opaque == ("is_two",)
    x = torch.randn(3)
    editor = exported(lambda _, x: (x**2 + x**3,), x)
    before = outputs(editor.program, x)
    assert RuleEngine(loaded.rules).run(editor).applied == {"square": 1}
    torch.testing.assert_close(outputs(editor.program, x), before)
    (verdict,) = check_book(loaded, trials=30).rules
    assert verdict.is_accepted, [one.render() for one in verdict.found]
    assert verdict.found[0].message == "rule square is opaque in: is_two"
    assert (verdict.found[0].code, verdict.found[0].severity) == ("EK247", "note")
    assert verdict.positives is not None
    assert verdict.positives.passed == 30
    guard = next(one for one in verdict.near_misses if one.what == "guard")
    assert guard.witness is not None, "the guard is tried like any other"


def test_a_wrong_predicate_is_found_out() -> None:
    predicate("is_two", pure=True)(lambda n: n in (2, 3))
    (verdict,) = check_book(book(POWERS), trials=60).rules
    assert not verdict.is_accepted
    assert "EK240" in {one.code for one in verdict.found}


def test_a_builder_makes_the_replacement() -> None:
    builder("scaled_linear")(scaled_linear)
    loaded = book(SCALE).require_valid()
    assert loaded.rules[0].opaque == ("build.scaled_linear",)
    x, linear = torch.randn(2, 4), torch.nn.Linear(4, 3, bias=False)
    editor = exported(lambda m, x: (m.linear(x) * 0.5,), x, linear=linear, keep=(ATEN.linear.default,))
    before = outputs(editor.program, x)
    report = RuleEngine(book(SCALE.replace("mul.Scalar", "mul.Tensor")).rules).run(editor)
    assert report.applied == {"scale": 1}, report.rejections
    assert targets(editor.program) == ["linear"]
    torch.testing.assert_close(outputs(editor.program, x), before)
    (verdict,) = check_book(loaded, trials=30).rules
    assert verdict.is_accepted, [one.render() for one in verdict.found]
    assert verdict.positives is not None
    assert verdict.positives.passed == 30


def other_shape(make: BuilderTools, x: Any, w: Any, *, factor: float) -> Any:
    return make.call(ATEN.mul.Scalar, x, factor)


def other_error(make: BuilderTools, x: Any, w: Any, *, factor: float) -> Any:
    raise KeyError(factor)


def other_kind(make: BuilderTools, x: Any, w: Any, *, factor: float) -> Any:
    return "nothing"


def other_node(make: BuilderTools, x: Any, w: Any, *, factor: float) -> Any:
    found = next(iter(x.users)) if hasattr(x, "users") else x
    return make.call(ATEN.relu.default, next(iter(found.users)) if hasattr(found, "users") else found)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (other_shape, "in place of"),
        (other_error, "build.scaled_linear: KeyError: 0.5"),
        (other_kind, "a replacement gives tensors, not a str"),
        (other_node, "computed later"),
    ],
)
def test_what_a_builder_makes_is_checked(function: Any, reason: str) -> None:
    builder("scaled_linear")(function)
    x, linear = torch.randn(2, 4), torch.nn.Linear(4, 3, bias=False)
    editor = exported(lambda m, x: (m.linear(x) * 0.5,), x, linear=linear, keep=(ATEN.linear.default,))
    before = str(editor.graph)
    report = RuleEngine(book(SCALE.replace("mul.Scalar", "mul.Tensor")).rules).run(editor)
    assert not report.journal
    assert reason in report.rejections[0].reason
    assert str(editor.graph) == before
    (verdict,) = check_book(book(SCALE), trials=20).rules
    assert not verdict.is_accepted


def powers_of_two(c: torch.Tensor) -> bool:
    """Whether every element is a power of two, so that dividing by it is exact."""
    return bool((torch.frexp(c)[0].abs() == 0.5).all())


RECIPROCAL = """
- id: reciprocal
  vars: {x: "f32 [~S]", c: "const f32 {0.5, 1, 2, 3} [~S]"}
  match: return aten.div.Tensor(x, c)
  where: powers_of_two(c)
  let: r = reciprocal(c)
  replace: return aten.mul.Tensor(x, r)
  equiv: {mode: exact}
"""


def test_values_are_read_when_they_are_asked_for() -> None:
    predicate("powers_of_two", pure=True, reads_values=True)(powers_of_two)
    loaded = book(RECIPROCAL).require_valid()
    for values, count in (((2.0, 0.5), 1), ((2.0, 3.0), 0)):
        editor = exported(lambda m, x: (x / m.stored.c,), torch.randn(2), stored=_Stored(torch.tensor(values)))
        assert len(RuleEngine(loaded.rules).run(editor).journal) == count
    (verdict,) = check_book(loaded, trials=30).rules
    assert verdict.is_accepted, [one.render() for one in verdict.found]
    assert all(one.witness is not None for one in verdict.near_misses if one.what == "guard")


class _Stored(torch.nn.Module):
    def __init__(self, c: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("c", c)


def test_sizes_that_vary_are_never_fixed() -> None:
    predicate("is_small", pure=True)(lambda n: n < 6)
    text = """
- id: small
  vars: {x: "f32 [N]"}
  match: return aten.exp.default(x)
  where: is_small(N)
  replace: return aten.exp2.default(x)
"""
    dim = torch.export.Dim("n", min=2, max=9)
    module = torch.nn.Module()
    module.forward = lambda x: x.exp()
    program = torch.export.export(module, (torch.randn(4),), dynamic_shapes=({0: dim},))
    editor = GraphEditor(copy_program(program))
    assert not RuleEngine(book(text).require_valid().rules).run(editor).journal
    (known,) = editor.program.range_constraints.values()
    assert (known.lower, known.upper) == (2, 9)
    assert RuleEngine(book(text).rules).run(exported(lambda _, x: (x.exp(),), torch.randn(4))).journal


def test_names() -> None:
    with pytest.raises(UsageError, match="EK254"):
        predicate("rank", pure=True)(is_two)
    with pytest.raises(UsageError, match="EK254"):
        predicate("is-two", pure=True)(is_two)
    with pytest.raises(UsageError, match="EK254"):
        predicate("is_two", pure=False)
    builder("one")(scaled_linear)
    builder("one")(scaled_linear)
    with pytest.raises(UsageError, match="EK254"):
        builder("one")(is_two)


def test_unregistered_names() -> None:
    messages = [one.message for one in book(POWERS + SCALE).found]
    assert any("is_two" in one for one in messages)
    assert "no builder 'scaled_linear' is registered" in messages
    assert "builders belong into `replace`" in [
        one.message for one in book(POWERS.replace("is_two(n)", "build.x(n)")).found
    ]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    from exirkit.patterns.operators.defined import operators_offered

    monkeypatch.syspath_prepend(str(tmp_path))
    operators_offered.cache_clear()
    folder = tmp_path / "acme_rules-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rules\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(
        "[exirkit.predicates]\nacme_is_two = acme_rules_module:is_two\n"
        "[exirkit.builders]\nacme_square = acme_rules_module:square\n"
        "[exirkit.operators]\nacme_ops = acme_rules_module:OPERATORS\n"
    )
    (tmp_path / "acme_rules_module.py").write_text(
        "def is_two(n):\n    return n == 2\n"
        "def square(make, x):\n    return make.call('aten.mul.Tensor', x, x)\n"
        "OPERATORS = {'acme_ops.square': {'schema': '(Tensor x) -> Tensor', "
        "'define': 'return aten.mul.Tensor(x, x)'}}\n"
    )
    yield tmp_path
    sys.modules.pop("acme_rules_module", None)
    operators_offered.cache_clear()


def test_installed_distributions_offer_them(site: Path) -> None:
    text = POWERS.replace("is_two(n)", "acme_is_two(n)")
    made = text.replace("aten.mul.Tensor(x, x)", "build.acme_square(x)")
    called = text.replace("aten.mul.Tensor(x, x)", "acme_ops.square(x)")
    x = torch.randn(3)
    for one, expected in ((text, "mul"), (made, "mul"), (called, "square")):
        editor = exported(lambda _, x: (x**2,), x)
        before = outputs(editor.program, x)
        RuleEngine(book(one).require_valid().rules).run(editor)
        assert targets(editor.program) == [expected]
        torch.testing.assert_close(outputs(editor.program, x), before)
