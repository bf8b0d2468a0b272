"""Operators of books that another library has registered in the process, before or after the book was read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
import torch

from exirkit.ir import find_out_variant
from exirkit.patterns import check_book, check_propagation, load_propagation, parse_analysis, parse_book
from exirkit.patterns.operators.defined import is_adopted

_NUMBER = count()
BOOK = """rulebook: 1
ops:
  NAME.scaled:
    schema: "(Tensor x, float a=2.0) -> Tensor"
    define: return aten.mul.Scalar(x, a)
rules:
- id: fuse
  vars: {x: "f32 [*S]"}
  match: return aten.relu.default(aten.mul.Scalar(x, 2.0))
  replace: return aten.relu.default(NAME.scaled(x))
"""


@contextmanager
def registered(schema: str, meaning: Callable[..., Any] | None) -> Iterator[tuple[str, Any]]:
    """Register an operator in a namespace that nothing else has, as another library would."""
    namespace = f"adopted{next(_NUMBER)}"
    library = torch.library.Library(namespace, "DEF")
    library.define(f"scaled{schema}")
    if meaning is not None:
        library.impl("scaled", meaning, "CompositeExplicitAutograd")
    yield namespace, library


def test_an_operator_of_equal_schema_is_adopted() -> None:
    with registered("(Tensor x, float a=2.0) -> (Tensor result)", lambda x, a=2.0: x * a) as (name, _):
        book = parse_book(BOOK.replace("NAME", name), "book.yaml").require_valid()
        op = book.operators[f"{name}.scaled"]
        assert op is getattr(torch.ops, name).scaled.default
        assert is_adopted(op)
        assert check_book(book, trials=10).is_accepted


def test_an_operator_without_a_kernel_computes_its_definition() -> None:
    with registered("(Tensor x, float a=2.0) -> Tensor", None) as (name, _):
        book = parse_book(BOOK.replace("NAME", name), "book.yaml").require_valid()
        made = book.operators[f"{name}.scaled"](torch.tensor([3.0]))
        assert made.tolist() == [6.0]
        assert check_book(book, trials=10).is_accepted


def test_an_operator_of_another_meaning_is_rejected() -> None:
    with registered("(Tensor x, float a=2.0) -> Tensor", lambda x, a=2.0: x * a + 1) as (name, _):
        text = BOOK.replace("NAME", name).replace(f"{name}.scaled(x)", "aten.mul.Scalar(x, 2.0)")
        found = check_book(parse_book(text, "book.yaml"), trials=10).found
    assert [one.code for one in found] == ["EK236"]
    assert found[0].message.startswith(f"{name}.scaled computes something else than its definition")
    assert found[0].location.line == 5


def test_an_operator_that_cannot_be_tried_is_a_warning() -> None:
    def fails(x: torch.Tensor, a: float = 2.0) -> torch.Tensor:
        raise RuntimeError(f"only on the device: {a}, {x.shape}")

    with registered("(Tensor x, float a=2.0) -> Tensor", fails) as (name, _):
        text = BOOK.replace("NAME", name).replace(f"{name}.scaled(x)", "aten.mul.Scalar(x, 2.0)")
        found = check_book(parse_book(text, "book.yaml"), trials=10).found
    assert [(one.code, one.severity) for one in found] == [("EK237", "warning")]


@pytest.mark.parametrize(
    "schema",
    [
        "(Tensor x, float a=3.0) -> Tensor",
        "(Tensor x, float a) -> Tensor",
        "(Tensor x, int a=2) -> Tensor",
        "(Tensor x, *, float a=2.0) -> Tensor",
        "(Tensor(a!) x, float a=2.0) -> Tensor(a!)",
        "(Tensor x) -> Tensor",
        "(Tensor x, float a=2.0) -> (Tensor, Tensor)",
    ],
)
def test_another_schema_is_rejected(schema: str) -> None:
    with registered(schema, None) as (name, _):
        found = parse_book(BOOK.replace("NAME", name), "book.yaml").found
    assert found[0].code == "EK231"
    assert f"registered {name}::scaled with another schema, (Tensor" in found[0].message


def test_operators_of_pytorch_keep_their_meaning() -> None:
    text = BOOK.replace("NAME.scaled", "aten.relu").replace("(Tensor x, float a=2.0)", "(Tensor self)")
    found = parse_book(text.replace("mul.Scalar(x, a)", "neg.default(self)", 1), "book.yaml").found
    assert found[0].code == "EK231"
    assert "an operator of PyTorch" in found[0].message


def test_a_package_can_be_imported_after_the_book() -> None:
    namespace = f"adopted{next(_NUMBER)}"
    text = "\n".join(load_propagation("places.devices").source.lines).replace("et_copy", namespace)
    made = parse_analysis(text)
    assert check_propagation(made).is_accepted
    assert not hasattr(getattr(torch.ops, namespace), "_h2d_copy")
    # What the package does when it is imported.
    library = torch.library.Library(namespace, "DEF")
    library.define("_h2d_copy(Tensor self) -> Tensor")
    library.impl("_h2d_copy", torch.clone, "CompositeImplicitAutograd")
    assert check_propagation(parse_analysis(text)).is_accepted


def test_a_handle_has_an_out_variant() -> None:
    namespace = f"adopted{next(_NUMBER)}"
    text = BOOK.replace("NAME", namespace).replace("    define:", "    registered_by: acme\n    define:")
    op = parse_book(text, "book.yaml").require_valid().operators[f"{namespace}.scaled"]
    out = find_out_variant(op)
    assert out is not None
    assert str(out._schema).endswith("out(Tensor x, float a=2., *, Tensor(a!) out) -> Tensor(a!)")
    x = torch.ones(2)
    assert out(x, 3.0, out=torch.empty(0)).tolist() == [3.0, 3.0]
