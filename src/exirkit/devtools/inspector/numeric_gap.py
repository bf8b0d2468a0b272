"""How far values of a run are from those that the Edge program has in eager PyTorch, instruction by instruction."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Interpreter, Node

from exirkit.devtools.etrecord import ETRecord, RecordedNode
from exirkit.ir import Diagnostic, UsageError, pytree, stored_tensor

from .events import DELEGATE, Event, EventBlock, is_call_of, tensors

Comparator = Callable[[Any, Any], float]


class NumericalComparatorBase(ABC):
    """A distance of one's own: derive from this class and give an object of it to `calculate_numeric_gap`."""

    @abstractmethod
    def compare(self, a: Any, b: Any) -> float:
        """Return how far the value `b` of the runtime is from the value `a` of the reference."""


def _pair(a: Any, b: Any) -> tuple[torch.Tensor, torch.Tensor]:
    one, two = (torch.cat([each.detach().reshape(-1).double() for each in tensors(_flat(value))]) for value in (a, b))
    return one, two


def mean_squared_error(a: Any, b: Any) -> float:
    """Return the mean of the squared differences."""
    one, two = _pair(a, b)
    return float((one - two).square().mean()) if one.numel() else 0.0


def sum_of_differences(a: Any, b: Any) -> float:
    """Return the sum of the absolute differences."""
    one, two = _pair(a, b)
    return float((one - two).abs().sum())


def signal_to_noise(a: Any, b: Any) -> float:
    """Return the ratio of the power of `a` to that of the difference, in dB; infinite if there is no difference."""
    one, two = _pair(a, b)
    noise = float((one - two).square().sum())
    if noise == 0.0:
        return math.inf
    signal = float(one.square().sum())
    return 10 * math.log10(signal / noise) if signal else -math.inf


_DISTANCES: dict[str, Comparator] = {
    "MSE": mean_squared_error,
    "L1": sum_of_differences,
    "SNR": signal_to_noise,
}


def comparator_of(distance: str | NumericalComparatorBase | Comparator) -> Comparator:
    """Return the function that a distance names.

    Raises:
        UsageError: EK748, there is no such distance.
    """
    if isinstance(distance, str):
        if distance not in _DISTANCES:
            message = f"there is no distance {distance!r}"
            raise UsageError(Diagnostic.of("EK748", message, expected=f"{', '.join(_DISTANCES)}, or a comparator"))
        return _DISTANCES[distance]
    if isinstance(distance, NumericalComparatorBase):
        return distance.compare
    if callable(distance):
        return distance
    raise UsageError(Diagnostic.of("EK748", f"a {type(distance).__name__} does not compare values"))


def numeric_gap(
    blocks: Sequence[EventBlock], record: ETRecord, comparator: Comparator, method: str | None
) -> list[dict[str, Any]]:
    """Return a row for each instruction whose value was kept and has a counterpart in the Edge program.

    Args:
        blocks: What ran.
        record: Has the Edge programs and the inputs of the run.
        comparator: The distance.
        method: The method; None for the only one that ran.

    Raises:
        UsageError: EK747, something that the comparison needs is missing.
    """
    block = _block_of(blocks, method)
    name = block.method or "forward"
    program = record.programs.get(name)
    if program is None:
        why = f": {record.unread[name]}" if name in record.unread else ""
        message = f"the record has no Edge program of {name}{why}"
        hint = "save the record with programs and weights, or give the Inspector what `get_etrecord()` returns"
        raise UsageError(Diagnostic.of("EK747", message, hint=hint))
    if record.representative_inputs is None:
        hint = "record.update_representative_inputs(inputs): those that were given to the traced run"
        raise UsageError(Diagnostic.of("EK747", "the record has no inputs to compare on", hint=hint))
    values = reference_values(program, record.representative_inputs)
    rows = []
    met: Counter[tuple[str, ...]] = Counter()
    events = [one for one in block.events if one.is_whole_instruction and one.instruction is not None]
    # What several nodes became is done when the last of its instructions is.
    last = {handle: event for event in events for handle in _key(event.debug_handles)}
    calls = Counter((_key(event.debug_handles), event.kernel) for event in events)
    for event in events:
        assert event.instruction is not None
        nodes = record.nodes_of(name, event.instruction)
        if len(_key(event.debug_handles)) == 1:
            # Parts of a decomposed operator have its handle: the second multiplication is the second one of the nodes.
            same = [node for node in nodes if event.kernel is not None and is_call_of(node, event.kernel)]
            key = tuple(node.name for node in same)
            # Where some of them went, it is not known which are left.
            is_complete = len(same) == calls[_key(event.debug_handles), event.kernel]
            likely = same[met[key] : met[key] + 1] if is_complete else []
            met[key] += 1
        else:
            likely = []
        is_last = all(last[handle] is event for handle in _key(event.debug_handles))
        computed = tensors(event.debug_data)
        results = record.instruction_id_to_num_outs_map.get(name, {}).get(event.instruction)
        if event.name == DELEGATE and results is not None:
            # All arguments of a delegate are kept; its results are the last ones.
            computed = computed[len(computed) - results :]
        row = _row(event, computed, nodes if is_last else [], likely, values, comparator)
        if row is not None:
            rows.append(row)
    return rows


def _key(handles: int | Sequence[int] | None) -> tuple[int, ...]:
    if handles is None:
        return ()
    return (handles,) if isinstance(handles, int) else tuple(handles)


def _block_of(blocks: Sequence[EventBlock], method: str | None) -> EventBlock:
    with_values = [
        one
        for one in blocks
        if one.method is not None and method in (None, one.method) and any(event.debug_data for event in one.events)
    ]
    if not with_values:
        what = "no run" if method is None else f"no run of {method}"
        hint = "trace with values, and give the Inspector the debug buffer"
        raise UsageError(Diagnostic.of("EK747", f"{what} in the trace has values", hint=hint))
    if len({one.method for one in with_values}) > 1:
        names = ", ".join(str(one.method) for one in with_values)
        raise UsageError(Diagnostic.of("EK747", f"the trace has runs of {names}", hint="say which: method=NAME"))
    return with_values[0]


def _row(
    event: Event,
    ran: Sequence[torch.Tensor],
    nodes: Sequence[RecordedNode],
    likely: Sequence[RecordedNode],
    values: Mapping[str, Any],
    comparator: Comparator,
) -> dict[str, Any] | None:
    node = _counterpart(likely, values, ran) or _counterpart(nodes, values, ran)
    if node is None:
        return None
    expected = values[node.name]
    given = _filled(ran)[0] if isinstance(expected, torch.Tensor) else ran
    if isinstance(given, torch.Tensor) and given.shape != expected.shape:
        # Views need no instruction: the same elements in another shape.
        given = given.reshape(expected.shape)
    return {
        "aot_debug_handle": node.handles,
        "aot_ops": [one.name for one in nodes or likely],
        "aot_intermediate_output": expected,
        "runtime_ops": [event.name],
        "runtime_debug_handle": event.debug_handles,
        "runtime_intermediate_output": given,
        "gap": [comparator(expected, given)],
        "stacktraces": {one.name: one.stack_trace for one in nodes or likely},
        "op_types": [one.op for one in nodes or likely],
        "instruction": event.instruction,
    }


def _counterpart(
    nodes: Sequence[RecordedNode], values: Mapping[str, Any], ran: Sequence[torch.Tensor]
) -> RecordedNode | None:
    """Return the last node whose value an instruction computed: of the same shapes, else of shapes that views have.

    A result in another order of dims may have as many elements; the sizes of the last dims tell most of these apart.
    """
    ran = _filled(ran)
    shapes = [tuple(one.shape) for one in ran]
    fitting = None
    for node in reversed(nodes):
        found = _filled(tensors(_flat(values.get(node.name))))
        if not found or not ran:
            continue
        if [tuple(one.shape) for one in found] == shapes:
            return node
        if fitting is None and len(found) == len(ran) and all(map(_is_view, found, ran)):
            fitting = node
    return fitting


def _filled(given: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Leave out results without elements, which some kernels have besides what they compute."""
    return [one for one in given if one.numel()] or given


def _is_view(one: torch.Tensor, two: torch.Tensor) -> bool:
    if one.numel() != two.numel():
        return False
    long = [[size for size in each.shape if size != 1] for each in (one, two)]
    return long[0][-1:] == long[1][-1:] or _merges(*sorted(long, key=len))


def _merges(short: Sequence[int], long: Sequence[int]) -> bool:
    """Return whether each size is the product of neighbours in another list, as where a convolution is a product."""
    left = iter(long)
    for size in short:
        product = 1
        while product < size:
            product *= next(left, size + 1)
        if product != size:
            return False
    return next(left, None) is None


def _flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def reference_values(program: ExportedProgram, inputs: Sequence[Any]) -> dict[str, Any]:
    """Return the value of every call of an Edge program in eager PyTorch, by the names of the nodes.

    Args:
        program: The program; buffers that it mutates are copied.
        inputs: Inputs of the user, in any structure.

    Raises:
        UsageError: EK747, the program takes another number of inputs.
    """
    given = iter(leaves := pytree.tree_leaves(list(inputs)))
    arguments = []
    specs = program.graph_signature.input_specs
    wanted = sum(spec.kind is InputKind.USER_INPUT for spec in specs)
    if wanted != len(leaves):
        message = f"the record has {len(leaves)} inputs, and the program takes {wanted}"
        raise UsageError(Diagnostic.of("EK747", message))
    for spec in specs:
        value = next(given) if spec.kind is InputKind.USER_INPUT else stored_tensor(program, spec)
        arguments.append(value.clone() if isinstance(value, torch.Tensor) else value)
    run = _Recording(program.graph_module)
    with torch.no_grad():
        run.run(*arguments)
    return run.values


class _Recording(Interpreter):
    """Runs a graph and keeps what each call computes; bodies of control flow run as a part of their call."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[str, Any] = {}

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        if n.op == "call_function":
            self.values[n.name] = pytree.tree_map(_kept, value)
        return value


def _kept(value: Any) -> Any:
    # A later call may write to it.
    return value.clone() if isinstance(value, torch.Tensor) else value
