"""Rules from traces: two functions on example tensors become a rule, whose literals are to be decided."""

from __future__ import annotations

import difflib
import math
import operator
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import Node

from exirkit.ir import Diagnostic, UsageError, same_argument, underlying
from exirkit.patterns.books.loading import mark
from exirkit.patterns.books.model import Rule, RuleBook, write_book
from exirkit.patterns.explain.value_descriptions import shown
from exirkit.patterns.matching.arguments import rounds_to, same_literal, shortest_number
from exirkit.patterns.operators.arguments import default_of
from exirkit.patterns.operators.in_place import writes
from exirkit.patterns.operators.table import CONSTANTS, name_of, traits_of
from exirkit.patterns.types.parser import parse_variable
from exirkit.patterns.types.scanner import VariableSyntaxError

_NAMES = {value: name for name, value in CONSTANTS.items() if not isinstance(value, float)}
WAYS = "exact, any, default, sizes, a type such as 'float in [0.1, 2.0]', or the name of another literal"


@dataclass(frozen=True)
class TracedLiteral:
    """A literal in a traced pattern or replacement.

    Attributes:
        name: Name under which it is decided on.
        value: Its value in the trace, as text of the rule language.
        argument: `dim of aten._softmax.default`.
        default: Default of that argument as text, if it has one.
        is_pattern: It is in the pattern.
    """

    name: str
    value: str
    argument: str
    default: str | None
    is_pattern: bool


@dataclass
class Decisions:
    """What is decided about the literals of one rule, and which are left.

    Attributes:
        given: Decision by name: one of `WAYS`.
        scalars: Example values of arguments that are no tensors; literals that are equal take their names.
        sizes: Names of sizes in the types of tensors, by size.
        taken: Names that mean something else.
        literals: Every literal that was met, by name.
        wildcards: Types of the literals that became wildcards.
        open: Names of those that are undecided.
        defaults: What the pattern asks for without saying it: arguments that the trace leaves out.
    """

    given: Mapping[str, str]
    scalars: Mapping[str, Any]
    sizes: Mapping[int, str]
    taken: set[str]
    literals: dict[str, TracedLiteral] = field(default_factory=dict)
    wildcards: dict[str, str] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    defaults: list[str] = field(default_factory=list)

    def example_of(self, constant: torch.Tensor) -> Any:
        """Return the number that became a constant: an example that is rounded to it, or the shortest such number."""
        found = constant.item()
        if type(found) is float:
            for one in self.scalars.values():
                if type(one) in (int, float) and rounds_to(one, found, constant.dtype):
                    return one
        return shortest_number(constant)

    def written(self, op: Any, argument: Any, value: Any, *, first: str | None, is_pattern: bool) -> str | None:
        """Return the text that stands for a literal, or None if the argument is left out.

        Args:
            op: Operator that is called.
            argument: Argument of its schema.
            value: The literal.
            first: Name of the input that is the first argument of the call, if it is one.
            is_pattern: The call is in the pattern.
        """
        name = self._name(op, argument, value, is_pattern)
        default = literal_text(default_of(argument)) if argument.has_default_value() else None
        text = literal_text(value)
        literal = TracedLiteral(name, text, f"{argument.name} of {name_of(op)}", default, is_pattern)
        self.literals.setdefault(name, literal)
        way = self.given.get(name)
        if way is None:
            self.open += [] if name in self.open else [name]
            return mark(name, text)
        if way == "exact":
            return text
        if way == "default":
            if not argument.has_default_value() or not same_argument(value, default_of(argument)):
                raise _impossible(name, f"{text} is not the default of {self.literals[name].argument}")
            return None
        if way == "sizes":
            return self._sizes(name, value)
        return self._wildcard(name, way, is_pattern, _type_of(op, argument, value, first), text)

    def left_out(self, op: Any, argument: Any, *, first: str | None) -> str | None:
        """Return the wildcard for an argument that the trace of a pattern leaves out, or None: then it is the default.

        Torch leaves out what has its default, written or not. The rule then asks for the default, which is told; a
        decision can widen it.
        """
        value = default_of(argument)
        text = literal_text(value)
        name = unused(f"{operator_word(op)}_{argument.name}", {*self.taken, *self.literals})
        self.literals[name] = TracedLiteral(name, text, f"{argument.name} of {name_of(op)}", text, True)
        way = self.given.get(name, "default")
        if way in ("default", "exact"):
            said = f"{name} ({argument.name}={text} of {name_of(op)})"
            self.defaults.append(said)
            return None
        return self._wildcard(name, way, True, _type_of(op, argument, value, first), text)

    def check_all_met(self) -> None:
        """Reject decisions about literals that are not there.

        Raises:
            UsageError: EK265.
        """
        for name in self.given:
            if name not in self.literals:
                close = difflib.get_close_matches(name, list(self.literals), n=1)
                known = ", ".join(self.literals) or "no literals"
                raise UsageError(
                    Diagnostic(
                        code="EK265",
                        message=f"the trace has no literal {name!r}",
                        hint=f"did you mean {close[0]}?" if close else f"it has {known}",
                    )
                )

    def _name(self, op: Any, argument: Any, value: Any, is_pattern: bool) -> str:
        for name, example in self.scalars.items():
            if _is_equal(example, value):
                return name
        base = f"{'' if is_pattern else 'new_'}{operator_word(op)}_{argument.name}"
        return unused(base, {*self.taken, *self.literals})

    def _sizes(self, name: str, value: Any) -> str:
        values = value if isinstance(value, list | tuple) else [value]
        if not any(type(one) is int and one in self.sizes for one in values):
            raise _impossible(name, f"{literal_text(value)} has no size of an example in it")
        parts = [self.sizes.get(one, literal_text(one)) if type(one) is int else literal_text(one) for one in values]
        return f"[{', '.join(parts)}]" if isinstance(value, list | tuple) else parts[0]

    def _wildcard(self, name: str, way: str, is_pattern: bool, usual: str | None, text: str) -> str:
        if name in self.wildcards:
            return name
        if way in self.wildcards:
            return way
        if way in self.open:
            # It stands for what is not decided itself.
            self.open += [] if name in self.open else [name]
            return mark(name, text)
        if not is_pattern:
            raise _impossible(name, "it is in the replacement: only what the pattern binds can stand there")
        kind = usual if way == "any" else way
        if kind is None:
            raise _impossible(name, f"no type of variables fits {text}")
        try:
            parse_variable(name, kind)
        except VariableSyntaxError as error:
            raise _impossible(name, f"{way!r} is no decision: {error.message}") from None
        self.wildcards[name] = kind
        return name


def literal_text(value: Any) -> str:
    """Return a literal as the rule language writes it.

    Raises:
        TypeError: The language has no such literal.
    """
    if isinstance(value, list | tuple):
        return f"[{', '.join(literal_text(one) for one in value)}]"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, torch.dtype | torch.memory_format | torch.layout | torch.device):
        return _NAMES.get(value, str(value))
    raise TypeError(f"the rule language has no literal for {value!r}")


def operator_word(op: Any) -> str:
    """Return a word for the results of an operator: `softmax` for `aten._softmax.default`."""
    return str(op._schema.name).rpartition("::")[2].strip("_")


def unused(base: str, taken: Iterable[str]) -> str:
    """Return a name like `base` that is not taken."""
    names = set(taken)
    number, name = 1, base
    while name in names:
        number += 1
        name = f"{base}_{number}"
    return name


def _type_of(op: Any, argument: Any, value: Any, first: str | None) -> str | None:
    if first is not None and argument.name in traits_of(op).dims:
        return f"{'axes' if isinstance(value, list | tuple) else 'axis'} of {first}"
    kinds: list[tuple[Any, str]] = [
        (bool, "bool"), (int, "int"), (float, "float"), (str, "str"), (torch.dtype, "dtype"),
    ]  # fmt: skip
    for kind, text in kinds:
        if isinstance(value, kind):
            return text
    if isinstance(value, list | tuple) and value:
        for element, text in ((int, "ints"), (float, "floats")):
            if all(type(one) is element for one in value):
                return text
    return None


def _is_equal(example: Any, value: Any) -> bool:
    """Whether a literal is the value of an argument; lowering may have made a float of an integer."""
    if isinstance(example, bool) or isinstance(value, bool) or not isinstance(example, int | float):
        return same_literal(example, value)
    return isinstance(value, int | float) and value == example


def _impossible(name: str, why: str) -> UsageError:
    return UsageError(Diagnostic(code="EK265", message=f"{name} cannot be decided like this: {why}", expected=WAYS))


# Rules from traces: two functions on example tensors become a rule, in which every literal is to be decided on


_SIZE_NAMES = ("N", "K", "M", "L", "P", "Q", "R", "T")
_LONGEST_INNER = 80


@dataclass(frozen=True)
class TracedRule:
    """A rule made from a trace.

    Attributes:
        rule: The rule, with marks where nothing is decided.
        literals: All literals of the trace.
        undecided: Names of those that are marked.
        defaults: Defaults that the pattern asks for, since the trace leaves the arguments out.
    """

    rule: Rule
    literals: tuple[TracedLiteral, ...]
    undecided: tuple[str, ...]
    defaults: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """A book with the rule, as YAML; what is to be decided is said above it."""
        book = write_book(RuleBook(rulebook=1, rules=(self.rule,)))
        return "".join(f"# {line}\n" for line in self._to_do()) + book

    def _to_do(self) -> list[str]:
        named = {one.name: one for one in self.literals}
        said = ["The pattern asks for these defaults:", *(f"- {one}" for one in self.defaults)] if self.defaults else []
        if not self.undecided:
            return said
        lines = ["Decide on every literal: replace DECIDE(name, value) by the value, by a name that has a type under"]
        lines += ["`vars`, or by nothing if the default is meant. --decide NAME=exact|any|default does it too."]
        for name in self.undecided:
            one = named[name]
            default = f"default {one.default}" if one.default is not None else "no default"
            lines.append(f"- {name}: {one.value}, argument {one.argument}, {default}")
        if any(" of quantized_decomposed." in named[name].argument for name in self.undecided):
            lines.append(
                "Instead of a dequantize call and its parameters, a variable typed `q8 [*S]` stands for the value in"
            )
            lines.append("every scheme; `x.q` and `x.scale` are parts of it, and quantized(y, x) has its parameters.")
        return lines + said


def trace_rule(
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    examples: Mapping[str, Any],
    *,
    rule_id: str,
    doc: str | None = None,
    decide: Mapping[str, str] | None = None,
    qualifiers: Mapping[str, str] | None = None,
    lower: Callable[[ExportedProgram], ExportedProgram] | None = None,
) -> TracedRule:
    """Make a rule of two functions.

    Args:
        pattern: What to look for, as a function of tensors and numbers.
        replacement: What replaces it, a function of the same arguments.
        examples: Values of the arguments in their order. A literal that is equal to an example number takes its name.
        rule_id: Id of the rule.
        doc: What the rule does.
        decide: Decisions by name of the literal: `exact`, `any`, `default`, `sizes`, a type of variables, or the name
            of a literal of the pattern that is a wildcard.
        qualifiers: `const`, `param` or `buffer`, by argument.
        lower: Brings an exported program into the dialect in which the rule is to be applied; as exported otherwise.

    Raises:
        UsageError: EK265, a decision is not possible; EK266, a function cannot be made part of a rule.
    """
    tensors = {name: value for name, value in examples.items() if isinstance(value, torch.Tensor)}
    sizes = size_names([value.shape for value in tensors.values()], set(examples))
    decisions = Decisions(
        given=dict(decide or {}),
        scalars={name: value for name, value in examples.items() if name not in tensors},
        sizes=sizes,
        taken={*examples, *sizes.values()},
    )
    texts: dict[str, str] = {}
    for part, function in (("match", pattern), ("replace", replacement)):
        program = _exported(function, examples, part)
        program = program if lower is None else lower(program)
        texts[part] = _Writer(program, list(examples), decisions, part).text()
    decisions.check_all_met()
    kinds = {name: f"{one} " for name, one in (qualifiers or {}).items()}
    types = {name: kinds.get(name, "") + _tensor_type(value, sizes) for name, value in tensors.items()}
    rule = Rule(id=rule_id, doc=doc, vars={**types, **decisions.wildcards}, match=texts["match"],
                replace=texts["replace"])  # fmt: skip
    return TracedRule(rule, tuple(decisions.literals.values()), tuple(decisions.open), tuple(decisions.defaults))


class _Writer:
    """Writes the graph of one function as a program of the rule language."""

    def __init__(self, program: ExportedProgram, names: list[str], decisions: Decisions, part: str) -> None:
        self.program = program
        self.names = names
        self.decisions = decisions
        self.part = part
        self.nodes: dict[Node, str] = {}
        self.roots: list[Node] = []
        self.lines: list[str] = []
        self.uses: dict[Node, int] = {}
        self.inputs: dict[Node, str] = {}

    def text(self) -> str:
        """Return the program."""
        results = self.roots = self._results()
        self._count(results)
        self._bind_inputs()
        for node in self.program.graph.nodes:
            if node in self.uses and node not in self.nodes:
                self._write(node)
        return "".join(f"{line}\n" for line in [*self.lines, f"return {', '.join(self.nodes[one] for one in results)}"])

    def _results(self) -> list[Node]:
        signature = self.program.graph_signature
        # A pattern may be written in place: what it computes counts, and matches calls that write and others.
        allowed = {OutputKind.USER_OUTPUT} | ({OutputKind.USER_INPUT_MUTATION} if self.part == "match" else set())
        if any(spec.kind not in allowed for spec in signature.output_specs):
            raise _unusable(self.part, "it writes to a tensor")
        (output,) = (node for node in self.program.graph.nodes if node.op == "output")
        kinds = [spec.kind for spec in signature.output_specs]
        results = [one for one, kind in zip(output.args[0], kinds, strict=True) if kind is OutputKind.USER_OUTPUT]
        may_be_input = self.part == "replace"
        if not results or not all(
            isinstance(one, Node) and (may_be_input or one.op == "call_function") for one in results
        ):
            is_given = any(isinstance(one, Node) and one.op == "placeholder" for one in results)
            hint = "write a rule about what the program stores, takes or gives by hand: `match: return stored(c)`"
            raise _unusable(
                self.part, "each of its results has to be computed, as a tensor", hint if is_given else None
            )
        return results

    def _count(self, results: list[Node]) -> None:
        """Count the uses of everything that the results need."""
        pending = [*results]
        for one in results:
            self.uses[one] = self.uses.get(one, 0) + 1
        seen: set[Node] = set()
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            for source in _sources(node):
                self.uses[source] = self.uses.get(source, 0) + 1
                pending.append(source)

    def _bind_inputs(self) -> None:
        specs = self.program.graph_signature.input_specs
        placeholders = [node for node in self.program.graph.nodes if node.op == "placeholder"]
        given = iter(self.names)
        for spec, node in zip(specs, placeholders, strict=True):
            if spec.kind is InputKind.USER_INPUT:
                name = next(given)
                if isinstance(node.meta.get("val"), torch.Tensor):
                    self.nodes[node] = self.inputs[node] = name
                    if self.part == "match" and node not in self.uses:
                        raise _unusable(self.part, f"it does not use its argument {name!r}")
            elif node in self.uses and not self._is_number(node):
                raise _unusable(self.part, f"it uses a tensor {node.name} from elsewhere", "make it an argument")

    def _is_number(self, node: Node) -> bool:
        value = node.meta.get("val")
        return isinstance(value, torch.Tensor) and value.dim() == 0 and self._stored(node) is not None

    def _stored(self, node: Node) -> torch.Tensor | None:
        signature = self.program.graph_signature
        name = signature.inputs_to_lifted_tensor_constants.get(node.name) or signature.inputs_to_buffers.get(node.name)
        value = self.program.constants.get(name or "", self.program.state_dict.get(name or ""))
        return value if isinstance(value, torch.Tensor) else None

    def _write(self, node: Node) -> None:
        if node.op == "placeholder":
            return
        if node.target is operator.getitem:
            base, index = node.args
            assert isinstance(base, Node), "results are of calls"
            self.nodes[node] = f"{self.nodes[base]}[{index}]"
            return
        op = underlying(node.target)
        if node.op != "call_function" or not hasattr(op, "_schema"):
            raise _unusable(self.part, f"{node.target} is no operator that rules can name")
        if op._schema.is_mutable:
            raise _unusable(self.part, f"it writes to a tensor, with {name_of(op)}")
        call = f"{name_of(op)}({', '.join(self._arguments(node, op))})"
        is_single = isinstance(node.meta.get("val"), torch.Tensor)
        is_short = node in self.roots or len(call) <= _LONGEST_INNER
        if is_single and self.uses[node] == 1 and is_short:
            self.nodes[node] = call
            return
        name = unused(operator_word(op), {*self.decisions.taken, *self.decisions.literals, *self.nodes.values()})
        self.lines.append(f"{name} = {call}")
        self.nodes[node] = name

    def _arguments(self, node: Node, op: Any) -> list[str]:
        parts: list[str] = []
        by_name = False
        for index, argument in enumerate(op._schema.arguments):
            is_positional = index < len(node.args) and not argument.kwarg_only
            if not is_positional and argument.name not in node.kwargs:
                by_name = True
                if self.part == "match" and argument.has_default_value():
                    widened = self.decisions.left_out(op, argument, first=self._first(node))
                    parts += [] if widened is None else [f"{argument.name}={widened}"]
                continue
            value = node.args[index] if is_positional else node.kwargs[argument.name]
            text = self._value(node, argument, value)
            if text is None:
                by_name = True
                continue
            parts.append(f"{argument.name}={text}" if by_name or not is_positional else text)
        return parts

    def _value(self, node: Node, argument: Any, value: Any) -> str | None:
        if isinstance(value, Node):
            if value in self.nodes:
                return self.nodes[value]
            stored = self._stored(value)
            assert stored is not None, "inputs are bound, and constants are numbers"
            value = self.decisions.example_of(stored)
        if isinstance(value, list | tuple) and any(isinstance(one, Node) for one in value):
            return f"[{', '.join(self._value(node, argument, one) or 'None' for one in value)}]"
        try:
            return self.decisions.written(
                underlying(node.target), argument, value, first=self._first(node), is_pattern=self.part == "match"
            )
        except TypeError as error:
            raise _unusable(self.part, str(error)) from None

    def _first(self, node: Node) -> str | None:
        """Return the name of the input that is the first argument of a call."""
        first = next(iter(node.args), None)
        return self.inputs.get(first) if isinstance(first, Node) else None


def _sources(node: Node) -> list[Node]:
    found: list[Node] = []
    torch.fx.node.map_arg((node.args, node.kwargs), found.append)
    return found


class _Function(torch.nn.Module):
    """A module around a function, for torch to export."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def _exported(function: Callable[..., Any], examples: Mapping[str, Any], part: str) -> ExportedProgram:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # A tensor that two arguments share could not be told apart where the function writes to one of them.
            given = tuple(one.clone() if isinstance(one, torch.Tensor) else one for one in examples.values())
            program = torch.export.export(_Function(function).eval(), given, strict=False)
            return program.run_decompositions({}) if any(map(writes, program.graph.nodes)) else program
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        what = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
        raise _unusable(part, f"torch.export failed: {what}", "call it with the examples to see the error") from error


def size_names(shapes: Iterable[Sequence[Any]], taken: Collection[str]) -> dict[int, str]:
    """Name the sizes in order of appearance; a size of one stays one, since it may broadcast."""
    names: dict[int, str] = {}
    for shape in shapes:
        for size in shape:
            if isinstance(size, int) and size > 1 and size not in names:
                used = {*taken, *names.values()}
                free = next((one for one in _SIZE_NAMES if one not in used), None)
                names[size] = free or unused("D", used)
    return names


def _tensor_type(value: torch.Tensor, sizes: Mapping[int, str]) -> str:
    dims = ", ".join(sizes.get(size, str(size)) for size in value.shape)
    return f"{'bool' if value.dtype is torch.bool else shown(value.dtype)} [{dims}]"


def _unusable(part: str, why: str, hint: str | None = None) -> UsageError:
    what = "the pattern" if part == "match" else "the replacement"
    return UsageError(Diagnostic(code="EK266", message=f"{what} cannot be part of a rule: {why}", hint=hint))
