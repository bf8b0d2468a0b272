"""Rules about quantized values, decomposed: `x: "q8 [*S]"` becomes integers and parameters, one rule for each scheme.

A variable of such a type stands for the value that a dequantize call gives. In the rules that are made of it, `x` is
that call, and the name `x_q` is its integers, `x_scale`, `x_zero`, `x_lo`, `x_hi`, `x_dtype` and `x_axis` are its
parameters: variables like any other, so that everything that is known of rules holds for these rules too. A rule whose
variables allow several schemes becomes several rules, `ID[tensor]`, `ID[tensors]` and `ID[channel]`.
"""

from __future__ import annotations

import ast
import copy
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from exirkit.ir import Diagnostic, SourceText
from exirkit.patterns.books.model import Rule
from exirkit.patterns.books.quantized_variants import quantized_variant
from exirkit.patterns.matching.compiled_rule import CaseTexts, RuleTexts
from exirkit.patterns.operators.table import OperatorTable
from exirkit.patterns.syntax.expressions import ExpressionError, parse_expression, parse_statements
from exirkit.patterns.syntax.programs import place_of
from exirkit.patterns.types.parser import parse_variable
from exirkit.patterns.types.quantized import SCHEMES, QuantizedVariable
from exirkit.patterns.types.scanner import VariableSyntaxError, did_you_mean
from exirkit.patterns.types.sizes import dims_text

FIELDS = ("q", "scale", "zero", "lo", "hi", "dtype", "axis", "scheme")
"""What can be read of a quantized value: its integers, its parameters, and how these are given."""

_MOST_RULES = 27
_PARAMETERS = ("scale", "zero", "lo", "hi", "dtype")
_WORDS = {"quantized": "quantize", "dequantized": "dequantize"}
_OPERATORS = {"tensor": "per_tensor.default", "tensors": "per_tensor.tensor", "channel": "per_channel.default"}


@dataclass
class Expansion:
    """The rules that one rule stands for.

    Attributes:
        rules: With their texts.
        found: What is wrong with it; then there are no rules.
    """

    rules: list[tuple[Rule, RuleTexts]] = field(default_factory=list)
    found: list[Diagnostic] = field(default_factory=list)


def expanded(rule: Rule, texts: RuleTexts, table: OperatorTable) -> Expansion:
    """Return the rules without quantized variables that a rule stands for; the rule itself if it has none.

    Args:
        rule: As it was written, with types of its own book spelled out.
        texts: Its texts with places.
        table: Operators of its book.
    """
    made = _in_all_schemes(rule, texts)
    if rule.quantized and not made.found:
        variant = quantized_variant(rule, texts, table)
        more = Expansion(found=[variant]) if isinstance(variant, Diagnostic) else _in_all_schemes(*variant)
        made.rules += more.rules
        made.found += more.found
    return made


def _in_all_schemes(rule: Rule, texts: RuleTexts) -> Expansion:
    variables, found = _quantized_variables(rule, texts)
    if found:
        return Expansion(found=found)
    if not variables:
        return Expansion([(rule, texts)])
    made = Expansion()
    names = list(variables)
    count = 1
    for one in variables.values():
        count *= len(one.schemes)
    if count > _MOST_RULES:
        text = texts.vars[names[-1]]
        hint = "say `per tensor` of some of them"
        made.found.append(_wrong(text, f"{count} combinations of schemes, more than {_MOST_RULES}", None, hint))
        return made
    for schemes in itertools.product(*(variables[name].schemes for name in names)):
        chosen = dict(zip(names, schemes, strict=True))
        varied = [scheme for name, scheme in chosen.items() if len(variables[name].schemes) > 1]
        values = {name: _Value(name, variables[name], chosen[name]) for name in names}
        variant = _Expander(rule, texts, values).made(f"{rule.id}[{', '.join(varied)}]" if varied else rule.id)
        if variant.found:
            # The others are wrong in the same way.
            return Expansion(found=variant.found)
        made.rules += variant.rules
    if not made.rules:
        made.found.append(_wrong(texts.rule, "a condition on the scheme excludes every scheme", None))
    return made


def _quantized_variables(rule: Rule, texts: RuleTexts) -> tuple[dict[str, QuantizedVariable], list[Diagnostic]]:
    variables: dict[str, QuantizedVariable] = {}
    found: list[Diagnostic] = []
    for name, written in rule.vars.items():
        try:
            variable = parse_variable(name, written)
        except VariableSyntaxError:
            # Reported where the rule is compiled.
            continue
        if not isinstance(variable, QuantizedVariable):
            continue
        if variable.allows_none:
            hint = "write two rules, or a tensor `f32 [N] | none`"
            found.append(_wrong(texts.vars[name], f"{name} is a quantized value, and cannot be none", None, hint))
        taken = sorted({f"{name}_{one}" for one in FIELDS} & rule.vars.keys())
        if taken:
            message = f"{taken[0]} is what `{name}.{taken[0].removeprefix(f'{name}_')}` is called"
            found.append(_wrong(texts.vars[taken[0]], message, None, "give the variable another name"))
        variables[name] = variable
    return variables, found


def _wrong(
    text: SourceText, message: str, node: ast.AST | None, hint: str | None = None, code: str = "EK276"
) -> Diagnostic:
    at = place_of(node)
    return text.diagnostic(code, message, line=at.line, offset=at.offset, length=at.length, hint=hint)


class _WrongUseError(Exception):
    """A quantized variable is used for what it is not; the diagnostic is made where the text is known."""

    def __init__(self, message: str, node: ast.AST, hint: str | None = None, code: str = "EK276") -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.hint = hint
        self.code = code


@dataclass(frozen=True)
class _Value:
    """A quantized variable with one scheme."""

    name: str
    variable: QuantizedVariable
    scheme: str

    def types(self) -> dict[str, str]:
        """Return the types of its integers and parameters."""
        name, variable = self.name, self.variable
        dims = "" if variable.dims is None else f" {dims_text(variable.dims)}"
        integers = "|".join(variable.integers)
        made: dict[str, str] = {}
        of = f"{name}_q"
        if variable.has_value:
            made[of] = " ".join([*variable.qualifiers, f"{integers}{dims}"])
            made[f"{name}_dtype"] = f"dtype in ={of}"
        else:
            of = f"{name}_of"
            made[f"{name}_dtype"] = f"dtype in {integers.replace('|', ', ')}"
        dtype = f"{name}_dtype"
        # Parameters of what is known are known as well.
        known = "" if not {"const", "param", "buffer"} & set(variable.qualifiers) else "const "
        if self.scheme == "tensor":
            made[f"{name}_scale"], made[f"{name}_zero"] = "scale", f"zero_point of {dtype}"
        elif self.scheme == "tensors":
            made[f"{name}_scale"] = f"{known}scales single"
            made[f"{name}_zero"] = f"{known}zero_points single for {dtype}"
        else:
            if not variable.has_value:
                made[of] = f"dims{dims}"
            at = f"{name}_axis" if variable.axis is None else str(variable.axis)
            if variable.axis is None:
                made[at] = f"int in [0, rank({of})-1]"
            made[f"{name}_scale"] = f"{known}scales of {of} at {at}"
            made[f"{name}_zero"] = f"{known}zero_points of {of} at {at} for {dtype}"
        made[f"{name}_lo"], made[f"{name}_hi"] = f"low_limit of {dtype}", f"high_limit of {dtype}"
        return made

    def field(self, which: str, node: ast.AST) -> ast.expr:
        """Return what stands for `x.scale`.

        Raises:
            _WrongUseError: There is no such field.
        """
        if which not in FIELDS:
            hint = did_you_mean(which, FIELDS) or f"there are {', '.join(FIELDS)}"
            raise _WrongUseError(f"a quantized value has no {which!r}", node, hint)
        if which == "q" and not self.variable.has_value:
            raise _WrongUseError(f"{self.name} is parameters alone, and has no integers", node)
        if which == "scheme":
            return ast.Constant(self.scheme)
        if which == "axis" and self.scheme != "channel":
            return ast.Constant(None)
        if which == "axis" and self.variable.axis is not None:
            return ast.Constant(self.variable.axis)
        return ast.Name(f"{self.name}_{which}")

    def call(self, word: str, operand: ast.expr, others: Mapping[str, ast.expr], node: ast.AST) -> ast.expr:
        """Return the call that quantizes or dequantizes with these parameters."""
        given = [others.get(one) or self.field(one, node) for one in _PARAMETERS]
        if self.scheme == "channel":
            given.insert(2, others.get("axis") or self.field("axis", node))
        name = f"quantized_decomposed.{_WORDS[word]}_{_OPERATORS[self.scheme]}"
        return ast.Call(parse_expression(name), [operand, *given], [])


class _Expander:
    """Makes one rule of a rule with quantized variables, for one choice of schemes."""

    def __init__(self, rule: Rule, texts: RuleTexts, values: Mapping[str, _Value]) -> None:
        self.rule = rule
        self.texts = texts
        self.values = values
        self.found: list[Diagnostic] = []

    def made(self, rule_id: str) -> Expansion:
        """Return the rule, or none if one of its conditions excludes these schemes."""
        rule, texts = self.rule, self.texts
        types = {
            name: _field_names(written, self.values) for name, written in rule.vars.items() if name not in self.values
        }
        places = {name: replace(texts.vars[name], value=written) for name, written in types.items()}
        for name, value in self.values.items():
            own = value.types()
            types |= own
            places |= {key: replace(texts.vars[name], value=text) for key, text in own.items()}
        match = self.program(texts.match, is_pattern=True)
        unless = tuple(self.program(one, is_pattern=True) for one in texts.unless)
        where: list[tuple[Any, SourceText]] = []
        for guard, text in zip(rule.where, texts.where, strict=True):
            condition = self.condition(text)
            if condition == "False":
                return Expansion(found=self.found)
            if condition != "True":
                where.append((guard.model_copy(update={"expr": condition}), replace(text, value=condition)))
        let = None if texts.let is None else self.program(texts.let)
        gen = None if texts.gen is None else self.condition(texts.gen, is_gen=True)
        uses = None if texts.uses is None else self.program(texts.uses)
        cases = list(self.cases())
        if self.found:
            return Expansion(found=self.found)
        used = [name for name, value in self.values.items() if value.variable.has_value and _uses(match, name)]
        changed: dict[str, Any] = {
            "id": rule_id,
            "vars": types,
            "match": match,
            "unless": unless,
            "where": tuple(guard for guard, _ in where),
            "let": let,
            "gen": gen,
            "replace": _replacement(rule, cases),
            "keep": (*rule.keep, *(name for name in used if name not in rule.keep)),
        }
        if uses is not None:
            # A key that is set is one that the author gave.
            changed["uses"] = uses
        one = rule.model_copy(update=changed).with_origin(rule.origin)
        written = replace(
            texts,
            rule=replace(texts.rule, value=rule_id),
            match=replace(texts.match, value=match),
            vars={name: places[name] for name in one.vars},
            where=tuple(text for _, text in where),
            unless=tuple(replace(text, value=value) for text, value in zip(texts.unless, unless, strict=True)),
            let=None if texts.let is None else replace(texts.let, value=let or ""),
            gen=None if texts.gen is None else replace(texts.gen, value=gen or ""),
            uses=None if texts.uses is None else replace(texts.uses, value=uses or ""),
            cases=tuple(cases),
        )
        return Expansion([(one, written)])

    def cases(self) -> Iterator[CaseTexts]:
        """Yield the cases that may be taken with these schemes."""
        for when, let, text in self.texts.cases:
            condition = None if when is None else self.condition(when)
            if condition == "False":
                continue
            yield (
                None if when is None or condition == "True" else replace(when, value=condition or ""),
                None if let is None else replace(let, value=self.program(let)),
                replace(text, value=self.program(text)),
            )
            if condition == "True":
                return

    def condition(self, text: SourceText, *, is_gen: bool = False) -> str:
        """Return a condition over the parameters."""
        try:
            return ast.unparse(_folded(self._rewritten(parse_expression(text.value), is_gen=is_gen)))
        except ExpressionError:
            return text.value
        except _WrongUseError as error:
            self.found.append(_wrong(text, error.message, error.node, error.hint, error.code))
            return text.value

    def program(self, text: SourceText, *, is_pattern: bool = False) -> str:
        """Return a program over the parameters, with its statements on the lines on which they were."""
        try:
            statements = parse_statements(text.value)
        except ExpressionError:
            # Reported where the rule is compiled.
            return text.value
        try:
            lines: list[str] = []
            for statement in statements:
                lines += [""] * (statement.lineno - 1 - len(lines))
                lines += ast.unparse(_folded(self._rewritten(statement))).splitlines()
        except _WrongUseError as error:
            self.found.append(_wrong(text, error.message, error.node, error.hint, error.code))
            return text.value
        made = "\n".join(lines)
        if is_pattern:
            calls = [
                f"{name} = {ast.unparse(value.call('dequantized', ast.Name(f'{name}_q'), {}, ast.Name(name)))}; "
                for name, value in self.values.items()
                if value.variable.has_value and _uses(made, name)
            ]
            made = "".join(calls) + made.lstrip("\n") if calls else made
        return made

    def _rewritten(self, node: Any, *, is_gen: bool = False) -> Any:
        made = _Rewriter(self.values, is_gen=is_gen).visit(copy.deepcopy(node))
        return ast.fix_missing_locations(made)


def _replacement(rule: Rule, cases: Iterable[CaseTexts]) -> Any:
    listed = list(cases)
    if isinstance(rule.replace, str) or (len(listed) == 1 and listed[0][:2] == (None, None)):
        return listed[0][2].value
    # Which of the original cases are left is known by their texts alone.
    case = type(rule.replace[0])
    return tuple(
        case(when=None if when is None else when.value, let=None if let is None else let.value, replace=text.value)
        for when, let, text in listed
    )


def _field_names(written: str, values: Mapping[str, _Value]) -> str:
    """Return a type in which `x.dtype` and the like are the names of variables."""
    for name in values:
        written = re.sub(rf"(?<![\w.]){re.escape(name)}\.({'|'.join(FIELDS)})\b", rf"{name}_\1", written)
        # Types about the value are about its integers.
        written = re.sub(rf"(?<![\w.*~]){re.escape(name)}(?![\w.])", f"{name}_q", written)
    return written


def _uses(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", text) is not None


class _Rewriter(ast.NodeTransformer):
    """Replaces what is read of quantized variables, and the words that quantize."""

    def __init__(self, values: Mapping[str, _Value], *, is_gen: bool = False) -> None:
        self.values = values
        self.is_gen = is_gen

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        """Replace `x.scale`."""
        if isinstance(node.value, ast.Name) and node.value.id in self.values:
            return ast.copy_location(self.values[node.value.id].field(node.attr, node), node)
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> Any:
        """Decide whether a value has an axis: `x.axis is none`."""
        match node:
            case ast.Compare(
                left=ast.Attribute(value=ast.Name(id=name), attr="axis"),
                ops=[ast.Is() | ast.Eq() | ast.IsNot() | ast.NotEq() as op],
                comparators=[ast.Name(id="none") | ast.Constant(value=None)],
            ) if name in self.values:
                has_none = self.values[name].scheme != "channel"
                return ast.Constant(has_none == isinstance(op, ast.Is | ast.Eq))
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> Any:
        """Reject parameters where a value is meant."""
        value = self.values.get(node.id)
        if value is not None and not value.variable.has_value:
            hint = f"quantized(y, {node.id}) quantizes with them, {node.id}.scale reads one"
            raise _WrongUseError(f"{node.id} is parameters alone, and not a value", node, hint)
        # Trials draw integers; what they are dequantized to is not known yet.
        return node if value is None or not self.is_gen else ast.copy_location(ast.Name(f"{node.id}_q"), node)

    def visit_Call(self, node: ast.Call) -> Any:
        """Replace `quantized(y, x)` and `dequantized(q, x)`."""
        if not (isinstance(node.func, ast.Name) and node.func.id in _WORDS):
            return self.generic_visit(node)
        word = node.func.id
        like = node.args[1] if len(node.args) == 2 else None
        if not isinstance(like, ast.Name) or like.id not in self.values:
            hint = f"{word}(y, x), with x typed `q8 [*S]` or `q8 params [*S]`"
            raise _WrongUseError(f"{word} takes a tensor, and a quantized variable", node, hint, "EK277")
        others: dict[str, ast.expr] = {}
        for keyword in node.keywords:
            if keyword.arg not in (*_PARAMETERS, "axis"):
                hint = f"there are {', '.join((*_PARAMETERS, 'axis'))}"
                raise _WrongUseError(f"{word} has no argument {keyword.arg!r}", keyword.value, hint, "EK277")
            others[keyword.arg] = self.visit(keyword.value)
        value = self.values[like.id]
        return ast.copy_location(value.call(word, self.visit(node.args[0]), others, node), node)


def _folded(node: Any) -> Any:
    return ast.fix_missing_locations(_Folder().visit(node))


class _Folder(ast.NodeTransformer):
    """Decides what follows from the schemes alone: `x.scheme == 'channel'`, `x.axis is none`."""

    def visit_Compare(self, node: ast.Compare) -> Any:
        """Decide comparisons of literals."""
        self.generic_visit(node)
        right = node.comparators[0]
        if len(node.ops) != 1 or not (_is_known(node.left) and _is_known(right)):
            return node
        one, other = ast.literal_eval(node.left), ast.literal_eval(right)
        match node.ops[0]:
            case ast.Eq() | ast.Is():
                return ast.Constant(one == other)
            case ast.NotEq() | ast.IsNot():
                return ast.Constant(one != other)
            case ast.In() if isinstance(other, list | tuple):
                return ast.Constant(one in other)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        """Leave out what is known."""
        self.generic_visit(node)
        decides = isinstance(node.op, ast.Or)
        left: list[ast.expr] = []
        for one in node.values:
            if not (isinstance(one, ast.Constant) and isinstance(one.value, bool)):
                left.append(one)
            elif one.value is decides:
                return ast.Constant(decides)
        if not left:
            return ast.Constant(not decides)
        return left[0] if len(left) == 1 else ast.BoolOp(node.op, left)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        """Decide `not` of what is known."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and isinstance(node.operand, ast.Constant):
            return ast.Constant(not node.operand.value)
        return node

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        """Choose the branch if the condition is known."""
        test = self.visit(node.test)
        if isinstance(test, ast.Constant) and isinstance(test.value, bool):
            return self.visit(node.body if test.value else node.orelse)
        return ast.IfExp(test, self.visit(node.body), self.visit(node.orelse))


def _is_known(node: ast.expr) -> bool:
    """Whether a side of a comparison is a literal with a string or none in it: what numbers say is left alone."""
    if isinstance(node, ast.List | ast.Tuple):
        return all(map(_is_known, node.elts))
    return isinstance(node, ast.Constant) and (node.value in (*SCHEMES, None) and not isinstance(node.value, int))
