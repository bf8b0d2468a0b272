"""One application of a rule: whether the match is legal, what replaces it, and whether the contract is honoured."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export.graph_signature import InputKind
from torch.fx import Node

from exirkit.ir import (
    DiagnosticError,
    GraphEditor,
    HigherOrderOperator,
    ProgramInterface,
    SealedSubgraphError,
    ShapeEnvGuardError,
    SubgraphEditor,
    dim_order_from_stride,
    has_effect,
    is_module_program,
    is_pure,
    no_new_guards,
    same_value,
    shared_results,
    stride_from_dim_order,
    underlying,
)
from exirkit.patterns.books.model import broken_measure
from exirkit.patterns.engine.graph_builder import GraphBuilder, LateInputError, dialect_of
from exirkit.patterns.engine.program_facts import RULE_KEY, ProgramFacts
from exirkit.patterns.engine.same_expressions import is_same_tensor, is_what_is_there
from exirkit.patterns.forms.composites import FoundComposites
from exirkit.patterns.matching.attributes import carriers, depend_on_each_other, unsaid_attribute
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.matching.state import FailureTrace, State
from exirkit.patterns.operators.arguments import is_remark, may_pass
from exirkit.patterns.operators.in_place import calls_by_target, memory_of, writes, writes_by_memory
from exirkit.patterns.operators.table import traits_of
from exirkit.patterns.syntax.constant_names import FACTS, ConstantNames
from exirkit.patterns.syntax.expressions import ExpressionError, UndecidedError, compare
from exirkit.patterns.syntax.value_roots import WITHOUT_USES


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
        except LateInputError as error:
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
