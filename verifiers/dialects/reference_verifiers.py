"""The dialect verifiers under the documented names, as classes of `torch.export`.

They accept and reject what those of ExecuTorch do, with `SpecViolationError`, whose text is that of all
findings. Programs lowered by the official package are read as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._export.verifier import SpecViolationError, Verifier, _VerifierMeta
from torch._ops import OpOverload, OpOverloadPacket
from torch.export import ExportedProgram
from torch.fx import GraphModule

from exirkit.ir import (
    BackendOpOverload,
    DefinedOperator,
    Diagnostic,
    EdgeOpOverload,
    alloc,
    called_graphs,
    copy_graph_module,
    returns_view,
    underlying,
)

from .legality import check_dtypes, is_core, is_left_to_runtime

_GETATTR = (GraphModule, torch.nn.Module, torch.Tensor, torch.ScriptObject)
_WITH_DIM_ORDER_VARIANT = ("aten::_to_copy", "aten::empty.memory_format", "aten::clone")


class _ForeignHandle(type):
    """Class of the class whose instances are edge handles of any library."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return not isinstance(instance, OpOverload | DefinedOperator) and underlying(instance) is not instance


class _AnyEdgeHandle(metaclass=_ForeignHandle):
    """Stands for edge handles in lists of types."""


class _Unregistered(_VerifierMeta):
    """Makes verifiers without telling torch, which would have the newest of a dialect read programs from files."""

    def __new__(cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> Any:
        dialect = attributes.get("dialect")
        known = _VerifierMeta._registry.get(str(dialect))
        made = super().__new__(cls, name, bases, attributes)  # type: ignore[no-untyped-call]
        if known is not None:
            _VerifierMeta._registry[str(dialect)] = known
        return made


class EXIRATenDialectVerifierBase(Verifier, metaclass=_Unregistered):
    """Asks of a program what torch asks, and accepts every operator."""

    dialect = "OLD_EXIR_ATEN_DISABLED"

    def allowed_getattr_types(self) -> tuple[type[Any], ...]:
        """Return what may hang on the module of a program."""
        return _GETATTR

    def allowed_op_types(self) -> tuple[type[Any], ...]:
        """Return the types that call targets may have."""
        return (*super().allowed_op_types(), OpOverloadPacket, DefinedOperator)

    def __call__(self, module: ExportedProgram | GraphModule) -> None:
        """Check a program or a graph module on its own.

        Raises:
            SpecViolationError: It breaks a rule of the dialect.
        """
        self._check_graph_module(
            _without_leftovers(module.graph_module if isinstance(module, ExportedProgram) else module)
        )

    def is_valid(self, module: ExportedProgram | GraphModule) -> bool:
        """Return whether the check passes."""
        try:
            self(module)
        except SpecViolationError:
            return False
        return True


class _AtenRules:
    """Which ATen operators are legal.

    Args:
        config: Choices of `to_edge`, or None.
        exceptions: Overloads that are accepted although they are not core.
        preserved: Overloads that are not decomposed.
    """

    def __init__(self, config: Any, exceptions: Sequence[Any] | None, preserved: Sequence[Any] | None) -> None:
        self.exceptions = [*(exceptions or ()), *(getattr(config, "_core_aten_ops_exception_list", None) or ())]
        self.preserved = [*(preserved or ()), *(getattr(config, "preserve_ops", None) or ())]

    def check(self, op: Any) -> None:
        """Reject an operator that is not legal.

        Raises:
            SpecViolationError: It is not core.
            RuntimeError: It was preserved, but returns a view.
        """
        if not isinstance(op, OpOverload) or op.namespace != "aten" or op in self.exceptions:
            return
        if op in self.preserved:
            if returns_view(op):
                raise RuntimeError(f"{op.name()} cannot be preserved, because it returns a view of its argument")
            return
        if not is_core(op) and not is_left_to_runtime(op):
            raise SpecViolationError(_text("EK301", f"{op.name()} is not a core ATen operator"))


def EXIRATenDialectVerifier(  # noqa: N802 - the documented name
    edge_compile_config: Any = None,
    class_only: bool = False,
    core_aten_ops_exception_list: Sequence[OpOverload] | None = None,
    preserve_ops: Sequence[OpOverload] | None = None,
) -> Any:
    """Return a verifier of programs of core ATen operators.

    Args:
        edge_compile_config: An `EdgeCompileConfig`, whose lists are added to the others.
        class_only: Return the class instead of an instance.
        core_aten_ops_exception_list: Overloads that are accepted although they are not core.
        preserve_ops: Overloads that are not decomposed.
    """
    rules = _AtenRules(edge_compile_config, core_aten_ops_exception_list, preserve_ops)

    class ATenDialectVerifier(EXIRATenDialectVerifierBase):
        dialect = "OLD_EXIR_ATEN"

        def check_valid_op(self, op: Any) -> None:
            rules.check(op)

    return ATenDialectVerifier if class_only else ATenDialectVerifier()


def get_aten_verifier(config: Any) -> type[Verifier]:
    """Return the class of verifiers that `to_edge` uses: one that accepts everything if checks are switched off."""
    if not config._check_ir_validity:
        return EXIRATenDialectVerifierBase
    found: type[Verifier] = EXIRATenDialectVerifier(
        class_only=True,
        core_aten_ops_exception_list=config._core_aten_ops_exception_list,
        preserve_ops=config.preserve_ops,
    )
    return found


def EXIREdgeDialectVerifier(  # noqa: N802 - the documented name
    edge_compile_config: Any = None,
    class_only: bool = False,
    core_aten_ops_exception_list: Sequence[OpOverload] | None = None,
    preserve_ops: Sequence[OpOverload] | None = None,
) -> Any:
    """Return a verifier of Edge programs; parameters as `EXIRATenDialectVerifier`.

    With `_check_ir_validity=False` in the configuration it accepts everything.
    """
    return _edge_verifier(edge_compile_config, class_only, core_aten_ops_exception_list, preserve_ops, False)


def EXIRBackendDialectVerifier(  # noqa: N802 - the documented manner
    edge_compile_config: Any = None,
    class_only: bool = False,
    core_aten_ops_exception_list: Sequence[OpOverload] | None = None,
    preserve_ops: Sequence[OpOverload] | None = None,
) -> Any:
    """Return a verifier of Edge programs with operators of a backend; parameters as `EXIRATenDialectVerifier`."""
    return _edge_verifier(edge_compile_config, class_only, core_aten_ops_exception_list, preserve_ops, True)


def _edge_verifier(config: Any, class_only: bool, exceptions: Any, preserved: Any, takes_backend: bool) -> Any:
    rules = _AtenRules(config, exceptions, preserved)
    is_enabled = bool(getattr(config, "_check_ir_validity", True))
    uses_dim_orders = not getattr(config, "_skip_dim_order", False)

    class EdgeDialectVerifier(EXIRATenDialectVerifierBase):
        dialect = "EDGE"

        def allowed_op_types(self) -> tuple[type[Any], ...]:
            return (*super().allowed_op_types(), EdgeOpOverload, _AnyEdgeHandle, type(alloc))

        def check_valid_op(self, op: Any) -> None:
            if is_enabled and op not in rules.exceptions:
                _check_edge_op(op, rules.check, uses_dim_orders, takes_backend)

        def check_additional(self, gm: GraphModule) -> None:
            if is_enabled:
                _check_contiguous(gm)
                findings = check_dtypes(gm)
                if findings:
                    raise SpecViolationError("\n\n".join(each.render() for each in findings))

        def __call__(self, module: ExportedProgram | GraphModule) -> None:
            if is_enabled:
                super().__call__(module)

    return EdgeDialectVerifier if class_only else EdgeDialectVerifier()


def _check_edge_op(op: Any, check_aten: Callable[[Any], None], uses_dim_orders: bool, takes_backend: bool) -> None:
    if isinstance(op, type(alloc)):
        if op.__name__ != "alloc":
            raise SpecViolationError(_text("EK312", f"{op.__name__} is no operator of the Edge dialect"))
        return
    behind = underlying(op)
    if isinstance(op, OpOverload | DefinedOperator):
        if not is_left_to_runtime(op):
            raise SpecViolationError(_text("EK303", f"{op.name()} is no operator of the Edge dialect"))
        return
    if behind is op:
        return
    if isinstance(op, BackendOpOverload) and not takes_backend and not is_left_to_runtime(behind):
        raise SpecViolationError(_text("EK303", f"{op.name()} is an operator of a backend"))
    name = behind.name()
    if uses_dim_orders and name in _WITH_DIM_ORDER_VARIANT:
        raise SpecViolationError(_text("EK303", f"{name} stands where an operator of dim_order_ops must stand"))
    if not uses_dim_orders and behind._schema.name.startswith("dim_order_ops::"):
        raise SpecViolationError(_text("EK303", f"{name} stands in a program without dim orders"))
    check_aten(behind)


def _without_leftovers(module: GraphModule) -> GraphModule:
    """Return a module without graphs that no node names any more, as inlining leaves them behind."""
    named = {id(one) for one in called_graphs(module)}
    if all(id(one) in named for one in module.modules() if isinstance(one, GraphModule)):
        return module
    copied = copy_graph_module(module)
    for holder, original in zip(called_graphs(copied), called_graphs(module), strict=True):
        for name, child in original.named_children():
            if isinstance(child, GraphModule) and id(child) not in named:
                delattr(holder, name)
    return copied


def _check_contiguous(module: GraphModule) -> None:
    for name, tensor in itertools.chain(module.named_parameters(), module.named_buffers()):
        if not tensor.is_contiguous():
            raise SpecViolationError(_text("EK317", f"the stored tensor {name} is not contiguous"))


def _text(code: str, message: str) -> str:
    return Diagnostic(code=code, message=message).render()
