"""Reading the expressions in the printed form of programs: names, numbers, lists and descriptions of contents."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from exirkit.ir import Diagnostic, Location, ModelError

from .language import CONTENTS, FLOATS, LAYOUTS, TORCH_OBJECTS, is_operator_name
from .model import Argument, Contents, Ref, Size, TensorType
from .sizes import LONGEST, is_function_of_sizes, size_text, symbols_of
from .tensor_types import parse_type

DEEPEST = 8
"""How deep lists and bodies may be in each other."""


class ExpressionReader:
    """Reads expressions of one text.

    Args:
        text: The whole text.
        file: Where it comes from, for diagnostics.
    """

    def __init__(self, text: str, file: str | None) -> None:
        self.lines = text.split("\n")
        self.file = file or "<program>"
        self.symbols: set[str] = set()

    def error(self, code: str, node: ast.AST, message: str, *, hint: str | None = None) -> ModelError:
        """Return an error that points at a piece of the text."""
        return ModelError(self.finding(code, node, message, hint=hint))

    def finding(self, code: str, node: ast.AST, message: str, *, hint: str | None = None) -> Diagnostic:
        """Return a diagnostic that points at a piece of the text."""
        line, offset = int(getattr(node, "lineno", 1)), int(getattr(node, "col_offset", 0))
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        # Python counts bytes.
        column = len(text.encode()[:offset].decode(errors="ignore")) + 1
        end = int(getattr(node, "end_col_offset", offset + 1)) if getattr(node, "end_lineno", line) == line else None
        span = len(text) - column + 1 if end is None else end - offset
        place = Location(file=self.file, line=line, column=column, text=text[:400], span=max(1, span))
        return Diagnostic(code=code, message=message, location=place, hint=hint)

    def argument(self, node: ast.expr, depth: int = 0) -> Argument:
        """Read an argument of an operator."""
        if isinstance(node, ast.List | ast.Tuple):
            if depth == DEEPEST:
                raise self.error("EK807", node, f"lists are in each other more than {DEEPEST} deep")
            return tuple(self.argument(one, depth + 1) for one in node.elts)
        if isinstance(node, ast.Name):
            return self._named(node)
        if isinstance(node, ast.BinOp) or is_function_of_sizes(node):
            return Size(self._size(node))
        if isinstance(node, ast.Attribute):
            return self._torch_object(node)
        if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str | bool)):
            return node.value
        return self.number(node)

    def _named(self, node: ast.Name) -> Argument:
        if node.id in FLOATS:
            return FLOATS[node.id]
        return Size(node.id) if node.id in self.symbols else Ref(node.id)

    def _size(self, node: ast.expr) -> str:
        end = node.end_col_offset or 0
        if node.end_lineno != node.lineno or end - node.col_offset > LONGEST:
            raise self.error("EK807", node, f"a size is on one line and has at most {LONGEST} characters")
        try:
            text = size_text(ast.unparse(node))
        except ValueError as error:
            raise self.error("EK804", node, str(error)) from None
        unknown = sorted({*symbols_of(text)} - self.symbols)
        if unknown:
            raise self.error("EK803", node, f"there is no symbol {unknown[0]}")
        return text

    def _torch_object(self, node: ast.Attribute) -> Argument:
        if isinstance(node.value, ast.Name) and node.value.id == "torch" and node.attr in TORCH_OBJECTS:
            return TORCH_OBJECTS[node.attr]
        raise self.error("EK801", node, "not a dtype, layout or memory format", hint="write, say, torch.float32")

    def number(self, node: ast.expr) -> int | float | bool:
        """Read a number."""
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            if isinstance(node.operand, ast.UnaryOp):
                raise self.error("EK801", node, "a number has at most one sign")
            value = self.number(node.operand)
            if value is True or value is False:
                raise self.error("EK801", node, "a bool has no sign")
            return -value
        if isinstance(node, ast.Name) and node.id in FLOATS:
            return FLOATS[node.id]
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            if isinstance(node.value, int) and node.value >= 2**64:
                raise self.error("EK801", node, "a whole number of more than 64 bits")
            return node.value
        raise self.error(
            "EK801", node, "not an argument", hint="arguments are names, numbers, strings, None, lists and sizes"
        )

    def whole(self, node: ast.expr) -> int:
        """Read a whole number."""
        value = self.number(node)
        if type(value) is not int:
            raise self.error("EK801", node, "a whole number is wanted here")
        return value

    def string(self, node: ast.expr, what: str) -> str:
        """Read a string; `what` it is goes into the diagnostic."""
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            raise self.error("EK801", node, f"{what} is written as a string")
        return node.value

    def type(self, node: ast.expr) -> TensorType:
        """Read the type of a tensor."""
        text = self.string(node, "a type")
        try:
            return parse_type(text)
        except ValueError as error:
            raise self.error("EK804", node, str(error)) from None

    def operator_name(self, node: ast.expr) -> str:
        """Read the name of an operator."""
        parts: list[str] = []
        at: ast.expr = node
        while isinstance(at, ast.Attribute) and len(parts) < 3:
            parts.append(at.attr)
            at = at.value
        name = ".".join([at.id, *reversed(parts)]) if isinstance(at, ast.Name) else ""
        if not is_operator_name(name):
            raise self.error("EK801", node, "not an operator", hint="operators are written as namespace.name.overload")
        return name

    def contents(self, node: ast.expr) -> Contents:
        """Read a description of contents."""
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CONTENTS):
            raise self.error("EK805", node, "not a description of contents", hint=f"one of {', '.join(CONTENTS)}")
        kind: Any = node.func.id
        values: dict[str, Any] = {"kind": kind}
        first = "numbers" if kind == "numbers" else "seed"
        if len(node.args) > 1:
            raise self.error(
                "EK805", node, f"only the {first} are without a name" if first == "numbers" else "only the seed"
            )
        pairs = [(first, one) for one in node.args] + [(one.arg or "", one.value) for one in node.keywords]
        for name, value in pairs:
            if name not in self._parts or name in values:
                raise self.error("EK805", value, f"contents have no `{name}`, or have it already")
            values[name] = self._parts[name](self, value)
        return Contents(**values)

    def _numbers(self, node: ast.expr) -> tuple[int | float | bool, ...]:
        if not isinstance(node, ast.List):
            raise self.error("EK805", node, "numbers are a list")
        return tuple(map(self.number, node.elts))

    def _layout(self, node: ast.expr) -> str:
        layout = self.string(node, "a layout")
        if layout not in LAYOUTS:
            raise self.error("EK805", node, f"a layout is one of {', '.join(LAYOUTS)}")
        return layout

    _parts: Mapping[str, Callable[[ExpressionReader, ast.expr], Any]] = {
        "seed": whole,
        "numbers": _numbers,
        "low": number,
        "high": number,
        "bits": whole,
        "layout": _layout,
    }
