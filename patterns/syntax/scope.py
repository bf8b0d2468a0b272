"""What the names in a rule can stand for, and the list that diagnostics about them go to."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from exirkit.ir import Diagnostic, SourceText
from exirkit.patterns.operators.table import OperatorTable
from exirkit.patterns.syntax.expressions import ExpressionError

from .terms import Place

MACROS: dict[str, str] = {
    "addc(t, c)": "alt(scalar=aten.add.Scalar(t, c), tensor=aten.add.Tensor(t, c))",
    "subc(t, c)": "alt(scalar=aten.sub.Scalar(t, c), tensor=aten.sub.Tensor(t, c))",
    "mulc(t, c)": "alt(scalar=aten.mul.Scalar(t, c), tensor=aten.mul.Tensor(t, c))",
    "divc(t, c)": "alt(scalar=aten.div.Scalar(t, c), tensor=aten.div.Tensor(t, c))",
    "powc(t, c)": "alt(scalar=aten.pow.Tensor_Scalar(t, c), tensor=aten.pow.Tensor_Tensor(t, c))",
    "matmul(a, b)": "alt(matmul=aten.matmul.default(a, b), mm=aten.mm.default(a, b), bmm=aten.bmm.default(a, b))",
    "transpose_last2(t)": (
        "alt(transpose=aten.transpose.int(t, -2, -1), swapped=aten.transpose.int(t, -1, -2), mT=aten.mT.default(t),"
        " t=aten.t.default(t), permute2=aten.permute.default(t, [1, 0]), permute3=aten.permute.default(t, [0, 2, 1]),"
        " permute4=aten.permute.default(t, [0, 1, 3, 2]), transpose_copy=aten.transpose_copy.int(t, -2, -1),"
        " copy2=aten.permute_copy.default(t, [1, 0]), copy3=aten.permute_copy.default(t, [0, 2, 1]),"
        " copy4=aten.permute_copy.default(t, [0, 1, 3, 2]))"
    ),
}
"""Families that every book knows: overloads, as a number becomes a constant tensor in Edge; ways to say one thing."""


@dataclass
class Scope:
    """What a rule can name.

    Attributes:
        table: Operators.
        variables: Types of its variables, by name.
        symbols: Names of sizes that the types bind, `N` and the `B` of `*B`.
        macros: Texts by signature `addc(t, c)`.
        found: Diagnostics so far.
    """

    table: OperatorTable
    variables: Mapping[str, Any] = field(default_factory=dict)
    symbols: frozenset[str] = frozenset()
    macros: Mapping[str, str] = field(default_factory=lambda: dict(MACROS))
    found: list[Diagnostic] = field(default_factory=list)

    def macro(self, name: str) -> tuple[list[str], str] | None:
        """Return the parameters and the text of a macro, or None if there is none of that name."""
        for signature, text in self.macros.items():
            head, _, rest = signature.partition("(")
            if head.strip() == name:
                return [each.strip() for each in rest.rstrip(") ").split(",") if each.strip()], text
        return None

    def complain(
        self,
        text: SourceText,
        code: str,
        message: str,
        place: Place | ast.AST | None,
        hint: str | None = None,
        expected: str | None = None,
    ) -> None:
        """Note an error at a place of a text."""
        at = place if isinstance(place, Place) else place_of(place)
        self.found.append(
            text.diagnostic(
                code, message, line=at.line, offset=at.offset, length=at.length, hint=hint, expected=expected
            )
        )

    def complain_of(self, text: SourceText, code: str, error: ExpressionError) -> None:
        """Note an error that an expression raised."""
        self.complain(text, code, error.message, error.node, error.hint)


def place_of(node: ast.AST | None) -> Place:
    """Return where a piece of syntax stands."""
    line = getattr(node, "lineno", 1)
    offset = getattr(node, "col_offset", 0)
    end_line, end = getattr(node, "end_lineno", line), getattr(node, "end_col_offset", offset + 1)
    return Place(line, offset, max(1, end - offset) if end_line == line else 1)
