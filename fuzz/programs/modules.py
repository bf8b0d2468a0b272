"""Programs as source code of modules: for people to read, for stand-alone scripts, and for `torch.export`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from .aliasing import read_late
from .inference import operator_named
from .language import HIGHER_ORDER
from .model import Argument, Body, Call, Dim, Method, Program, Ref, Size
from .sizes import size_text, size_value, symbols_of
from .text import argument_text

_EXTREMUM = re.compile(r"\b(max|min)\(")


def module_source(program: Program) -> str:
    """Return the source of one class for each method, `Method_forward` for `forward`.

    A class takes a dict of the tensors that are stored, by name, so that the methods share them.

    Args:
        program: A program without findings.
    """
    return "\n\n\n".join("\n".join(_class(program, method)) for method in program.methods) + "\n"


def class_name(method: Method) -> str:
    """Return the name of the class of a method."""
    return f"Method_{method.name}"


def tensor_source(tensor: torch.Tensor) -> str:
    """Return an expression that makes the same tensor, strides included."""
    if tensor.dim() > 0 and tensor.shape[0] > 1 and tensor.stride(0) == 0:
        return f"{tensor_source(tensor[:1])}.expand({_listed(tensor.shape)})"
    dtype = str(tensor.dtype)
    flat = tensor.detach().reshape(-1)
    if flat.numel() and not bool(flat.any()) and not bool(_signs(flat).any()):
        made = f"torch.zeros({_listed(tensor.shape)}, dtype={dtype})"
    else:
        made = f"torch.tensor([{', '.join(map(_number, flat.tolist()))}], dtype={dtype})"
        made += "" if tensor.dim() == 1 else f".reshape({_listed(tensor.shape)})"
    if tensor.is_contiguous():
        return made
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return f"{made}.to(memory_format=torch.channels_last)"
    return f"torch.empty_strided({_listed(tensor.shape)}, {_listed(tensor.stride())}, dtype={dtype}).copy_({made})"


def _signs(flat: torch.Tensor) -> torch.Tensor:
    return torch.signbit(torch.view_as_real(flat) if flat.dtype.is_complex else flat)


def _listed(numbers: Iterable[int]) -> str:
    return f"[{', '.join(map(str, numbers))}]"


def _number(value: Any) -> str:
    if isinstance(value, complex):
        return f"complex({_number(value.real)}, {_number(value.imag)})"
    if isinstance(value, float) and not math.isfinite(value):
        return "torch.nan" if math.isnan(value) else "torch.inf" if value > 0 else "-torch.inf"
    return repr(value)


def _class(program: Program, method: Method) -> Iterator[str]:
    yield f"class {class_name(method)}(torch.nn.Module):"
    yield "    def __init__(self, tensors):"
    yield "        super().__init__()"
    for one in program.stored:
        if one.kind == "buffer":
            yield f'        self.register_buffer("{one.name}", tensors["{one.name}"])'
        else:
            yield f'        self.{one.name} = tensors["{one.name}"]'
    yield ""
    yield f"    def forward({', '.join(['self', *(one.name for one in method.inputs)])}):"
    yield from (f"        {line}" for line in _Lines(program, method).lines())


class _Lines:
    """Lines of a method's code.

    Args:
        program: The program.
        method: The method.
    """

    def __init__(self, program: Program, method: Method) -> None:
        self.program = program
        self.method = method
        self.stored = {one.name for one in program.stored}
        self.renamed: dict[str, str] = {}

    def lines(self) -> Iterator[str]:
        """Yield the lines."""
        sizes = {name for one in self.method.reads() if isinstance(one, Size) for name in symbols_of(one.text)}
        for symbol in self.program.symbols:
            if symbol.name in sizes:
                yield f"{symbol.name} = {self._size(symbol.name)}"
        used = {one.name for one in self.method.reads() if isinstance(one, Ref)}
        for name in [one.name for one in self.program.stored if one.name in used]:
            yield f"{name} = self.{name}"
        for target in read_late(self.method):
            yield f"{target}_old = {target}.clone()"
            self.renamed[target] = f"{target}_old"
        for step in self.method.steps:
            yield from self._step(step)
        for target, source in self.method.updates:
            owner = f"self.{target}" if target in self.stored else target
            yield f"{owner}.copy_({self._text(source)})"
        yield f"return {_as_tuple(self._text(self.method.outputs))}"

    def _size(self, name: str) -> str:
        symbol = next(one for one in self.program.symbols if one.name == name)
        if symbol.low == symbol.high:
            return str(symbol.low)
        sources = [
            (one.name, place, linear)
            for one in self.method.inputs
            for place, dim in enumerate(one.type.sizes)
            if (linear := linear_in(dim, name))
        ]
        if not sources:
            return "None"
        input_name, place, (factor, summand) = min(sources, key=lambda one: one[2] != (1, 0))
        text = f"{input_name}.shape[{place}]"
        text = f"({text} - {summand})" if summand else text
        return f"{text} // {factor}" if factor != 1 else text

    def _step(self, call: Call) -> Iterator[str]:
        for place, body in enumerate(call.bodies):
            yield from self._body(body, call.op == "while_loop" and place == 0)
        results = ", ".join(one or "_" for one in call.results)
        if call.op in HIGHER_ORDER:
            yield f"{results}{',' if len(call.results) == 1 else ''} = {self._higher_order(call)}"
            return
        args = [self._text(one) for one in call.args] + [f"{name}={self._text(one)}" for name, one in call.kwargs]
        comma = "," if len(call.results) == 1 and _returns_list(call) else ""
        yield f"{results}{comma}{' = ' if results else ''}torch.ops.{call.op}({', '.join(args)})"

    def _higher_order(self, call: Call) -> str:
        names = [one.name for one in call.bodies]
        given = [self._text(one) for one in call.args]
        if call.op == "cond":
            return f"torch.ops.higher_order.cond({given[0]}, {names[0]}, {names[1]}, {_as_tuple(given[1])})"
        if call.op == "map":
            return f"torch.ops.higher_order.map_impl({names[0]}, {given[0]}, {given[1]})"
        if call.op == "scan":
            return f"torch.ops.higher_order.scan({names[0]}, {given[0]}, {given[1]}, {_as_tuple(given[2])})"
        lists = ", ".join(map(_as_tuple, given))
        return f"torch.ops.higher_order.while_loop({names[0]}, {names[1]}, {lists})"

    def _body(self, body: Body, is_condition: bool) -> Iterator[str]:
        yield f"def {body.name}({', '.join(body.inputs)}):"
        inner = _Lines(self.program, self.method)
        for step in body.steps:
            yield from (f"    {line}" for line in inner._step(step))
        outputs = inner._text(body.outputs)
        yield f"    return {outputs[1:-1] if is_condition else _as_tuple(outputs)}"

    def _text(self, argument: Argument) -> str:
        if isinstance(argument, Ref):
            return self.renamed.get(argument.name, argument.name)
        if isinstance(argument, tuple):
            return f"[{', '.join(map(self._text, argument))}]"
        if isinstance(argument, float):
            return _number(argument)
        if isinstance(argument, Size):
            # Python's own functions would ask which is greater, and take the answer for all sizes.
            return _EXTREMUM.sub(r"torch.sym_\1(", size_text(argument.text))
        return argument_text(argument)


def _as_tuple(text: str) -> str:
    return "()" if text == "[]" else f"({text[1:-1]},)"


def _returns_list(call: Call) -> bool:
    schema: Any = getattr(operator_named(call.op), "_schema", None)
    return schema is not None and (len(schema.returns) > 1 or str(schema.returns[0].type).startswith("List["))


_NOT_LINEAR = ("//", "%", "**", "max(", "min(")


def linear_in(dim: Dim, symbol: str) -> tuple[int, int] | None:
    """Return factor and summand if a size is `factor * symbol + summand`, else None."""
    if isinstance(dim, int) or symbols_of(dim) != (symbol,) or any(sign in size_text(dim) for sign in _NOT_LINEAR):
        return None
    values = [int(size_value(dim, {symbol: one})) for one in range(4)]
    factor, summand = values[1] - values[0], values[0]
    good = factor != 0 and all(value == factor * one + summand for one, value in enumerate(values))
    return (factor, summand) if good else None
