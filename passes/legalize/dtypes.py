"""Give operators arguments of the dtypes that they are to compute in."""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator, ValidationInfo
from torch.fx import Node
from torch.fx.node import map_arg

from exirkit.ir import EdgeOpOverload, GraphEditor, dim_order_from_stride, has_trait, ops, same_argument, underlying
from exirkit.passes.analysis.known_values import as_constant
from exirkit.passes.analysis.stored_values import StoredValues
from exirkit.passes.contract import ReportingPass

from .dtype_policy import DTYPES, DtypePolicy, Treatment, read_dtype_policy, treatments


@dataclass(frozen=True, slots=True)
class LegalizeReport:
    """What legalising one program did.

    Attributes:
        legalized: Names of the operators whose arguments have other dtypes now, as they were called before.
        casts: How many casts there are more, not counting those that were dropped again.
        constants: Names of stored tensors that were cast.
    """

    legalized: tuple[str, ...]
    casts: int
    constants: tuple[str, ...]


def _read(given: Any, info: ValidationInfo) -> Any:
    """Read the file that a string names, beside the pipeline."""
    if not isinstance(given, str):
        return given
    try:
        return read_dtype_policy(Path((info.context or {}).get("folder", ".")) / given)
    except OSError as error:
        raise ValueError(f"{given} cannot be read: {(error.strerror or str(error)).lower()}") from None


@dataclass(eq=False)
class LegalizeDtypes(ReportingPass[LegalizeReport]):
    """Cast arguments of operators to the dtypes that a policy asks for, and results back to what they have been.

    Users and the signature of the program see the dtypes that they saw before. Stored tensors are cast now, everything
    else when the program runs. Of two casts in a row the pair is dropped if it changes nothing: int32 to int64 and
    back, but not float32 to float16 and back. Left alone are operators whose result another operator writes to.

    Args:
        policy: Dtypes by operator.

    Before: `%y = aten.gelu.default(%x_f16)`
    After: `%c = aten._to_copy.default(%x_f16, dtype=torch.float32)`; `%g = aten.gelu.default(%c)`;
        `%y = aten._to_copy.default(%g, dtype=torch.float16)`

    Raises:
        UsageError: EK442, the policy names operators or arguments that do not exist.
    """

    name = "legalize-dtypes"

    policy: Annotated[DtypePolicy, BeforeValidator(_read)]

    def __post_init__(self) -> None:
        self._treatments = treatments(self.policy)

    def edit(self, editor: GraphEditor) -> None:
        """Insert the casts.

        Raises:
            ModelError: EK111, an operator does not take the dtypes that the policy asks for.
        """
        casting = _Casting(editor)
        for node in list(editor.graph.nodes):
            if node.op == "call_function":
                treatment = self._treatments.get(underlying(node.target))
                if treatment is not None:
                    casting.legalize(node, treatment)
        self.reports.append(casting.finish())


@dataclass
class _Casting:
    """Casts made in one program, each once."""

    editor: GraphEditor
    made: dict[tuple[Node, torch.dtype], Node] = field(default_factory=dict)
    legalized: list[str] = field(default_factory=list)
    constants: dict[Node, None] = field(default_factory=dict)
    passed: dict[Node, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stored = StoredValues(self.editor.program)

    def legalize(self, node: Node, treatment: Treatment) -> None:
        """Cast the arguments of a call, and its results back."""
        value = node.meta.get("val")
        is_list = isinstance(value, list | tuple)
        if self.stored.is_written(node) or (
            is_list and any(user.target is not operator.getitem for user in node.users)
        ):
            return
        names = [argument.name for argument in underlying(node.target)._schema.arguments]
        args = tuple(self._argument(one, name, treatment, node) for one, name in zip(node.args, names, strict=False))
        kwargs = {name: self._argument(one, name, treatment, node) for name, one in node.kwargs.items()}
        if same_argument(args, node.args) and same_argument(kwargs, dict(node.kwargs)):
            return
        self.legalized.append(node.name)
        target: Any = node.target
        new = self.editor.call(target, args, kwargs, before=node, origins=node)
        for old, result in self._results(node, new):
            self._put(old, result, node)
        if is_list:
            self.editor.erase(node)

    def finish(self) -> LegalizeReport:
        """Take out what nothing uses any more, and report."""
        for node in self.passed:
            if not node._erased:
                self.editor.erase_unused(node)
        names = tuple(node.name for node in self.constants)
        self.editor.remove_inputs([node for node in self.constants if not node.users])
        casts = sum(node.op == "call_function" and not node._erased for node in self.made.values())
        return LegalizeReport(tuple(self.legalized), casts, names)

    def _argument(self, argument: Any, name: str, treatment: Treatment, before: Node) -> Any:
        def cast(node: Node) -> Node:
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor):
                return node
            return self.cast(node, treatment.wanted(name, value.dtype), before)

        return map_arg(argument, cast)

    def cast(self, source: Node, dtype: torch.dtype, before: Node) -> Node:
        """Return a node with the value of `source` in a dtype."""
        value = source.meta["val"]
        if value.dtype == dtype:
            return source
        is_written = self.stored.is_written(source)
        known = self.made.get((source, dtype))
        if known is not None and not is_written:
            return known
        inner = None if is_written else self._behind(source, dtype)
        if inner is not None:
            self.passed[source] = None
            return self.cast(inner, dtype, before)
        made = self._stored_cast(source, dtype) or self._call(source, dtype, before)
        self.made[source, dtype] = made
        return made

    def _behind(self, source: Node, dtype: torch.dtype) -> Node | None:
        """Return what a cast was made from, if casting that gives the same as casting the cast."""
        if source.op != "call_function" or not has_trait(source.target, "cast"):
            return None
        inner, value = source.all_input_nodes[0], source.meta["val"]
        before = inner.meta["val"]
        is_same = same_argument(before.stride(), value.stride()) and not self.stored.is_written(inner)
        return inner if is_same and holds(value.dtype, before.dtype) and holds(dtype, before.dtype) else None

    def _stored_cast(self, source: Node, dtype: torch.dtype) -> Node | None:
        tensor = self.stored.tensor(source)
        if tensor is None:
            return None
        self.constants[source] = None
        name = f"{source.name}_{str(dtype).removeprefix('torch.')}"
        made = as_constant(tensor.detach().to(dtype), source.meta["val"])
        return self.editor.add_constant(made, name=name, origins=source)

    def _call(self, source: Node, dtype: torch.dtype, before: Node) -> Node:
        target, options = _cast_call(before, source.meta["val"])
        kwargs = {"dtype": dtype, **options}
        return self.editor.call(target, (source,), kwargs, before=before, origins=before)

    def _results(self, node: Node, new: Node) -> list[tuple[Node, Node]]:
        """Return the old results and the new ones, one by one."""
        if isinstance(node.meta["val"], torch.Tensor):
            return [(node, new)]
        return [
            (user, self.editor.call(operator.getitem, (new, user.args[1]), before=user, origins=user))
            for user in list(node.users)
        ]

    def _put(self, old: Node, new: Node, call: Node) -> None:
        value = old.meta["val"]
        if new.meta["val"].dtype != value.dtype:
            target, options = _cast_call(call, value)
            made = self.editor.call(target, (new,), {"dtype": value.dtype, **options}, before=old, origins=old)
            self.made[new, value.dtype] = new = made
        self.editor.replace(old, new)
        self.editor.erase(old)


def _cast_call(call: Node, value: torch.Tensor) -> tuple[Any, dict[str, Any]]:
    """Return the operator that casts in the dialect of a call, and the arguments that give the layout of a value."""
    if isinstance(call.target, EdgeOpOverload):
        order = list(dim_order_from_stride(value.stride(), value.shape))
        return ops.edge.dim_order_ops._to_dim_order_copy.default, {"dim_order": order}
    return torch.ops.aten._to_copy.default, {}


@cache
def holds(wide: torch.dtype, narrow: torch.dtype) -> bool:
    """Whether every value of one dtype survives a cast to another and back."""
    if wide == narrow:
        return True
    if not {wide, narrow} <= set(DTYPES.values()) or wide is torch.bool:
        return False
    if narrow is torch.bool:
        return True
    if narrow.is_complex and not wide.is_complex:
        return False
    wide, narrow = wide.to_real(), narrow.to_real()
    if narrow.is_floating_point:
        return wide.is_floating_point and _float_holds(torch.finfo(wide), torch.finfo(narrow))
    limits = torch.iinfo(narrow)
    if not wide.is_floating_point:
        return torch.iinfo(wide).min <= limits.min and limits.max <= torch.iinfo(wide).max
    # Whole numbers are exact as far as the significand reaches.
    return max(-limits.min, limits.max) <= 2 / torch.finfo(wide).eps


def _float_holds(wide: torch.finfo, narrow: torch.finfo) -> bool:
    return wide.eps <= narrow.eps and wide.max >= narrow.max and wide.tiny * wide.eps <= narrow.tiny * narrow.eps
