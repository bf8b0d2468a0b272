"""The expression language: a small part of Python, parsed with bounds and compiled to closures, never run as Python."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final

import torch

from exirkit.ir import statically_known_true

# The third value of a condition: what sizes that vary cannot decide is unknown, and asking never fixes a size

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Undecided(Enum):
    """The third bool."""

    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        raise UndecidedError("the sizes of the program do not decide this")

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN: Final = Undecided.UNKNOWN
Truth = bool | Undecided


class UndecidedError(Exception):
    """A branch depends on a condition that the sizes do not decide."""


def truth(value: Any) -> Truth:
    """Return what a value means as a condition."""
    if type(value) is bool:
        return value
    if isinstance(value, torch.SymBool):
        return _decide(value)
    if isinstance(value, torch.SymInt | torch.SymFloat):
        return compare("!=", value, 0)
    if isinstance(value, Undecided):
        return value
    if isinstance(value, torch.Tensor):
        raise TypeError("a tensor is not a condition; say all_eq, all_in or finite")
    return bool(value)


def every(values: Iterable[Any]) -> Truth:
    """Return whether all values hold; what comes after one that does not is not examined."""
    return _folded(values, decisive=False)


def some(values: Iterable[Any]) -> Truth:
    """Return whether one of the values holds; what comes after one that does is not examined."""
    return _folded(values, decisive=True)


def _folded(values: Iterable[Any], *, decisive: bool) -> Truth:
    result: Truth = not decisive
    for value in values:
        known = truth(value)
        if known is decisive:
            return decisive
        if known is UNKNOWN:
            result = UNKNOWN
    return result


def negated(value: Any) -> Truth:
    """Return `not value`."""
    known = truth(value)
    return known if isinstance(known, Undecided) else known is False


_ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compare(order: str, left: Any, right: Any) -> Truth:
    """Compare two values, sequences element by element; sizes that vary are compared without a guard."""
    if type(left) is int and type(right) is int:
        # Most are, and there are many.
        return bool(_ORDERS[order](left, right))
    if isinstance(left, list | tuple) and isinstance(right, list | tuple) and order in ("==", "!="):
        equal = _same_elements(left, right)
        return equal if order == "==" else negated(equal)
    if isinstance(left, SYMBOLIC) or isinstance(right, SYMBOLIC):
        return _compare_symbolic(order, left, right)
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        raise TypeError("tensors are not compared; say all_eq, all_in or same_shape")
    return truth(_ORDERS[order](left, right))


def _same_elements(left: Any, right: Any) -> Truth:
    if len(left) != len(right):
        return False
    result: Truth = True
    for one, other in zip(left, right, strict=True):
        if type(one) is int and type(other) is int:
            if one != other:
                return False
            continue
        same = compare("==", one, other)
        if same is False:
            return False
        if same is UNKNOWN:
            result = UNKNOWN
    return result


def _compare_symbolic(order: str, left: Any, right: Any) -> Truth:
    numbers = (int, float, bool, *SYMBOLIC)
    if not (isinstance(left, numbers) and isinstance(right, numbers)):
        if order in ("==", "!="):
            return order == "!="
        raise TypeError(f"{type(left).__name__} and {type(right).__name__} have no order")
    return _decide(_ORDERS[order](left, right))


def _decide(condition: Any) -> Truth:
    if isinstance(condition, bool):
        return condition
    if surely_true(condition):
        return True
    if surely_true(torch.sym_not(condition)):
        return False
    return UNKNOWN


def surely_true(condition: Any) -> bool:
    """Whether a condition holds for all sizes that a program promises, without fixing any.

    torch takes a size from 1 to 2 for 2, because it decides everything for sizes from 2 on. What follows from that does
    not hold.
    """
    if isinstance(condition, torch.SymBool) and any(map(_has_one_value, _ranges(condition))):
        return False
    return bool(statically_known_true(condition))


def _ranges(condition: torch.SymBool) -> list[Any]:
    known = condition.node.shape_env.var_to_range
    return [known[symbol] for symbol in condition.node.expr.free_symbols if symbol in known]


def _has_one_value(values: Any) -> bool:
    return bool(values.lower == values.upper)


MAX_DEPTH = 60
MAX_LINE = 20_000


class ExpressionError(Exception):
    """An expression is not in the language, or cannot be evaluated.

    Attributes:
        node: Where.
        hint: What to do.
    """

    def __init__(self, message: str, node: ast.AST | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.hint = hint


class TooLargeError(ExpressionError):
    """A tensor has more elements than an expression may make."""


def parse_expression(text: str) -> ast.expr:
    """Parse one expression.

    Raises:
        ExpressionError: It is not an expression; `node` is a `SyntaxPlace`.
    """
    return _parsed(text, "eval").body  # type: ignore[no-any-return]


def parse_statements(text: str) -> list[ast.stmt]:
    """Parse a program.

    Raises:
        ExpressionError: It is none.
    """
    return _parsed(text, "exec").body  # type: ignore[no-any-return]


class SyntaxPlace(ast.AST):
    """A place where Python's parser gave up."""

    def __init__(self, line: int, offset: int) -> None:
        super().__init__()
        self.lineno = line
        self.col_offset = offset
        self.end_lineno = line
        self.end_col_offset = offset + 1


def _parsed(text: str, mode: str) -> Any:
    _check_depth(text)
    try:
        return ast.parse(text, mode=mode)
    except SyntaxError as error:
        place = SyntaxPlace(error.lineno or 1, max(0, (error.offset or 1) - 1))
        raise ExpressionError(f"this is not a program: {error.msg}", place) from None
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise ExpressionError(f"this cannot be parsed: {type(error).__name__}", SyntaxPlace(1, 0)) from None


def _check_depth(text: str) -> None:
    depth = 0
    for number, line in enumerate(text.splitlines(), 1):
        for offset, each in enumerate(line):
            depth += (each in "([{") - (each in ")]}")
            if depth > MAX_DEPTH:
                raise ExpressionError(f"brackets nest deeper than {MAX_DEPTH}", SyntaxPlace(number, offset))
        if len(line) > MAX_LINE:
            raise ExpressionError(f"a line of more than {MAX_LINE:,} characters", SyntaxPlace(number, 0))


# The expression language: a small part of Python, compiled to closures; nothing in a rule is ever run as Python


Names = Mapping[str, Any]
Compiled = Callable[[Names], Any]

MAX_ELEMENTS = 100_000
MAX_BITS = 4096
MAX_EXPONENT = 4096


class CallCompiler:
    """How calls and attributes that are not in the language itself are compiled; contexts override it."""

    def call(self, node: ast.Call, compiler: ExpressionCompiler) -> Compiled:
        """Compile a call."""
        raise ExpressionError("nothing can be called here", node)

    def attribute(self, node: ast.Attribute, compiler: ExpressionCompiler) -> Compiled:
        """Compile an attribute."""
        raise ExpressionError("attributes cannot be used here", node)

    def attributed(self, node: ast.BinOp, compiler: ExpressionCompiler) -> Compiled:
        """Compile `call @ attribute(...)`."""
        raise ExpressionError("the operator MatMult is not part of the language", node)

    def body(self, node: ast.Lambda, compiler: ExpressionCompiler) -> Compiled:
        """Compile a body of control flow."""
        raise ExpressionError("a lambda is not part of the language", node)

    def name(self, node: ast.Name) -> Compiled | None:
        """Compile a name that stands for something fixed, or return None: it is looked up when it is needed."""
        return None


class ExpressionCompiler:
    """Compiles expressions; raises `ExpressionError` for what is not in the language."""

    def __init__(self, calls: CallCompiler) -> None:
        self.calls = calls
        self.free: dict[str, ast.Name] = {}
        self._local: list[str] = []

    def compile(self, node: ast.expr) -> Compiled:
        """Return a closure that evaluates the expression over names."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise ExpressionError(f"{_described(node)} is not part of the language", node)
        compiled: Compiled = method(node)
        return compiled

    @contextmanager
    def local_names(self, keys: Sequence[str]) -> Iterator[None]:
        """Compile expressions that may use further names, those of a turn of a loop."""
        local = len(self._local)
        self._local += keys
        yield
        del self._local[local:]

    def _constant(self, node: ast.Constant) -> Compiled:
        value = node.value
        if not (value is None or isinstance(value, bool | int | float | str)):
            raise ExpressionError(f"a literal of type {type(value).__name__} is not part of the language", node)
        _bounded(value, node)
        return lambda names: value

    def _name(self, node: ast.Name) -> Compiled:
        key = node.id
        if key not in self._local:
            fixed = self.calls.name(node)
            if fixed is not None:
                return fixed
            self.free.setdefault(key, node)

        def look_up(names: Names) -> Any:
            try:
                return names[key]
            except KeyError:
                raise ExpressionError(f"{key!r} has no value here", node) from None

        return look_up

    def _attribute(self, node: ast.Attribute) -> Compiled:
        return self.calls.attribute(node, self)

    def _call(self, node: ast.Call) -> Compiled:
        return self.calls.call(node, self)

    def _lambda(self, node: ast.Lambda) -> Compiled:
        return self.calls.body(node, self)

    def _unaryop(self, node: ast.UnaryOp) -> Compiled:
        operand = self.compile(node.operand)
        if isinstance(node.op, ast.Not):
            return lambda names: negated(operand(names))
        if isinstance(node.op, ast.USub):
            return _guarded(node, lambda names: operator.neg(operand(names)))
        if isinstance(node.op, ast.UAdd):
            return _guarded(node, lambda names: operator.pos(operand(names)))
        raise ExpressionError("`~` is not part of the language", node)

    def _binop(self, node: ast.BinOp) -> Compiled:
        if isinstance(node.op, ast.MatMult):
            return self.calls.attributed(node, self)
        left, right = self.compile(node.left), self.compile(node.right)
        apply = _BINARY.get(type(node.op))
        if apply is None:
            raise ExpressionError(f"the operator {type(node.op).__name__} is not part of the language", node)

        def compute(names: Names) -> Any:
            return _bounded(apply(left(names), right(names)), node)

        return _guarded(node, compute)

    def _boolop(self, node: ast.BoolOp) -> Compiled:
        parts = [self.compile(value) for value in node.values]
        fold = some if isinstance(node.op, ast.Or) else every
        return _guarded(node, lambda names: fold(part(names) for part in parts))

    def _compare(self, node: ast.Compare) -> Compiled:
        values = [self.compile(value) for value in (node.left, *node.comparators)]
        tests = [_comparison(op, node) for op in node.ops]

        def evaluate(names: Names) -> Any:
            result: Any = True
            left = values[0](names)
            for test, value in zip(tests, values[1:], strict=True):
                right = value(names)
                known = test(left, right)
                if known is False:
                    return False
                if known is UNKNOWN:
                    result = UNKNOWN
                left = right
            return result

        return _guarded(node, evaluate)

    def _ifexp(self, node: ast.IfExp) -> Compiled:
        test, then, otherwise = (self.compile(part) for part in (node.test, node.body, node.orelse))
        return lambda names: then(names) if bool(truth(test(names))) else otherwise(names)

    def _list(self, node: ast.List) -> Compiled:
        return self._sequence(node.elts)

    def _tuple(self, node: ast.Tuple) -> Compiled:
        return self._sequence(node.elts)

    def _sequence(self, elements: Sequence[ast.expr]) -> Callable[[Names], list[Any]]:
        parts = [
            (isinstance(one, ast.Starred), self.compile(one.value if isinstance(one, ast.Starred) else one))
            for one in elements
        ]

        def build(names: Names) -> list[Any]:
            made: list[Any] = []
            for is_splat, part in parts:
                made.extend(part(names)) if is_splat else made.append(part(names))
            return made

        return build

    def arguments(self, node: ast.Call) -> tuple[Callable[[Names], list[Any]], dict[str, Compiled]]:
        """Return what evaluates the positional arguments of a call, and the keyword arguments by name."""
        if any(keyword.arg is None for keyword in node.keywords):
            raise ExpressionError("`**` is not part of the language", node)
        return self._sequence(node.args), {str(one.arg): self.compile(one.value) for one in node.keywords}

    def _subscript(self, node: ast.Subscript) -> Compiled:
        base = self.compile(node.value)
        if isinstance(node.slice, ast.Slice):
            ends = [
                None if end is None else self.compile(end)
                for end in (node.slice.lower, node.slice.upper, node.slice.step)
            ]
            return _guarded(
                node,
                lambda names: base(names)[slice(*(None if end is None else end(names) for end in ends))],
            )
        index = self.compile(node.slice)
        return _guarded(node, lambda names: base(names)[index(names)])

    def _listcomp(self, node: ast.ListComp) -> Compiled:
        return self._comprehension(node)

    def _generatorexp(self, node: ast.GeneratorExp) -> Compiled:
        return self._comprehension(node)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> Compiled:
        local = len(self._local)
        loops = [self._loop(loop, node) for loop in node.generators]
        element = self.compile(node.elt)
        del self._local[local:]

        def collect(depth: int, names: Names, made: list[Any]) -> None:
            if depth == len(loops):
                if len(made) >= MAX_ELEMENTS:
                    raise ExpressionError(f"a comprehension over more than {MAX_ELEMENTS} elements", node)
                made.append(element(names))
                return
            for inner in loops[depth](names):
                collect(depth + 1, inner, made)

        def build(names: Names) -> list[Any]:
            made: list[Any] = []
            collect(0, names, made)
            return made

        return _guarded(node, build)

    def _loop(self, loop: ast.comprehension, node: ast.AST) -> Callable[[Names], Iterator[Names]]:
        """Return what gives the names of every turn of one `for`, whose variables later ones may use."""
        if loop.is_async:
            raise ExpressionError("`async` is not part of the language", node)
        source = self.compile(loop.iter)
        targets = [loop.target] if isinstance(loop.target, ast.Name) else getattr(loop.target, "elts", [])
        if not targets or not all(isinstance(target, ast.Name) for target in targets):
            raise ExpressionError("the variable of a comprehension is a name, or several", loop.target)
        keys = [target.id for target in targets]
        self._local += keys
        conditions = [self.compile(condition) for condition in loop.ifs]
        is_single = isinstance(loop.target, ast.Name)

        def turns(names: Names) -> Iterator[Names]:
            inner = OwnNames(names)
            for count, item in enumerate(source(names)):
                if count >= MAX_ELEMENTS:
                    raise ExpressionError(f"a comprehension over more than {MAX_ELEMENTS} elements", node)
                items = (item,) if is_single else tuple(item)
                if len(items) != len(keys):
                    raise ExpressionError(f"{len(items)} values for {len(keys)} names", node)
                inner.own.update(zip(keys, items, strict=True))
                if all(bool(truth(condition(inner))) for condition in conditions):
                    yield inner

        return turns


class NameView(Mapping[str, Any]):
    """Names seen in another way: subclasses say how one is looked up.

    Attributes:
        names: The names behind it.
    """

    def __init__(self, names: Names) -> None:
        self.names = names

    def __getitem__(self, key: str) -> Any:
        return self.names[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


class OwnNames(NameView):
    """Names of an inner scope over those around it.

    Attributes:
        own: The inner ones.
    """

    def __init__(self, names: Names) -> None:
        super().__init__(names)
        self.own: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        own = self.own
        return own[key] if key in own else self.names[key]

    def __iter__(self) -> Iterator[str]:
        return iter({**self.names, **self.own})

    def __len__(self) -> int:
        return len({**self.names, **self.own})


def _guarded(node: ast.AST, compute: Compiled) -> Compiled:
    """Turn what Python raises for wrong values into an error with a place."""

    def evaluate(names: Names) -> Any:
        try:
            return compute(names)
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RuntimeError) as error:
            raise ExpressionError(f"{type(error).__name__}: {error}".splitlines()[0], node) from error

    return evaluate


def _bounded(value: Any, node: ast.AST) -> Any:
    if type(value) is int:
        if value.bit_length() > MAX_BITS:
            raise ExpressionError("a number of more than 4096 bits", node)
        return value
    if isinstance(value, str | list | tuple) and len(value) > MAX_ELEMENTS:
        raise ExpressionError(f"a sequence of more than {MAX_ELEMENTS} elements", node)
    if isinstance(value, torch.Tensor) and value.numel() > 1 << 32:
        raise TooLargeError("a tensor of more than 2**32 elements", node)
    return value


def _multiplied(left: Any, right: Any) -> Any:
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, str | list | tuple) and isinstance(count, int) and count * len(sequence) > MAX_ELEMENTS:
            raise ValueError(f"a sequence of more than {MAX_ELEMENTS} elements")
    return left * right


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and abs(exponent) > MAX_EXPONENT:
        raise ValueError(f"an exponent above {MAX_EXPONENT}")
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > MAX_BITS:
        raise ValueError("a number of more than 4096 bits")
    return base**exponent


def _added(left: Any, right: Any) -> Any:
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return [*left, *right]
    return left + right


_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: _added,
    ast.Sub: operator.sub,
    ast.Mult: _multiplied,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


def _comparison(op: ast.cmpop, node: ast.Compare) -> Callable[[Any, Any], Any]:
    order = _COMPARISONS.get(type(op))
    if order is not None:
        return lambda left, right: compare(order, left, right)
    if isinstance(op, ast.In):
        return contained
    if isinstance(op, ast.NotIn):
        return lambda left, right: negated(contained(left, right))
    if isinstance(op, ast.Is):
        return _same_object
    if isinstance(op, ast.IsNot):
        return lambda left, right: not _same_object(left, right)
    raise ExpressionError("this comparison is not part of the language", node)


def contained(item: Any, container: Any) -> Any:
    """Return whether `item in container`, with sizes that vary compared without a guard."""
    if isinstance(container, str):
        return isinstance(item, str) and item in container
    return some(compare("==", item, other) for other in container)


def _same_object(left: Any, right: Any) -> bool:
    if left is None or right is None or isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left is right or (type(left) is type(right) and isinstance(left, torch.dtype | str) and left == right)


def _described(node: ast.AST) -> str:
    words = {"Lambda": "a lambda", "Await": "await", "NamedExpr": "`:=`", "Dict": "a dictionary", "Set": "a set",
             "JoinedStr": "an f-string", "Starred": "`*` in this place"}  # fmt: skip
    return words.get(type(node).__name__, type(node).__name__.lower())
