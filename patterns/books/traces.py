"""Rules from traces: functions on example tensors become a rule, in which every literal is to be decided on."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import FunctionType, MappingProxyType
from typing import Any, Literal

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx import GraphModule, Node

from exirkit.ir import Diagnostic, UsageError, forget_traces, graph_argument, pytree, underlying
from exirkit.patterns.books.model import Rule, RuleBook, write_book
from exirkit.patterns.books.traced_bodies import (
    BodyExample,
    Spread,
    bind_parameters,
    called_with,
    items_of,
    only_said,
    write_applied,
    write_control_flow,
)
from exirkit.patterns.books.traced_lists import Element, TracedLists, list_example
from exirkit.patterns.books.traced_literals import Decisions, TracedLiteral, operator_word, size_names, unused
from exirkit.patterns.books.traced_sizes import check_varying, dynamic_shapes, write_size
from exirkit.patterns.explain.value_descriptions import shown
from exirkit.patterns.operators.in_place import writes
from exirkit.patterns.operators.table import name_of
from exirkit.patterns.syntax.value_roots import NEW, VALUE_ROOTS

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
    root: str | None = None,
    uses: Callable[..., Any] | None = None,
    varying: Collection[str] = (),
) -> TracedRule:
    """Make a rule of two functions, or of three if it is about a value of the program.

    Args:
        pattern: What to look for, as a function of tensors and numbers. With `root` it returns its one argument.
        replacement: What replaces it, a function of the same arguments.
        examples: Values of the arguments in their order. A literal that is equal to an example number takes its name.
            A `BodyExample` stands for a body of control flow, or for operands; a list of tensors for any number of
            them, which a pattern treats alike.
        rule_id: Id of the rule.
        doc: What the rule does.
        decide: Decisions by name of the literal: `exact`, `any`, `default`, `sizes`, a type of variables, or the name
            of a literal of the pattern that is a wildcard.
        qualifiers: `const`, `param` or `buffer`, by argument.
        lower: Brings an exported program into the dialect in which the rule is to be applied; as exported otherwise.
            What replaces a value of the program is written as exported: such operators stand for those of Edge.
        root: `stored`, `input` or `output`: the rule is about such a value of the program.
        uses: What computes from that which replaces the value what its uses get; needed where dtype or sizes differ.
        varying: Names of sizes that vary at run time, as the types of the rule have them. Functions are exported with
            symbols for these.

    Raises:
        UsageError: EK256, an example of a body or of a list is none; EK265, a decision is not possible; EK266, a
            function cannot be made part of a rule.
    """
    lists = {name: found for name, value in examples.items() if (found := list_example(name, value)) is not None}
    tensors = {name: value for name, value in examples.items() if isinstance(value, torch.Tensor)}
    tensors |= {name: value[0] for name, value in lists.items()}
    sizes = size_names([tensors[name].shape for name in examples if name in tensors], set(examples))
    check_varying(varying, sizes)
    decisions = Decisions(
        given=dict(decide or {}),
        scalars={
            name: value
            for name, value in examples.items()
            if name not in tensors and not isinstance(value, BodyExample)
        },
        sizes=sizes,
        taken={*examples, *sizes.values()},
    )
    texts: dict[str, str] = {}
    measure: Literal["once"] | None = None
    if root is not None and varying:
        raise unusable("match", f"sizes of {root}(...) cannot vary", "write `varying` by hand, and try it")
    if root is not None:
        texts = _about_value(root, pattern, replacement, uses, examples, decisions)
        # A rule about every value of a dtype and rank would match what it makes.
        measure = "once" if _may_match_again(replacement, examples) else None
    for part, function in (("match", pattern), ("replace", replacement)) if root is None else ():
        program = _exported(function, examples, part, sizes, varying)
        program = program if lower is None else lower(program)
        texts[part] = Writer(program, examples, decisions, part).text()
    decisions.check_all_met()
    kinds = {name: f"{one} " for name, one in (qualifiers or {}).items()} | dict.fromkeys(lists, "list of ")
    types = {name: kinds.get(name, "") + _tensor_type(value, sizes) for name, value in tensors.items()}
    types |= {name: value.type for name, value in examples.items() if isinstance(value, BodyExample)}
    rule = Rule(id=rule_id, doc=doc, vars={**types, **decisions.wildcards}, match=texts["match"],
                replace=texts["replace"], uses=texts.get("uses"), measure=measure, varying=tuple(varying))  # fmt: skip
    return TracedRule(rule, tuple(decisions.literals.values()), tuple(decisions.open), tuple(decisions.defaults))


def _about_value(
    root: str,
    pattern: Callable[..., Any],
    replacement: Callable[..., Any],
    uses: Callable[..., Any] | None,
    examples: Mapping[str, Any],
    decisions: Decisions,
) -> dict[str, str]:
    """Return the parts of a rule about a value of the program.

    Raises:
        UsageError: EK266, a function cannot be made part of such a rule, or `uses` does not give the value back.
    """
    if root not in VALUE_ROOTS:
        raise unusable("match", f"{root!r} is not a value of the program", f"it is one of {', '.join(VALUE_ROOTS)}")
    if len(examples) != 1 or not all(isinstance(one, torch.Tensor) for one in examples.values()):
        raise unusable("match", f"a rule about {root}(...) has one argument, a tensor")
    ((name, value),) = examples.items()
    if _identity(pattern, examples) is None:
        raise unusable(
            "match", f"with {root}(...) it returns its argument {name!r} as it is", "def pattern(x): return x"
        )
    texts = {"match": f"return {root}({name})\n"}
    program = _exported(replacement, examples, "replace", is_decomposed=True)
    texts["replace"] = Writer(program, examples, decisions, "replace", root).text()
    new = _called(replacement, value, "replace")
    if uses is None:
        _check_same(value, new, "replace", f"say with `uses` what computes the uses of {name!r} from it")
        return texts
    given = {NEW: new}
    texts["uses"] = Writer(_exported(uses, given, "uses", is_decomposed=True), given, decisions, "uses").text()
    _check_same(value, _called(uses, new, "uses"), "uses", f"it computes from `new` what the uses of {name!r} get")
    return texts


def _may_match_again(replacement: Callable[..., Any], examples: Mapping[str, Any]) -> bool:
    value: torch.Tensor = next(iter(examples.values()))
    new = _called(replacement, value, "replace")
    return new.dtype == value.dtype and new.dim() == value.dim()


def _identity(pattern: Callable[..., Any], examples: Mapping[str, Any]) -> Node | None:
    """Return the argument that a function returns as it is."""
    program = _exported(pattern, examples, "match")
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    results = [one for one in output.args[0] if isinstance(one, Node)]
    return results[0] if len(output.args[0]) == 1 and results and results[0].op == "placeholder" else None


def _called(function: Callable[..., Any], value: torch.Tensor, part: str) -> torch.Tensor:
    with torch.no_grad():
        found = function(value.clone())
    if not isinstance(found, torch.Tensor):
        raise unusable(part, "its result is not one tensor")
    return found


def _check_same(value: torch.Tensor, other: torch.Tensor, part: str, hint: str) -> None:
    if value.dtype != other.dtype or value.shape != other.shape:
        is_, was = (f"{shown(one.dtype)} {list(one.shape)}" for one in (other, value))
        raise unusable(part, f"its result is {is_}, and the value {was}", hint)


_WORDS = {
    "aten._to_copy.default": "cast",
    "aten.permute.default": "permute",
    "aten.transpose.int": "transpose",
    "aten.view.default": "reshape",
    "aten.reshape.default": "reshape",
    "aten.expand.default": "expand",
    "aten.flip.default": "flip",
}


class Writer:
    """Writes the graph of one function as a program of the rule language.

    Args:
        program: The traced function.
        examples: What it was called with.
        decisions: About literals.
        part: `match`, `replace` or `uses`.
        root: The value of the program that the rule is about.
        module: A body of control flow, if it is not the whole program that is written.
        around: Writer of the graph that calls the body, or in a line of which calls are written.
    """

    def __init__(
        self,
        program: ExportedProgram,
        examples: Mapping[str, Any],
        decisions: Decisions,
        part: str,
        root: str | None = None,
        *,
        module: GraphModule | None = None,
        around: Writer | None = None,
    ) -> None:
        self.program = program
        self.graph = program.graph if module is None else module.graph
        self.around = around
        self.is_body = module is not None
        self.root = root
        self.examples = examples
        self.functions = {name for name, one in examples.items() if isinstance(one, BodyExample)}
        self.decisions = decisions
        self.part = part
        self.nodes: dict[Node, str] = {}
        self.spreads: dict[Node, Spread] = {}
        self.lists = TracedLists(self)
        self.numbers: dict[Node, torch.Tensor | None] = {}
        self.parameters = ""
        self.roots: list[Node] = []
        self.lines: list[str] = []
        self.uses: dict[Node, int] = {}
        self.inputs: dict[Node, str] = {}

    def text(self) -> str:
        """Return the program."""
        results = self.roots = self._results()
        self._bind_inputs(results)
        self.write_all(results)
        made = ", ".join(items_of(self, results))
        return "".join(
            f"{line}\n" for line in [*self.lines, f"return {self.root}({made})" if self.root else f"return {made}"]
        )

    def inside(self, module: GraphModule, handed: list[Any], order: list[Any]) -> Writer:
        """Return a writer for a body of control flow that is given operands, which the rule has in some order."""
        made = Writer(self.program, self.examples, self.decisions, self.part, module=module, around=self)
        made.parameters = bind_parameters(made, handed, order)
        return made

    def inline(self, known: Mapping[Node, str]) -> Writer:
        """Return a writer for calls that are written inside of one line, with names for what they are given."""
        made = Writer(self.program, self.examples, self.decisions, self.part, around=self)
        made.graph, made.is_body = self.graph, False
        made.nodes = {**self.nodes, **known}
        made.numbers = {node: self.stored(node) for node in self.graph.find_nodes(op="placeholder")}
        return made

    def write_all(self, results: list[Any]) -> None:
        """Write the calls that results need."""
        self._count([one for one in results if isinstance(one, Node)])
        for node in self.graph.nodes:
            if (
                node in self.uses
                and node not in self.nodes
                and node not in self.spreads
                and not self.lists.defers(node)
            ):
                self._write(node)

    def new_name(self, base: str, besides: Collection[str] = ()) -> str:
        """Return a name that means nothing else, and is none of those besides."""
        around = self.around
        texts = {*self.nodes.values(), *(one.text for one in self.spreads.values())}
        while around is not None:
            texts |= {*around.nodes.values()}
            around = around.around
        return unused(base, {*self.decisions.taken, *self.decisions.literals, *texts, *besides})

    def _results(self) -> list[Node]:
        signature = self.program.graph_signature
        # A pattern may be written in place: what it computes counts, and matches calls that write and others.
        allowed = {OutputKind.USER_OUTPUT} | ({OutputKind.USER_INPUT_MUTATION} if self.part == "match" else set())
        if any(spec.kind not in allowed for spec in signature.output_specs):
            raise unusable(self.part, "it writes to a tensor")
        (output,) = (node for node in self.program.graph.nodes if node.op == "output")
        kinds = [spec.kind for spec in signature.output_specs]
        results = [one for one, kind in zip(output.args[0], kinds, strict=True) if kind is OutputKind.USER_OUTPUT]
        may_be_input = self.part != "match"
        if not results or not all(
            isinstance(one, Node) and (may_be_input or one.op == "call_function") for one in results
        ):
            is_given = any(isinstance(one, Node) and one.op == "placeholder" for one in results)
            hint = "if the rule is about what the program stores, takes or gives, say so: root stored, input or output"
            raise unusable(self.part, "each of its results has to be computed, as a tensor", hint if is_given else None)
        return results

    def _count(self, results: list[Node]) -> None:
        """Count the uses of everything that the results need."""
        for one in (*results, *(source for node in _needed(results) for source in _sources(node))):
            self.uses[one] = self.uses.get(one, 0) + 1

    def _bind_inputs(self, results: list[Node]) -> None:
        specs = self.program.graph_signature.input_specs
        placeholders = [node for node in self.graph.nodes if node.op == "placeholder"]
        given = iter(_names_of_inputs(self.examples))
        used = _needed(results)
        for spec, node in zip(specs, placeholders, strict=True):
            if spec.kind is InputKind.USER_INPUT:
                name = next(given)
                if isinstance(node.meta.get("val"), torch.Tensor):
                    said = name if isinstance(name, str) else name.text
                    if isinstance(name, Spread):
                        self.spreads[node] = name
                    elif isinstance(name, Element):
                        self.lists.add(node, name)
                    else:
                        self.nodes[node] = self.inputs[node] = name
                    if self.part == "match" and node not in used and said not in only_said(self.examples):
                        raise self.unusable(f"it does not use its argument {said!r}")
            elif node in used and not self.is_number(node):
                raise self.unusable(f"it uses a tensor {node.name} from elsewhere", "make it an argument")

    @property
    def place(self) -> str:
        """What is written, in words."""
        return "a body" if self.is_body else "an element of a list"

    def is_number(self, node: Any) -> bool:
        """Whether a node is a number that the program stores."""
        value = node.meta.get("val") if isinstance(node, Node) else None
        return isinstance(value, torch.Tensor) and value.dim() == 0 and self.stored(node) is not None

    def unusable(self, why: str, hint: str | None = None) -> UsageError:
        """Return the error that the function cannot be part of a rule, EK266."""
        return unusable(self.part, why, hint)

    def stored(self, node: Node) -> torch.Tensor | None:
        """Return the tensor of an input that the program stores."""
        if self.around is not None:
            return self.numbers.get(node)
        signature = self.program.graph_signature
        name = signature.inputs_to_lifted_tensor_constants.get(node.name) or signature.inputs_to_buffers.get(node.name)
        value = self.program.constants.get(name or "", self.program.state_dict.get(name or ""))
        return value if isinstance(value, torch.Tensor) else None

    def _write(self, node: Node) -> None:
        if node.op == "placeholder" or graph_argument(node) is not None or write_control_flow(self, node):
            return
        if write_size(self, node):
            return
        if node.target is operator.getitem:
            base, index = node.args
            assert isinstance(base, Node), "results are of calls"
            self.nodes[node] = f"{self.nodes[base]}[{index}]"
            return
        op = underlying(node.target)
        if node.op != "call_function" or not hasattr(op, "_schema"):
            raise unusable(self.part, f"{node.target} is not an operator that rules can name")
        if op._schema.is_mutable:
            raise unusable(self.part, f"it writes to a tensor, with {name_of(op)}")
        if write_applied(self, node):
            return
        arguments = ", ".join(self._arguments(node, op))
        call = self._word(op, arguments) if self.root == "stored" else f"{name_of(op)}({arguments})"
        is_single = isinstance(node.meta.get("val"), torch.Tensor)
        is_short = node in self.roots or len(call) <= _LONGEST_INNER
        if is_single and (self.around is not None or (self.uses[node] == 1 and is_short)):
            if self.uses[node] > 1 and self.part == "match":
                raise self.unusable(
                    f"{self.place} uses what {name_of(op)} computes twice",
                    f"{self.place} of a pattern names nothing: write it by hand",
                )
            self.nodes[node] = call
            return
        if self.around is not None:
            raise self.unusable(f"{self.place} calls {name_of(op)}, which has several results")
        name = self.new_name(operator_word(op))
        self.lines.append(f"{name} = {call}")
        self.nodes[node] = name

    def _word(self, op: Any, arguments: str) -> str:
        """Return the call of a word: what is stored is computed while the program is lowered, by words."""
        word = _WORDS.get(name_of(op))
        if word is None:
            hint = f"words are {', '.join(dict.fromkeys(_WORDS.values()))} ...: write others by hand"
            raise unusable(self.part, f"no word computes {name_of(op)} while a program is lowered", hint)
        return f"{word}({arguments.replace('dtype=', '') if word == 'cast' else arguments})"

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
            alone = self.lists.text_of(value)
            if alone is not None:
                return alone
            if value in self.spreads:
                raise self.unusable(
                    f"{self.spreads[value].text} is any number of values: {name_of(underlying(node.target))} takes one"
                )
            stored = self.stored(value)
            assert stored is not None, "inputs are bound, and constants are numbers"
            value = self.decisions.example_of(stored)
        if isinstance(value, list | tuple) and any(isinstance(one, Node) for one in value):
            listed = self.lists.text_of_list(value)
            if listed is not None:
                return listed
            return f"[{', '.join(self._value(node, argument, one) or 'None' for one in value)}]"
        try:
            return self.decisions.written(
                underlying(node.target), argument, value, first=self._first(node), is_pattern=self.part == "match"
            )
        except TypeError as error:
            raise unusable(self.part, str(error)) from None

    def text_of(self, value: Any) -> str:
        """Return the text of one value.

        Raises:
            UsageError: EK266, it is not a single tensor that the function computes or is given.
        """
        text = self.nodes.get(value) or self.lists.text_of(value)
        if text is not None:
            return text
        raise self.unusable(f"{value} is not a tensor that it computes or is given")

    def _first(self, node: Node) -> str | None:
        """Return the name of the input that is the first argument of a call."""
        first = next(iter(node.args), None)
        return self.inputs.get(first) if isinstance(first, Node) else None


def _needed(results: list[Node]) -> dict[Node, None]:
    """Return everything that results need."""
    found: dict[Node, None] = {}
    pending = [*results]
    while pending:
        node = pending.pop()
        if node not in found:
            found[node] = None
            pending += _sources(node)
    return found


def _names_of_inputs(examples: Mapping[str, Any]) -> list[str | Spread | Element]:
    """Return the name of each input of a traced function; bodies are none, operands and lists are several."""
    names: list[str | Spread | Element] = []
    for name, example in called_with(examples).items():
        if isinstance(example, list) and isinstance(examples[name], BodyExample):
            names += [Spread(name, index, len(example)) for index in range(len(example))]
        elif list_example(name, example) is not None:
            names += [Element(name, index, len(example)) for index in range(len(example))]
        elif not isinstance(example, FunctionType):
            names.append(name)
    return names


def _sources(node: Node) -> list[Node]:
    found: list[Node] = []
    torch.fx.node.map_arg((node.args, node.kwargs), found.append)
    return found


class _Function(torch.nn.Module):
    """A module around a function, for torch to export."""

    def __init__(self, function: Callable[..., Any], bodies: Mapping[int, Callable[..., Any]]) -> None:
        super().__init__()
        self.function = function
        self.bodies = bodies

    def forward(self, *args: Any) -> Any:
        given = iter(args)
        count = len(args) + len(self.bodies)
        return self.function(*(self.bodies[one] if one in self.bodies else next(given) for one in range(count)))


def _exported(
    function: Callable[..., Any],
    examples: Mapping[str, Any],
    part: str,
    sizes: Mapping[int, str] = MappingProxyType({}),
    varying: Collection[str] = (),
    *,
    is_decomposed: bool = False,
) -> ExportedProgram:
    arguments = list(called_with(examples).values())
    bodies = {at: one for at, one in enumerate(arguments) if isinstance(one, FunctionType)}
    # A tensor that two arguments share could not be told apart where the function writes to one of them.
    given = tuple(
        pytree.tree_map_only(torch.Tensor, torch.clone, one) for one in arguments if not isinstance(one, FunctionType)
    )
    if any(isinstance(one, BodyExample) for one in examples.values()):
        # Torch fails when it tells why it traces control flow again, with other operands.
        forget_traces()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shapes = (dynamic_shapes(given, sizes, varying),) if varying else None
            program = torch.export.export(
                _Function(function, bodies).eval(), given, dynamic_shapes=shapes, strict=False
            )
            is_written = any(map(writes, program.graph.nodes))
            return program.run_decompositions({}) if is_decomposed or is_written else program
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        what = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
        raise unusable(part, f"torch.export failed: {what}", "call it with the examples to see the error") from error


def _tensor_type(value: torch.Tensor, sizes: Mapping[int, str]) -> str:
    dims = ", ".join(sizes.get(size, str(size)) for size in value.shape)
    return f"{'bool' if value.dtype is torch.bool else shown(value.dtype)} [{dims}]"


def unusable(part: str, why: str, hint: str | None = None) -> UsageError:
    """Return the error that a function cannot be part of a rule, EK266."""
    what = {"match": "the pattern", "replace": "the replacement", "uses": "`uses`"}[part]
    return UsageError(Diagnostic(code="EK266", message=f"{what} cannot be part of a rule: {why}", hint=hint))
