"""From core ATen to Edge operators: argument types, constants, copies instead of views, the operators themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

import torch
import torch.export.custom_ops  # registers the operator below
from torch.fx import Node

from exirkit.ir import (
    INFER,
    DefinedOperator,
    Diagnostic,
    EdgeOpOverload,
    GraphEditor,
    ModelError,
    OpOverload,
    ProgramInterface,
    contiguous_stride,
    copy_variant,
    dim_order_from_stride,
    edge_operator,
    facts_of,
    get_param_tensor,
    has_trait,
    locate,
    named_arguments,
    operators_with,
    ops,
    same_argument,
    same_value,
    underlying,
    written_by_position,
)
from exirkit.passes.config.lowering_config import Overload
from exirkit.passes.contract import Pass

_NUMBERS = (bool, int, float, complex)
_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)


class ScalarsToTensors(Pass):
    """Turn a Python number in a tensor's place into a constant of no dims.

    The constant gets the dtype in which the operator computes, so no cast is left to be done at run time: `x + 1` on
    floats adds a float constant. Equal constants are shared.

    Source: torch's promotion rules for a tensor and a Python number.

    Before: `%add = aten.add.Tensor(%x, 1)`
    After: `%add = aten.add.Tensor(%x, %c_scalar)` with the constant `tensor(1.)`
    """

    name = "scalars-to-tensors"
    enters_subgraphs = True
    requires = ("constants-lifted",)
    ensures = ("numbers-lifted",)
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Lift the numbers."""
        for node in list(editor.graph.nodes):
            for name, value in tensor_slots(node):
                if type(value) in _NUMBERS:
                    constant = editor.add_constant(_constant(node, value), name="c_scalar", origins=node)
                    _set_argument(editor, node, name, constant)


class SymbolsToTensors(Pass):
    """Turn a symbolic number in a tensor's place into a tensor that is made from it at run time.

    Before: `%mul = aten.mul.Tensor(%x, %sym_size)`
    After: `%t = aten.scalar_tensor.default(%sym_size, dtype=...)`; `%mul = aten.mul.Tensor(%x, %t)`
    """

    name = "symbols-to-tensors"
    enters_subgraphs = True
    requires = ("numbers-lifted",)
    ensures = ("tensor-arguments",)
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Insert the conversions."""
        for node in list(editor.graph.nodes):
            for name, value in tensor_slots(node):
                if isinstance(value, Node) and isinstance(value.meta.get("val"), (*_SYMBOLS, *_NUMBERS)):
                    dtype = computed_dtype(node, _example(value.meta["val"]))
                    made = editor.call(
                        torch.ops.aten.scalar_tensor.default,
                        (value,),
                        {"dtype": dtype},
                        before=node,
                        origins=node,
                    )
                    _set_argument(editor, node, name, made)


def tensor_slots(node: Node) -> Iterator[tuple[str | int, Any]]:
    """Yield position or name, and value, of the arguments for which the operator's schema wants one tensor."""
    if node.op != "call_function":
        return
    schema = getattr(underlying(node.target), "_schema", None)
    if schema is None:
        return
    positions, names = _tensor_arguments(underlying(node.target))
    for position in positions:
        if position < len(node.args):
            yield position, node.args[position]
    for name in names if node.kwargs else ():
        if name in node.kwargs:
            yield name, node.kwargs[name]


@cache
def _tensor_arguments(op: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    wanted = [
        (position, argument.name)
        for position, argument in enumerate(op._schema.arguments)
        if isinstance(argument.type, torch.TensorType)
        or (
            isinstance(argument.type, torch.OptionalType)
            and isinstance(argument.type.getElementType(), torch.TensorType)
        )
    ]
    return tuple(position for position, _ in wanted), tuple(name for _, name in wanted)


def computed_dtype(node: Node, number: Any) -> torch.dtype:
    """Return the dtype in which an operator computes with `number` beside its tensors.

    With no tensor beside it, the number alone decides.
    """
    tensors = [
        value.meta["val"]
        for _, value in tensor_slots(node)
        if isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor)
    ]
    if not tensors:
        return torch.result_type(number, number)
    dtypes = [torch.result_type(tensor, number) for tensor in tensors]
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = torch.promote_types(result, dtype)
    return result


def _constant(node: Node, number: bool | int | float | complex) -> torch.Tensor:
    try:
        dtype = computed_dtype(node, number)
        # Two steps, because a number that does not fit wraps in torch's arithmetic, while tensor() rejects it. The
        # first keeps all digits of a float, which the default dtype does not.
        exact = torch.float64 if isinstance(number, float) else None
        return torch.tensor(number, dtype=exact).to(dtype)
    except (OverflowError, RuntimeError) as error:
        raise ModelError(
            code="EK423",
            message=f"the number {number} does not fit a tensor: {error}",
            location=locate(node),
        ) from error


def _example(value: Any) -> bool | int | float:
    """Return a plain number of the same kind: promotion depends on the kind only."""
    if isinstance(value, torch.SymBool | bool):
        return True
    return 1 if isinstance(value, torch.SymInt | int) else 1.0


def _set_argument(editor: GraphEditor, node: Node, where: str | int, value: Node) -> None:
    if isinstance(where, int):
        args = list(node.args)
        args[where] = value
        _rewire_like(editor, node, tuple(args), dict(node.kwargs))
    else:
        _rewire_like(editor, node, node.args, {**node.kwargs, where: value})


def _rewire_like(editor: GraphEditor, node: Node, args: Any, kwargs: dict[str, Any]) -> None:
    # A constant of no dims and the computed dtype changes neither shape nor dtype of the result.
    editor.rewire(node, args, kwargs, val=node.meta["val"])


_WHERE = torch.ops.aten.where.self


class PromoteTypes(Pass):
    """Insert casts so that both operands of an arithmetic operator have the dtype that torch promotes them to.

    Ensures: operands of the operators above have one dtype; those of `where` have it if one of them would not count in
        torch, because it has no dims, and does count in a kernel.

    Before: `%add = aten.add.Tensor(%i64, %f32)`
    After: `%c = aten._to_copy.default(%i64, dtype=torch.float32)`; `%add = aten.add.Tensor(%c, %f32)`
    """

    name = "promote-types"
    enters_subgraphs = True
    requires = ("tensor-arguments",)
    invalidates = ()
    before = ("convert-to-edge-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Insert the casts."""
        for node in list(editor.graph.nodes):
            op = underlying(node.target)
            if node.op != "call_function" or not (op is _WHERE or has_trait(op, "same_dtypes")):
                continue
            at = 1 if op is _WHERE else 0
            left, right = node.args[at : at + 2]
            if not (isinstance(left, Node) and isinstance(right, Node)):
                continue
            one, other = left.meta["val"], right.meta["val"]
            promoted = torch.result_type(one, other)
            if one.dtype == other.dtype or (op is _WHERE and promoted == torch.promote_types(one.dtype, other.dtype)):
                continue
            cast = [self._cast(editor, node, operand, promoted) for operand in (left, right)]
            editor.rewire(node, (*node.args[:at], *cast, *node.args[at + 2 :]), val=node.meta["val"])

    @staticmethod
    def _cast(editor: GraphEditor, node: Node, operand: Node, dtype: torch.dtype) -> Node:
        if operand.meta["val"].dtype == dtype:
            return operand
        return editor.call(torch.ops.aten._to_copy.default, (operand,), {"dtype": dtype}, before=node, origins=node)


class LiftConstants(Pass):
    """Turn `get_attr` nodes of tensors into placeholders with a place in signature and constants.

    Passes that create tensors leave such nodes behind. Weights that are objects of tensor subclasses, as torchao's
    `quantize_` makes them, are stored as the tensors that they consist of, which torch.export takes out by calls.
    """

    name = "lift-constants"
    enters_subgraphs = True
    ensures = ("constants-lifted",)
    invalidates = ()

    def edit(self, editor: GraphEditor) -> None:
        """Lift every tensor attribute."""
        _take_subclasses_apart(editor)
        module = editor.program.graph_module
        for node in editor.graph.find_nodes(op="get_attr"):
            value = reduce(getattr, str(node.target).split("."), module)
            if isinstance(value, torch.Tensor):
                name = str(node.target).replace(".", "_").lstrip("_")
                editor.replace(node, editor.add_constant(value, name=f"c_{name}", origins=node))
                editor.erase(node)


def _take_subclasses_apart(editor: GraphEditor) -> None:
    """Store the inner tensors of weights that are objects of tensor subclasses."""
    taken = list(editor.graph.find_nodes(op="call_function", target=_INNER_TENSOR))
    interface = ProgramInterface.of(editor.program) if taken else None
    stored: dict[tuple[Node, tuple[str, ...]], Node] = {}
    # From the last to the first: what is taken out of an inner tensor comes behind that.
    for node in reversed(taken):
        assert interface is not None
        owner, path = _owner_of(node)
        if not node.users:
            editor.erase(node)
        elif interface.is_stored(owner) and not interface.is_written(owner):
            if (owner, path) not in stored:
                value = reduce(getattr, path, get_param_tensor(editor, owner))
                kind, name = interface.inputs[owner].kind, "_".join((owner.name, *path))
                assert value is not None
                stored[owner, path] = editor.add_constant(value, name=name, origins=node, kind=kind)
            editor.replace(node, stored[owner, path])
            editor.erase(node)


def _owner_of(node: Node) -> tuple[Node, tuple[str, ...]]:
    """Return where an inner tensor comes from, and the attributes on the way to it."""
    owner: Any = node.args[0]
    attribute = str(node.args[1])
    if owner.target is _INNER_TENSOR:
        outermost, path = _owner_of(owner)
        return outermost, (*path, attribute)
    return owner, (attribute,)


_INNER_TENSOR = torch.ops.export.access_subclass_inner_tensor.default

_VARIANTS: dict[OpOverload | DefinedOperator, Any] = {
    torch.ops.aten._to_copy.default: ops.edge.dim_order_ops._to_dim_order_copy.default,
    torch.ops.aten.clone.default: ops.edge.dim_order_ops._clone_dim_order.default,
    torch.ops.aten.empty.memory_format: ops.edge.dim_order_ops._empty_dim_order.default,
}

# Not `non_blocking`: there is no other device, and kernels reject it.
_KEPT_ARGUMENTS = ("dtype",)


class UseDimOrderOperators(Pass):
    """Replace `_to_copy`, `clone` and `empty` by operators of `dim_order_ops` that name the order of dims in memory.

    The order is the one the value has, so no memory format is left to be guessed at run time.
    """

    name = "use-dim-order-operators"
    enters_subgraphs = True
    requires = ("no-views",)
    invalidates = ()
    before = ("convert-to-edge-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Replace the operators."""
        for node in list(editor.graph.nodes):
            if node.op != "call_function":
                continue
            variant = _VARIANTS.get(underlying(node.target)) if callable(node.target) else None
            if variant is None:
                continue
            value = node.meta["val"]
            kwargs = {key: node.kwargs[key] for key in _KEPT_ARGUMENTS if key in node.kwargs}
            kwargs["dim_order"] = list(dim_order_from_stride(value.stride(), value.shape))
            editor.retarget(node, variant, node.args, kwargs, val=value)
            editor.rename(node, editor.graph._target_to_str(variant))


class ConvertToEdgeOperators(Pass):
    """Replace each torch overload by its edge handle, and name the node after it.

    Arguments that may be given by position are, as torch.export writes them; calls that passes made may name them.

    Ensures: call targets are edge handles, arithmetic on sizes, `getitem`, or assertions.

    Before: `%add = aten.add.Tensor(%x, %y)`
    After: `%aten_add_tensor = edge.aten.add.Tensor(%x, %y)`
    """

    name = "convert-to-edge-operators"
    enters_subgraphs = True
    requires = ("functional", "control-flow", "no-views", "tensor-arguments", "constants-lifted")
    ensures = ("edge-operators",)
    invalidates = ("core-operators",)

    def edit(self, editor: GraphEditor) -> None:
        """Convert every call."""
        names: dict[EdgeOpOverload, str] = {}
        for node in editor.graph.nodes:
            target = node.target
            if node.op != "call_function" or not isinstance(target, OpOverload | DefinedOperator):
                continue
            # Assertions are not operators of the Edge dialect: they stay until the graph is lowered further.
            if facts_of(target).traits >= {"assertion", "any_dialect"}:
                continue
            handle = edge_operator(target)
            args, kwargs = written_by_position(target, node.args, node.kwargs) if node.kwargs else (None, None)
            editor.retarget(node, handle, args, kwargs, val=node.meta.get("val"))
            if handle not in names:
                names[handle] = editor.graph._target_to_str(handle)
            editor.rename(node, names[handle])


class ReplaceViewsWithCopies(Pass):
    """Replace each view operator by the operator that copies.

    A copy is row-major whatever the strides of its source, so users are inferred again where strides changed.

    Ensures: no operator returns an alias of its argument.

    Before: `%permute = aten.permute.default(%x, [1, 0])`
    After: `%permute = aten.permute_copy.default(%x, [1, 0])`
    """

    name = "replace-views-with-copies"
    # Views of which torch states the size wrongly are inferred again as copies.
    changes_outputs = True
    enters_subgraphs = True
    requires = ("functional",)
    ensures = ("no-views",)
    invalidates = ()
    before = ("use-dim-order-operators", "convert-to-edge-operators")

    def edit(self, editor: GraphEditor) -> None:
        """Replace the views, and drop those that are their argument, unless a quantizer has noted them."""
        copies: dict[Any, Any] = {}
        quantized = _quantized(editor)
        for node in list(editor.graph.nodes):
            if node.op != "call_function":
                continue
            op = underlying(node.target)
            if has_trait(op, "identity") and node not in quantized:
                editor.replace(node, node.args[0])
                editor.erase(node)
            elif isinstance(op, OpOverload) and _returns_view(op):
                variant = _variant(op)
                if variant is None:
                    raise ModelError(_no_variant(node, op))
                args, kwargs = node.args, node.kwargs
                if op is torch.ops.aten._reshape_alias.default:
                    args = args[:2]
                value = INFER if _may_be_misstated(op, node) else _copied(editor, node.meta["val"], copies)
                editor.retarget(node, variant, args, kwargs, val=value)


def _may_be_misstated(op: OpOverload, node: Node) -> bool:
    """Return whether torch may have recorded another shape than that of the view.

    It finds the strides of a view by splitting and merging dims of the source, and rounds where a size that varies is
    split: rows of four, seen as `[-1, 2 * s]`, have the size `4 * (s // 2)`, for it. Of the copy it states the sizes.
    """
    return has_trait(op, "reshape") and not all(isinstance(size, int) for size in node.meta["val"].shape)


@cache
def _returns_view(op: OpOverload) -> bool:
    return copy_variant(op) is not None or (op.is_view and not op._schema.name.endswith("_copy"))


def _variant(op: OpOverload) -> Any:
    namespace, _, name = op._schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), f"{name}_copy", None)
    return copy_variant(op) or getattr(packet, op._overloadname, None)


def _copied(editor: GraphEditor, value: Any, known: dict[Any, Any]) -> Any:
    """Return the value of the copy: the same sizes, row-major; the old value where it is that already."""
    if isinstance(value, list | tuple):
        return [_copied(editor, one, known) for one in value]
    if not isinstance(value, torch.Tensor):
        return INFER
    strides = contiguous_stride(value.shape)
    if same_argument(tuple(value.stride()), tuple(strides)) and same_argument(value.storage_offset(), 0):
        return value
    sizes = tuple(value.shape)
    is_static = all(type(size) is int for size in sizes)
    key = (sizes, value.dtype, value.device) if is_static else None
    if key is not None and key in known:
        return known[key]
    with editor.fake_mode:
        made = torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
    if key is not None:
        known[key] = made
    return made


def _no_variant(node: Node, op: OpOverload) -> Diagnostic:
    return Diagnostic.of(
        code="EK422",
        message=f"view operator {op.name()} has no copy variant",
        location=locate(node),
        expected=f"an operator {op._schema.name}_copy with the overload {op._overloadname}",
        hint="write the model without this view, or decompose it",
    )


_END = 2**63 - 1


@dataclass(eq=False)
class RemoveNoops(Pass):
    """Replace an operator by its argument where both are the same values in the same shape, dtype and layout.

    Covers casts to the present dtype, copies of what is functional anyway, full slices, expansions, reshapes and
    permutations to the present shape, single concatenations, and repeats by one. Empty parts of a concatenation are
    dropped. What `as_strided_copy` reads stays: it counts from the start of what is copied, and a row that a loop goes
    through begins elsewhere. Two other kinds stay, which backends may take, and which optimization removes later where
    no backend does:

    - a `clone` that a program returns of its input: the model asks for a tensor apart from the input;
    - what stands between a dequantization and a quantization. Quantizers have put these around an operator; backends
      that compute in integers make one call of the three, and would meet a pair without an operator otherwise.

    Args:
        preserve: Operators that stay wherever they are.
    """

    name = "remove-noops"
    enters_subgraphs = True
    requires = ("no-views",)
    invalidates = ()
    after = ("promote-types",)
    before = ("use-dim-order-operators", "convert-to-edge-operators")
    preserve: frozenset[Overload] = frozenset()

    def edit(self, editor: GraphEditor) -> None:
        """Remove the operators, in graph order, so that chains collapse in one sweep."""
        returned = _returned_clones(editor)
        quantized = _quantized(editor)
        for node in list(editor.graph.nodes):
            if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
                continue
            op = underlying(node.target)
            if op is torch.ops.aten.cat.default:
                _drop_empty_parts(editor, node)
            changes_nothing = None if op in self.preserve else _TESTS.get(op)
            if changes_nothing is None or node in returned or node in quantized or _is_read_by_places(node):
                continue
            source = _source(node)
            if source is None or not changes_nothing(node):
                continue
            # The argument may be laid out in another way than the copy; then the copy is what makes the layout.
            if same_value(source.meta["val"], node.meta["val"]):
                editor.replace(node, source)
                editor.erase(node)


def _returned_clones(editor: GraphEditor) -> set[Node]:
    """Return the clones of inputs that the program returns to its caller, not those that it writes to buffers."""
    return {
        value
        for value in ProgramInterface.of(editor.program).user_results
        if isinstance(value, Node)
        and underlying(value.target) is torch.ops.aten.clone.default
        and isinstance(value.args[0], Node)
        and value.args[0].op == "placeholder"
    }


def _is_read_by_places(node: Node) -> bool:
    return any(underlying(user.target) is torch.ops.aten.as_strided_copy.default for user in node.users)


def _quantized(editor: GraphEditor) -> set[Node]:
    """Return the calls that move elements of a dequantized tensor, and whose result is quantized.

    There may be several calls in between, since lowering decomposes operators: `t_copy` is a permutation and a copy.
    """
    moved: set[Node] = set()
    for node in editor.graph.nodes:
        source = _source(node) if node.op == "call_function" and underlying(node.target) in _TESTS else None
        if source is not None and (source in moved or has_trait(source.target, "dequantize")):
            moved.add(node)
    return {node for node in moved if any(has_trait(reader.target, "quantize") for reader in node.users)}


def _source(node: Node) -> Node | None:
    first = node.args[0] if node.args else None
    if isinstance(first, list | tuple) and len(first) == 1:
        first = first[0]
    return first if isinstance(first, Node) and isinstance(first.meta.get("val"), torch.Tensor) else None


def _always(node: Node) -> bool:
    return True


def _is_full_slice(node: Node) -> bool:
    given = {"dim": 0, "start": None, "end": None, "step": 1, **named_arguments(node)}
    end, size = given["end"], node.args[0].meta["val"].shape[given["dim"]]  # type: ignore[union-attr]
    reaches_end = end is None or (isinstance(end, int) and (end == _END or (isinstance(size, int) and end >= size)))
    return given["start"] in (None, 0) and given["step"] == 1 and reaches_end


def _is_identity_permutation(node: Node) -> bool:
    dims = named_arguments(node)["dims"]
    return [dim % len(dims) for dim in dims] == list(range(len(dims))) if dims else True


def _repeats_once(node: Node) -> bool:
    return all(isinstance(count, int) and count == 1 for count in named_arguments(node)["repeats"])


_TESTS: dict[Any, Callable[[Node], bool]] = {
    # For these, an equal shape, dtype and layout of argument and result is all there is to test.
    **dict.fromkeys((*operators_with("noop_if_same_type"), torch.ops.aten.cat.default), _always),
    torch.ops.aten.slice_copy.Tensor: _is_full_slice,
    torch.ops.aten.permute_copy.default: _is_identity_permutation,
    torch.ops.aten.repeat.default: _repeats_once,
}


def _drop_empty_parts(editor: GraphEditor, node: Node) -> None:
    parts: Sequence[Node] = node.args[0]  # type: ignore[assignment]
    kept = [part for part in parts if not _is_empty(part.meta["val"])]
    if len(kept) == len(parts):
        return
    value = node.meta["val"]
    if kept:
        # A legacy empty tensor of one dim joins anything; dropping it can change neither shape nor dtype of the rest.
        if all(part.meta["val"].dtype == value.dtype for part in kept):
            strides = contiguous_stride(value.shape)
            if same_argument(tuple(strides), tuple(value.stride())):
                editor.retarget(node, torch.ops.aten.cat.default, (kept, *node.args[1:]), val=value)
        return
    if all(type(size) is int for size in value.shape):
        editor.retarget(node, torch.ops.aten.full.default, (list(value.shape), 0), {"dtype": value.dtype}, val=value)


def _is_empty(value: torch.Tensor) -> bool:
    return any(isinstance(size, int) and size == 0 for size in value.shape)
