"""One application of a rule: whether the match is legal, what replaces it, and whether the contract is honoured."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch.fx import Node
from torch.fx.node import map_arg

from exirkit.ir import (
    INFER,
    DeferredTensor,
    DiagnosticError,
    EdgeOpOverload,
    FakeTensor,
    FakeTensorMode,
    GraphEditor,
    HigherOrderOperator,
    NotComputableError,
    ProgramInterface,
    SealedSubgraphError,
    ShapeEnvGuardError,
    SubgraphEditor,
    copy_graph_module,
    dim_order_from_stride,
    edge_operator,
    end_bytes,
    fake_like,
    graph_argument,
    handles_like,
    has_effect,
    infer_value,
    is_module_program,
    is_pure,
    no_new_guards,
    returns_view,
    same_argument,
    same_value,
    shared_results,
    stride_from_dim_order,
    underlying,
)
from exirkit.patterns.books.model import broken_measure
from exirkit.patterns.engine.bodies import make_run
from exirkit.patterns.engine.program_facts import RULE_KEY, ProgramFacts
from exirkit.patterns.engine.run_time_numbers import RunTimeNumbers
from exirkit.patterns.engine.same_expressions import is_same_tensor, is_what_is_there
from exirkit.patterns.forms.catalogue import copying
from exirkit.patterns.forms.composites import FoundComposites
from exirkit.patterns.matching.attributes import carriers, depend_on_each_other, unsaid_attribute
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.matching.state import FailureTrace, State
from exirkit.patterns.operators.arguments import is_remark, may_pass, tensor_places
from exirkit.patterns.operators.control_flow import ControlFlow
from exirkit.patterns.operators.defined import TensorBuilder
from exirkit.patterns.operators.in_place import calls_by_target, memory_of, writes, writes_by_memory
from exirkit.patterns.operators.table import traits_of
from exirkit.patterns.syntax.attributes import Attribute
from exirkit.patterns.syntax.constant_names import FACTS, ConstantNames
from exirkit.patterns.syntax.expressions import ExpressionError, NameView, UndecidedError, compare
from exirkit.patterns.syntax.programs import Builder
from exirkit.patterns.syntax.replacement_words import BUILDER
from exirkit.patterns.syntax.terms import Operator
from exirkit.patterns.syntax.value_roots import WITHOUT_USES

# From a replacement to nodes: calls are made by the graph editor, constants enter signature and state through it


_PLAIN = frozenset({int, float, bool, str, type(None)})
"""Types of arguments that are given as they are."""


class GraphBuilder:
    """Makes nodes in front of a place.

    Args:
        editor: Editor, inside a transaction.
        before: Where new calls stand.
        origins: Nodes that they stand for, the anchor first.
        wrap: From an operator to what the dialect calls it.
        lifts_numbers: Numbers given for tensors become constants, as in Edge.
        name: Wish for the names of constants.
        sizes: Where sizes that vary can be read: tensors by symbol.
        store_as: How tensors are stored that a replacement says to store, as a kind of input, and whether it persists.
        stored: Stored tensors of the match: what users note of them under `custom`, new constants have too.

    Attributes:
        made: New calls, in order.
        constants: New placeholders.
    """

    def __init__(
        self,
        editor: GraphEditor,
        before: Node,
        origins: Sequence[Node],
        *,
        wrap: Any,
        lifts_numbers: bool,
        name: str,
        sizes: Sequence[Node] = (),
        store_as: tuple[InputKind, bool] = (InputKind.CONSTANT_TENSOR, True),
        stored: Sequence[Node] = (),
    ) -> None:
        self.editor = editor
        self.before = before
        self.origins = tuple(origins)
        self.wrap = wrap
        self.lifts_numbers = lifts_numbers
        self.name = name
        self.store_as = store_as
        self._custom = next((one.meta["custom"] for one in stored if "custom" in one.meta), None)
        self.made: list[Node] = []
        self.constants: list[Node] = []
        self._numbers = RunTimeNumbers(self.make, wrap(torch.ops.aten.sym_size.int), sizes)
        self._tensors: dict[int, tuple[torch.Tensor, Node]] = {}

    def call(self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call; return its node, or its results if it has several."""
        if isinstance(op, ControlFlow):
            given = [*args, *(kwargs[one.name] for one in op._schema.arguments[len(args) :])]
            node = make_run(self, op, given)
            return Results(self, node, len(node.meta["val"]))
        lifted = tensor_places(op) if self.lifts_numbers else ()
        positional = [self._argument(value, at in lifted) for at, value in enumerate(args)]
        named = {key: self._argument(value, key in lifted) for key, value in kwargs.items()}
        node = self.make(self.wrap(op), tuple(positional), named)
        value = node.meta.get("val")
        return Results(self, node, len(value)) if isinstance(value, list | tuple) else node

    def put_attribute(self, value: Any, attribute: Attribute, fields: Mapping[str, Any]) -> Any:
        """Give a new call an attribute; return its node.

        Raises:
            ExpressionError: It is not a new call, or a field is not known while the program is lowered.
        """
        if not isinstance(value, Node) or value not in self.made:
            raise ExpressionError(f"attribute {attribute.name} can be given to a new call only")
        for name, field_value in fields.items():
            if isinstance(field_value, Node | torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool):
                raise ExpressionError(f"field {name!r} of attribute {attribute.name} is not a plain value")
        attribute.write(value, fields, self.editor.set_meta)
        return value

    def item(self, node: Node, index: int) -> Node:
        """Return the node of one result of a call."""
        known = next((u for u in node.users if u.target is operator.getitem and u.args[1] == index), None)
        return known if known is not None else self.make(operator.getitem, (node, index), {})

    def store(self, tensor: torch.Tensor) -> Node:
        """Store a tensor as what it replaces is stored: as a parameter, a buffer or a constant."""
        return self._constant(tensor, self.store_as)

    def take(self, compute: Callable[[Any], Any], names: Mapping[str, Any]) -> Node:
        """Let the program take what is computed from an input instead of it; example inputs are computed as well.

        Raises:
            ExpressionError: It is not one tensor, or has sizes that no input can have.
        """
        root = self.origins[0]
        old = root.meta["val"]
        value = compute(_Values(names, {root: old}, _Inference(self.editor.fake_mode)))
        if not isinstance(value, torch.Tensor):
            raise ExpressionError(f"the program would take a {type(value).__name__} instead of %{root.name}")
        if {str(one) for one in value.shape if not isinstance(one, int)} != {
            str(one) for one in old.shape if not isinstance(one, int)
        }:
            raise ExpressionError(f"sizes of %{root.name} that vary would become others")

        def example(given: torch.Tensor) -> Any:
            with torch.no_grad():
                return compute(_Values(names, {root: given}, TensorBuilder()))

        self.editor.set_user_input(root, value, example)
        return root

    def node_of(self, value: Any, like: Any = None) -> Node:
        """Return the node of a result of the replacement.

        Raises:
            ExpressionError: It is neither a node nor a constant.
        """
        found = self.argument(value)
        if isinstance(found, Node):
            return found
        if isinstance(found, int | float | bool) and isinstance(like, torch.Tensor):
            return self._constant(torch.tensor(found, dtype=like.dtype))
        raise ExpressionError(f"a replacement gives tensors, not a {type(found).__name__}")

    def argument(self, value: Any) -> Any:
        """Return a value as an argument of a node.

        Raises:
            ExpressionError: It is a node that cannot be used at this place, or a number that cannot be computed.
        """
        if type(value) in _PLAIN:
            return value
        if isinstance(value, Node):
            return self._usable(value)
        if isinstance(value, torch.Tensor):
            return self._constant(value)
        if isinstance(value, torch.SymInt | torch.SymFloat):
            return self._numbers.argument(value)
        if isinstance(value, torch.SymBool):
            raise ExpressionError("a condition on sizes that vary cannot be an argument here")
        if isinstance(value, Results):
            return [self.argument(one) for one in value]
        if isinstance(value, list | tuple | range):
            # Most are sizes and strides.
            return list(value) if _PLAIN.issuperset(map(type, value)) else [self.argument(one) for one in value]
        return value

    def _usable(self, node: Node) -> Node:
        if node._erased or node.graph is not self.editor.graph:
            raise ExpressionError(f"%{node.name} is not a node of the graph that is rewritten")
        if not node < self.before:
            raise _LateInputError(f"%{node.name} is computed later than the replacement stands")
        return node

    def _argument(self, value: Any, is_lifted: bool) -> Any:
        """Return a value as an argument; a number given for a tensor may have to become one."""
        if not is_lifted:
            return self.argument(value)
        if isinstance(value, int | float | bool):
            dtype = torch.float32 if isinstance(value, float) else None
            return self._constant(torch.tensor(value, dtype=dtype))
        made = self.argument(value)
        if isinstance(value, torch.SymInt | torch.SymFloat):
            # What Edge does with such a number beside a tensor.
            dtype = torch.float32 if isinstance(value, torch.SymFloat) else torch.int64
            return self.make(self.wrap(torch.ops.aten.scalar_tensor.default), (made,), {"dtype": dtype})
        return made

    def copy(self, node: Node, copied: Mapping[Node, Any]) -> Any:
        """Make a call of another graph again.

        Args:
            node: The call.
            copied: What stands here for nodes of that graph.
        """

        def here(one: Node) -> Any:
            return self.argument(copied[one])

        if node.op == "get_attr":
            module = graph_argument(node)
            assert module is not None, "bodies read graphs, and no other attributes"
            return self.editor.add_subgraph(copy_graph_module(module), str(node.target), before=self.before)
        target: Any = node.target
        args, kwargs = map_arg(node.args, here), map_arg(node.kwargs, here)
        made = self.editor.call(target, args, kwargs, before=self.before, origins=(*self.origins[:1], node))
        self.made.append(made)
        return made

    def around(self, node: Node) -> Node:
        """Return what stands here for a constant of the program."""
        return node

    def inside(self, editor: GraphEditor, before: Node, hand: Callable[[Node], Node]) -> GraphBuilder:
        """Return a builder for a body of control flow.

        Args:
            editor: Editor of the body.
            before: Where its calls stand.
            hand: From a stored tensor of the program to what stands for it in the body.
        """
        return _BodyBuilder(self, editor, before, hand)

    def make(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Node:
        """Make a call of a target of the dialect."""
        val = self._value_of_same(target, args, kwargs)
        node = self.editor.call(target, args, kwargs, before=self.before, origins=self.origins, val=val)
        self.made.append(node)
        return node

    def _value_of_same(self, target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Return the value of a call that is among what is replaced: sizes that vary are slow to infer."""
        for one in self.origins:
            value = one.meta.get("val")
            # Arguments are told apart by type as well: of integers, 1 and 1.0 make results of different dtypes.
            is_same = one.target is target and same_argument(one.args, args) and same_argument(one.kwargs, dict(kwargs))
            if is_same and type(value) is FakeTensor:
                is_own = not returns_view(target) and "unbacked_bindings" not in one.meta
                return fake_like(self.editor.fake_mode, value) if is_own else INFER
        return INFER

    def _constant(
        self, tensor: torch.Tensor, store_as: tuple[InputKind, bool] = (InputKind.CONSTANT_TENSOR, True)
    ) -> Node:
        known = self._tensors.get(id(tensor))
        if known is not None:
            return known[1]
        if isinstance(tensor, DeferredTensor):
            try:
                # Done once, to know that it can be done.
                end_bytes(tensor, dim_order_from_stride(tensor.stride(), tensor.shape))
            except NotComputableError as error:
                raise ExpressionError(str(error)) from None
        kind, is_persistent = store_as
        if kind is InputKind.PARAMETER and not (tensor.is_floating_point() or tensor.is_complex()):
            kind = InputKind.BUFFER
        node = self.editor.add_constant(
            tensor, name=self.name, origins=self.origins, kind=kind, persistent=is_persistent
        )
        if self._custom is not None:
            self.editor.set_meta(node, "custom", self._custom)
        self._tensors[id(tensor)] = (tensor, node)
        self.constants.append(node)
        return node


class _BodyBuilder(GraphBuilder):
    """Makes nodes of a body; what it stores, the program around stores, and hands it on.

    Args:
        outer: Builder of the graph around.
        editor: Editor of the body.
        before: Where its calls stand.
        hand: From a stored tensor to what stands for it.
    """

    def __init__(self, outer: GraphBuilder, editor: GraphEditor, before: Node, hand: Callable[[Node], Node]) -> None:
        super().__init__(
            editor, before, outer.origins, wrap=outer.wrap, lifts_numbers=outer.lifts_numbers, name=outer.name
        )
        self.outer = outer
        self.hand = hand

    def around(self, node: Node) -> Node:
        """Return what stands here for a constant of the program: it is handed in."""
        return self.hand(self.outer.around(node))

    def _constant(
        self, tensor: torch.Tensor, store_as: tuple[InputKind, bool] = (InputKind.CONSTANT_TENSOR, True)
    ) -> Node:
        return self.hand(self.outer._constant(tensor, store_as))


class _Inference:
    """Runs calls on fake tensors, and adds no condition on sizes.

    Args:
        mode: Their mode.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self.mode = mode

    def call(self, op: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result, or a list of several."""
        found = infer_value(self.mode, op, args, kwargs)
        return list(found) if isinstance(found, tuple | list) else found


class _Values(NameView):
    """Names of a match in which nodes are their values, and calls are run."""

    def __init__(self, names: Mapping[str, Any], given: Mapping[Node, torch.Tensor], builder: Builder) -> None:
        super().__init__(names)
        self.given = given
        self.builder = builder
        self.is_real = isinstance(builder, TensorBuilder)

    def __getitem__(self, key: str) -> Any:
        if key == BUILDER:
            return self.builder
        value = self.names[key]
        if isinstance(value, Node):
            return self.given.get(value, value.meta.get("val"))
        return _hinted(value) if self.is_real else value


def _hinted(value: Any) -> Any:
    """Return sizes that vary as what they are for the example inputs."""
    if isinstance(value, list | tuple):
        return [_hinted(one) for one in value]
    return int(value.node.hint) if isinstance(value, torch.SymInt) else value


class Results(Sequence[Any]):
    """Results of a call with several; the nodes that take them out are made when they are asked for."""

    def __init__(self, builder: GraphBuilder, node: Node, count: int) -> None:
        self.builder = builder
        self.node = node
        self.length = count

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(self.length)[index]]
        if not -self.length <= index < self.length:
            raise IndexError(f"the call has {self.length} results")
        return self.builder.item(self.node, index % self.length)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(self.length))


# One application of a rule: is the match legal, what takes its place, and does that keep the rule's word


class _LateInputError(ExpressionError):
    """What a replacement reads is computed behind the place where it is to stand."""


class RejectedError(Exception):
    """A match is not rewritten.

    Attributes:
        reason: Why.
        is_fault: The rule is to blame.
    """

    def __init__(self, reason: str, *, is_fault: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_fault = is_fault


@dataclass
class Applied:
    """What an application changed.

    Attributes:
        made: New calls.
        replacements: Values that the users of the roots use now.
        removed: How many calls are gone.
        values: New stored tensors, and inputs of the program that are others now.
        interface: What the program takes or gives instead, as text; None if that is as before.
    """

    made: list[Node] = field(default_factory=list)
    replacements: list[Node] = field(default_factory=list)
    removed: int = 0
    values: list[Node] = field(default_factory=list)
    interface: str | None = None


class RuleApplication:
    """Matches and applies rules in one program.

    Args:
        editor: Editor of the program.
        facts: What is known of it.
        calls: One call of each target in its graph; found here when absent.
        keeps_layouts: Results of another dim order are not taken.
    """

    def __init__(
        self,
        editor: GraphEditor,
        facts: ProgramFacts,
        calls: Collection[Node] | None = None,
        *,
        keeps_layouts: bool = False,
    ) -> None:
        self.editor = editor
        self.facts = facts
        calls = calls_by_target(editor.graph) if calls is None else calls
        self._keeps_layouts = keeps_layouts
        self._wrap, self.is_edge = dialect_of(calls)
        self._is_functional = not any(map(writes, calls))
        self._mutated = _mutated_inputs(editor)
        self.composites = FoundComposites(
            facts, sees_through=self._is_functional, knows_stored=not is_module_program(editor.program)
        )

    def match(self, rule: CompiledRule, node: Node, trace: FailureTrace | None = None) -> State | None:
        """Return how a rule matches at the call behind its first root, or None."""
        state = State(self.facts, {}, trace=trace, sees_through=self._is_functional, composites=self.composites)
        if not rule.match(node, state):
            return None
        if trace is not None:
            trace.is_whole = True
        if not any(root is not None and is_wanted(root) for root in state.roots):
            state.fail("nothing uses the result", node)
            return None
        if not self._results_are_covered(rule, state) or not self._inside_is_private(rule, state):
            return None
        unsaid = unsaid_attribute(rule, state)
        if unsaid is not None:
            state.fail(f"%{unsaid[0].name} has attribute {unsaid[1]}, of which the rule says nothing", unsaid[0])
            return None
        for unwanted in rule.unless:
            if unwanted(node, State(self.facts, dict(state.names), sees_through=self._is_functional)):
                state.fail("a pattern under `unless` matches", node)
                return None
        return state

    def apply(
        self,
        rule: CompiledRule,
        state: State,
        *,
        tuning: Mapping[str, Any] | None = None,
        then: Callable[[Applied], None] | None = None,
    ) -> Applied:
        """Replace a match.

        Args:
            rule: Rule that matches.
            state: How.
            tuning: Values for `tune`; the first ones when absent.
            then: Examines what was done, and may raise: then it is undone.

        Raises:
            RejectedError: It cannot be replaced, or the rule broke its word; nothing has changed.
        """
        roots = [root for root in state.roots if root is not None]
        before = self._place(roots, state) if rule.pattern.kind != "output" else self.editor.graph.output_node()
        try:
            with no_new_guards(self.editor.fake_mode), self.editor.transaction(rule.id, records_effect=False):
                done = self._replace(rule, state, before, rule.tunings[0] if tuning is None else tuning)
                problem = broken_measure(rule.rule.measure, state.nodes, done.made)
                if problem is not None:
                    raise RejectedError(problem, is_fault=True)
                if then is not None:
                    then(done)
                return done
        except _LateInputError as error:
            # One result stands where it stood, behind all that a match has; several may have no place in common.
            raise RejectedError(str(error), is_fault=len(roots) == 1) from error
        except (ExpressionError, UndecidedError) as error:
            raise RejectedError(str(error)) from error
        except ShapeEnvGuardError as error:
            raise RejectedError(f"a size that varies would become fixed: {error}") from error
        except DiagnosticError as error:
            is_fault = not isinstance(error, SealedSubgraphError)
            raise RejectedError(error.diagnostics[0].message, is_fault=is_fault) from error
        finally:
            self.composites.forget()

    def _replace(self, rule: CompiledRule, state: State, before: Node, tuning: Mapping[str, Any]) -> Applied:
        names = self._names(rule, state, tuning)
        # What the program takes has another value from now on.
        olds = {root: root.meta.get("val") for root in state.roots if root is not None}
        case = rule.case_for(names)
        if case.let is not None:
            names.update(case.let.assigned(ConstantNames(names)))
        origins = _origins(rule, state)
        builder = GraphBuilder(
            self.editor,
            before,
            origins,
            wrap=self._wrap,
            lifts_numbers=self.is_edge,
            name=_name_of_constants(rule, state),
            sizes=[one for one in names.values() if isinstance(one, Node)],
            store_as=self._stored_as(rule, state),
            stored=[one for one in names.values() if self.facts.is_kind(one, "stored")],
        )
        # An operator of which nothing is left to compute gives its results in the order of the roots.
        results = case.replace.run(names, builder)
        if len(results) != len(state.roots):
            raise RejectedError(f"{len(results)} results for {len(state.roots)} roots", is_fault=True)
        done = Applied(made=builder.made)
        pairs = [
            (root, builder.node_of(result, olds[root]))
            for root, result in zip(state.roots, results, strict=True)
            if root is not None
        ]
        if rule.rule.carried:
            _carry(rule, state, pairs, builder)
        # What the program takes may change in its layout alone, which calls see without being wrapped.
        is_other = any(not same_value(old, root.meta.get("val")) for root, old in olds.items())
        if not is_other:
            self._check_news(pairs, state, builder)
        if not self._is_functional:
            self._check_writes(pairs, state)
        is_isolated = isinstance(self.editor, SubgraphEditor) and self.editor.is_isolated
        shared = shared_results(self.editor.graph) if is_isolated else 0
        for root, new in pairs:
            done.interface = self._put(rule, root, olds[root], new)
            done.replacements.append(new)
        if is_isolated and shared_results(self.editor.graph) > shared:
            raise RejectedError("a body of control flow may not return what shares memory with its inputs or results")
        for node in builder.made:
            self.editor.set_meta(node, RULE_KEY, (*origins[0].meta.get(RULE_KEY, ()), rule.id))
            for key, entry in rule.rule.meta.tags.items():
                self.editor.set_meta(node, key, entry)
        self._sweep(state, builder, done)
        return done

    def _put(self, rule: CompiledRule, root: Node, old: Any, new: Node) -> str | None:
        """Let what used a root use what replaces it; of an output of the program, only callers get that.

        Returns:
            What the program takes or gives instead, if that has changed.
        """
        if rule.pattern.kind == "output":
            self.editor.replace_in(self.editor.graph.output_node(), root, new)
            return _interface("output", root, old, new)
        self._check_word(rule, root, old, new)
        self.editor.replace(root, new)
        return _interface("input", root, old, root) if rule.pattern.kind == "input" else None

    def _stored_as(self, rule: CompiledRule, state: State) -> tuple[InputKind, bool]:
        root = state.roots[0]
        constants = self.facts.constants
        is_about_stored = rule.pattern.kind == "stored" and root is not None
        return constants.stored_as(root) if is_about_stored and root is not None else (InputKind.CONSTANT_TENSOR, True)

    def _sweep(self, state: State, builder: GraphBuilder, done: Applied) -> None:
        """Take out what nothing uses any more, new nodes that were not needed as well."""
        for node in [*(root for root in state.roots if root is not None), *state.nodes]:
            self._take_out(node)
        for node in reversed(builder.made):
            self.editor.erase_unused(node)
        gone = [node for node in state.nodes if self.facts.is_kind(node, "stored") and not node.users]
        if gone:
            self.editor.remove_inputs(gone)
        if any(isinstance(underlying(node.target), HigherOrderOperator) for node in state.nodes):
            self.editor.drop_unused_subgraphs()
        done.removed = sum(node._erased for node in state.nodes)
        done.made = [node for node in builder.made if not node._erased]
        unused = [node for node in builder.constants if not node._erased and not node.users]
        if unused:
            self.editor.remove_inputs(unused)
        done.values = [node for node in builder.constants if not node._erased]
        done.values += [node for node in state.nodes if node.op == "placeholder" and not node._erased]

    def _take_out(self, node: Node) -> None:
        """Erase a replaced call that nothing uses, random ones as well: the rule answers for what they drew."""
        for result in [user for user in node.users if _is_dead(user)]:
            self.editor.erase_unused(result)
        if all(map(is_remark, node.users)):
            for remark in list(node.users):
                self.editor.erase(remark)
        if node._erased or node.users or node.op != "call_function":
            return
        producers = node.all_input_nodes
        self.editor.erase(node)
        for producer in producers:
            self.editor.erase_unused(producer)

    # Before

    def _results_are_covered(self, rule: CompiledRule, state: State) -> bool:
        """Of a call with several results only those may be used that the pattern names."""
        named = {root for root in state.roots if root is not None}
        for node in state.nodes:
            if not isinstance(node.meta.get("val"), list | tuple):
                continue
            for user in node.users:
                is_inside = all(reader in state.nodes for reader in user.users)
                if not is_inside and user not in named and user not in state.nodes and not _is_named(user, state):
                    return state.fail(f"%{user.name} uses a result that the pattern does not have", node)
        return True

    def _inside_is_private(self, rule: CompiledRule, state: State) -> bool:
        """A matched call inside that others use stays; then the rewrite must not compute more than it saves."""
        roots = {root for root in state.roots if root is not None}
        inside = set(state.nodes) | roots
        kept = {id(state.names[name]) for name in rule.rule.kept if name in state.names}
        escaping = [
            node
            for node in state.nodes
            if node not in roots and id(node) not in kept and not all(_ends_inside(user, inside) for user in node.users)
        ]
        if not escaping or rule.rule.kept:
            return not escaping or state.fail(f"%{escaping[0].name} is used elsewhere too", escaping[0])
        dying = sum(_weight(underlying(node.target)) for node in roots)
        made = max(sum(_weight(op) for op in case.replace.operators) for case in rule.cases)
        # What a builder makes is not known before.
        is_known = not any(case.replace.opaque for case in rule.cases)
        return (is_known and made <= dying) or state.fail(f"%{escaping[0].name} is used elsewhere too", escaping[0])

    def _place(self, roots: Sequence[Node], state: State) -> Node:
        """Return the node in front of which the replacement can stand: before any user, behind all inputs."""
        if len(roots) == 1:
            # Calls stand behind all inputs of the program.
            return roots[0] if roots[0].op != "placeholder" else min(roots[0].users)
        last = max(roots)
        users = [user for root in roots for user in root.users if user not in state.nodes]
        first_user = min(users, default=last)
        if first_user < last and last not in users:
            inputs = [one for one in state.names.values() if isinstance(one, Node) and one not in state.nodes]
            if any(first_user < one or one is first_user for one in inputs):
                raise RejectedError("a root is used before an input of the pattern is there")
            return first_user
        return last

    def _names(self, rule: CompiledRule, state: State, tuning: Mapping[str, Any]) -> dict[str, Any]:
        names: dict[str, Any] = {**state.names, **tuning, FACTS: self.facts}
        if rule.pattern.kind == "output":
            # What callers get is not wrapped here: that is left to them.
            names[WITHOUT_USES] = True
        if rule.let is not None:
            is_matched = rule.let.uses <= state.names.keys()
            names.update(state.assigned(rule.let) if is_matched else rule.let.assigned(ConstantNames(names)))
        return names

    # After

    def _check_news(self, pairs: Sequence[tuple[Node, Node]], state: State, builder: GraphBuilder) -> None:
        """A replacement is something new, and it does what the match does besides returning values."""
        made = [*builder.made, *builder.constants]
        stays = [one for node in state.nodes for one in builder.constants if self._is_stored_already(node, one)]
        if stays:
            raise RejectedError("what is to be stored is there already")
        if is_what_is_there(pairs, made, self.facts.value):
            raise RejectedError("the replacement is what is there already")
        if any(map(has_effect, state.nodes)) and not any(map(has_effect, builder.made)):
            raise RejectedError("the call has an effect, and the replacement has none", is_fault=True)

    def _is_stored_already(self, node: Node, new: Node) -> bool:
        return node.op == "placeholder" and is_same_tensor(self.facts.value(node), self.facts.value(new))

    def _check_writes(self, pairs: Sequence[tuple[Node, Node]], state: State) -> None:
        """What the match reads must be the same where the replacement reads it, and where its result is used."""
        inside = {*state.nodes, *(root for root, _ in pairs)}
        read = {memory_of(one) for node in inside for one in node.all_input_nodes if one not in inside}
        first, last = min(inside), max(inside)
        for call, memory in writes_by_memory(self.editor.graph):
            if call in inside:
                continue
            if memory.op == "placeholder" and memory in inside:
                raise RejectedError(f"%{call.name} writes to the tensor")
            if memory in read and first < call < last:
                raise RejectedError(f"%{call.name} writes to what the match reads, before its result is there")
            if any(root < call and memory_of(new) is memory and memory in read for root, new in pairs):
                raise RejectedError(f"%{call.name} writes to the value that would replace %{pairs[0][0].name}")

    def _check_word(self, rule: CompiledRule, root: Node, old: Any, new: Node) -> None:
        value = new.meta.get("val")
        if not isinstance(old, torch.Tensor) or not isinstance(value, torch.Tensor):
            return
        if old.dtype != value.dtype:
            raise RejectedError(f"the result would be {value.dtype} in place of {old.dtype}", is_fault=True)
        same = compare("==", list(old.shape), list(value.shape))
        if same is not True:
            shapes = f"{list(value.shape)} in place of {list(old.shape)}"
            raise RejectedError(f"the result would have sizes {shapes}", is_fault=same is False)
        if rule.rule.equiv.strides and compare("==", list(old.stride()), list(value.stride())) is not True:
            raise RejectedError("the result would have another layout", is_fault=_is_dense(value))
        if self._keeps_layouts and _dim_order(old) != _dim_order(value):
            # Values behind it would lie otherwise too, down to what the program returns.
            raise RejectedError("the result would have another dim order")
        if new.op == "placeholder" and new in self._mutated and any(user.op == "output" for user in root.users):
            raise RejectedError("the program writes to the value that would be returned")


def _dim_order(value: torch.Tensor) -> list[int]:
    return dim_order_from_stride(value.stride(), value.shape)


def _is_dense(value: torch.Tensor) -> bool:
    """Return whether a tensor with elements lies in memory without gaps, in any order of dims, as types can say it."""
    dense = stride_from_dim_order(value.shape, dim_order_from_stride(value.stride()))
    has_elements = all(compare("==", size, 0) is False for size in value.shape)
    return has_elements and compare("==", list(dense), list(value.stride())) is True


def _carry(rule: CompiledRule, state: State, pairs: Sequence[tuple[Node, Node]], builder: GraphBuilder) -> None:
    """Give the result the attributes of matched calls that `keep` hands on."""
    for name, nodes in carriers(rule, state).items():
        if not depend_on_each_other(nodes, state):
            raise RejectedError(f"several calls have attribute {name}, and none comes before the others")
        attribute = rule.attributes[name]
        fields = attribute.read(nodes[0] if rule.rule.carried[name] == "first" else nodes[-1])
        for _, new in pairs:
            if new not in builder.made:
                raise RejectedError(f"there is no new call that attribute {name} could go to")
            builder.put_attribute(new, attribute, fields or {})


def _name_of_constants(rule: CompiledRule, state: State) -> str:
    root = state.roots[0]
    if rule.pattern.kind != "calls" and root is not None:
        return root.name
    return f"_{rule.id.replace('.', '_').replace('-', '_')}_constant"


def _interface(kind: str, root: Node, old: Any, new: Node) -> str:
    return f"{kind} {root.name}: {_form(old)} -> {_form(new.meta.get('val'))}"


def _form(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    dtype = str(value.dtype).removeprefix("torch.")
    strides = "" if value.is_contiguous() else f" with strides {list(value.stride())}"
    return f"{dtype} {list(value.shape)}{strides}"


def _origins(rule: CompiledRule, state: State) -> tuple[Node, ...]:
    """Return the nodes that a replacement stands for, the one that gives the stack trace first."""
    first = next(root for root in state.roots if root is not None)
    anchor = state.names.get(rule.rule.meta.anchor or "", first)
    anchor = anchor if isinstance(anchor, Node) else first
    others = state.nodes if rule.rule.meta.debug == "union" else [root for root in state.roots if root is not None]
    return tuple(dict.fromkeys([anchor, *others]))


def is_wanted(node: Node) -> bool:
    """Whether a call makes a difference: something uses it, or it has an effect."""
    return bool(node.users) or has_effect(node)


def _ends_inside(user: Node, inside: Collection[Node], depth: int = 8) -> bool:
    """Whether a use of a matched call goes when the match does: what moves data on to the match alone goes with it."""
    if user in inside or _is_dead(user) or is_remark(user):
        return True
    if depth == 0 or user.op != "call_function":
        return False
    # What takes one of several results stands for no call of the pattern.
    is_passing = user.target is operator.getitem or may_pass(underlying(user.target))
    return is_passing and all(_ends_inside(one, inside, depth - 1) for one in user.users)


def _is_dead(node: Node) -> bool:
    return not node.users and is_pure(node)


def _is_named(node: Node, state: State) -> bool:
    return any(value is node for value in state.names.values())


def _weight(op: Any) -> int:
    """Return how much an operator counts for: moving data is nothing beside computing."""
    return 0 if traits_of(op).moves_data else 1


def _mutated_inputs(editor: GraphEditor) -> Collection[Node]:
    interface = ProgramInterface.of(editor.program)
    # A graph on its own does not say which of its inputs are written to after it has run.
    return interface.placeholders if is_module_program(editor.program) else interface.written


def dialect_of(calls: Iterable[Node]) -> tuple[Any, bool]:
    """Return how operators are called in a program: as torch does, or by handles as in Edge."""
    for target in (node.target for node in calls):
        if underlying(target) is not target:
            handle = edge_operator if isinstance(target, EdgeOpOverload) else cache(handles_like(target))
            return partial(_copying_handle, handle), True
    return (lambda op: op), False


def _copying_handle(handle: Callable[[Any], Any], op: Any) -> Any:
    return handle(copying(op))
