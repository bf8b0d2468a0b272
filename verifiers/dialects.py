"""Operators, arguments and dtypes that are legal in a dialect; the dialect verifiers under the documented names.

They accept and reject what those of ExecuTorch do, with `SpecViolationError`, whose text is that of all
findings. Programs lowered by the official package are read as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from exirkit.ir import (
    BACKEND,
    EDGE,
    EXECUTORCH,
    BackendOpOverload,
    DefinedOperator,
    Diagnostic,
    Dialect,
    EdgeOpOverload,
    HigherOrderOperator,
    OperatorDtypes,
    OpOverload,
    OpOverloadPacket,
    SpecViolationError,
    UnknownOperatorError,
    Verifier,
    VerifierMeta,
    alloc,
    called_graphs,
    copy_graph_module,
    copy_variant,
    facts_of,
    free,
    functional_variant,
    has_trait,
    is_out_variant,
    known_dtypes,
    named_arguments,
    operator_name,
    operator_named,
    returns_view,
    underlying,
    value_of,
    view,
    writes_in_place,
)

from .structure import ProgramGraph, graphs_of

# Arithmetic on sizes and numbers, as torch leaves it in graphs.
_FUNCTIONS = frozenset(
    {
        *Verifier().allowed_builtin_ops(),
        torch.sym_int,
        torch.sym_float,
        torch.sym_ite,
        torch.sym_max,
        torch.sym_min,
        torch.sym_not,
        torch.sym_sqrt,
        torch.sym_sum,
    }
)
_MEMORY = (alloc, view, free)
_TWO_PARTS = (
    "keep real and imaginary parts in two real tensors: (a + bi)(c + di) is (ac - bd) + (ad + bc)i, and polar(r, t) is "
    "r cos t + (r sin t)i"
)
_FOURIER = (
    "multiply with matrices of cosines and sines: over n places, with angle = 2 * pi / n * outer(arange(n), "
    "arange(n)), the real part of the transform of a real x is x @ cos(angle), the imaginary one -x @ sin(angle)"
)


def check_aten_program(program: ExportedProgram, *, exceptions: Collection[Any] = ()) -> list[Diagnostic]:
    """Check that a program is functional and uses core ATen operators.

    Args:
        program: Program after decomposition.
        exceptions: Overloads that are accepted although they are not core.

    Returns:
        All findings (EK301: not core, EK302: writes to its arguments), in graph order.
    """
    return [
        finding
        for graph in graphs_of(program)
        for node in graph.calls()
        for finding in _aten_findings(graph, node, exceptions)
    ]


def check_edge_program(program: ExportedProgram) -> list[Diagnostic]:
    """Check that the calls of a program are those of the Edge dialect.

    Returns:
        All findings (EK302: writes to its arguments, EK303: no edge operator, EK304: number in a tensor's place,
        EK305: no recorded value, EK312: no operator at all, EK314: returns a view), in graph order.
    """
    return _check_functional(program, EDGE)


def check_backend_program(program: ExportedProgram) -> list[Diagnostic]:
    """Check that the calls of a program are those of the Edge dialect, or operators that a target has introduced.

    Returns:
        All findings, with the codes of `check_edge_program`, in graph order.
    """
    return _check_functional(program, BACKEND)


def check_executorch_program(program: ExportedProgram, *, allow_missing_out: bool = False) -> list[Diagnostic]:
    """Check that the calls of a program are those of the ExecuTorch dialect.

    Args:
        program: Program after the conversion to out variants.
        allow_missing_out: Accept operators that return new tensors, which only certain runtimes can run.

    Returns:
        All findings (EK305: no recorded value, EK312: no target of the dialect, EK313: no out variant), in graph order.
    """
    findings: list[Diagnostic] = []
    for graph in graphs_of(program):
        for node in graph.calls():
            findings += _executorch_findings(graph, node, allow_missing_out)
    return findings


def _aten_findings(graph: ProgramGraph, node: Node, exceptions: Collection[Any]) -> Iterator[Diagnostic]:
    op = node.target
    if not isinstance(op, OpOverload) or op in exceptions:
        return
    if op._schema.is_mutable:
        yield _writes(graph, node, op)
    elif op.namespace == "aten" and not is_core(op):
        yield _not_core(graph, node, op)


def _check_functional(program: ExportedProgram, dialect: Dialect) -> list[Diagnostic]:
    findings: list[Diagnostic] = []
    for graph in graphs_of(program):
        for node in graph.calls():
            if not isinstance(node.target, HigherOrderOperator):
                findings += _functional_findings(graph, node, dialect)
            findings += _missing_value(graph, node)
    return findings


def _functional_findings(graph: ProgramGraph, node: Node, dialect: Dialect) -> Iterator[Diagnostic]:
    target = node.target
    if isinstance(target, EdgeOpOverload):
        if isinstance(target, BackendOpOverload) and "backend" not in dialect.targets:
            yield _not_edge(graph, node, "an operator of a backend")
        if target._schema.is_mutable:
            yield _writes(graph, node, target)
        elif returns_view(target):
            yield _view(graph, node, target)
        yield from _numbers_for_tensors(graph, node)
    elif isinstance(target, OpOverload | DefinedOperator):
        if not _is_assertion(target):
            yield _not_edge(graph, node, "not an operator of the Edge dialect")
    elif target not in _FUNCTIONS and underlying(target) is target:
        yield _illegal(graph, node, dialect)


def _executorch_findings(graph: ProgramGraph, node: Node, allow_missing_out: bool) -> Iterator[Diagnostic]:
    target: Any = node.target
    if isinstance(target, HigherOrderOperator) or target is free:
        return
    yield from _missing_value(graph, node)
    if target in _MEMORY or target in _FUNCTIONS or writes_in_place(target):
        return
    if isinstance(target, BackendOpOverload) or not isinstance(target, OpOverload | DefinedOperator):
        if not (allow_missing_out and isinstance(target, BackendOpOverload)):
            yield _illegal(graph, node, EXECUTORCH)
    elif not is_out_variant(target) and _returns_tensors(target) and not allow_missing_out:
        yield graph.finding("EK313", node, f"{target.name()} returns a new tensor, for which no memory is planned")


def _is_assertion(target: Any) -> bool:
    return has_trait(target, "assertion") and has_trait(target, "any_dialect")


def _returns_tensors(op: Any) -> bool:
    return any("Tensor" in str(result.type) for result in op._schema.returns)


def is_core(op: OpOverload) -> bool:
    """Return whether an ATen operator may be left over by decomposition."""
    return torch.Tag.core in op.tags or torch.Tag.view_copy in op.tags or has_trait(op, "accepted_in_core")


def is_left_to_runtime(op: Any) -> bool:
    """Return whether an operator is legal in any dialect as it is: assertions, and arithmetic on sizes."""
    return has_trait(op, "any_dialect") or op._schema.name.startswith("executorch_prim::")


def _numbers_for_tensors(graph: ProgramGraph, node: Node) -> Iterator[Diagnostic]:
    given = named_arguments(node)
    for argument in underlying(node.target)._schema.arguments:
        if not isinstance(argument.type, torch.TensorType) or argument.name not in given:
            continue
        value = given[argument.name]
        if not isinstance(value, Node):
            yield graph.finding(
                "EK304", node, f"argument {argument.name} of {node.target} is {value!r} where a tensor must stand"
            )


def _missing_value(graph: ProgramGraph, node: Node) -> Iterator[Diagnostic]:
    if "val" not in node.meta and not _is_assertion(node.target):
        yield graph.finding("EK305", node, "node has no recorded value")


def _not_core(graph: ProgramGraph, node: Node, op: OpOverload) -> Diagnostic:
    if _is_complex(node):
        return graph.finding(
            "EK301",
            node,
            f"{op.name()} is not a core ATen operator: it computes complex numbers",
            notes=("runtimes have no kernels for complex numbers, and files no element type",),
            hint=_FOURIER if "_fft_" in op._schema.name else _TWO_PARTS,
        )
    advice = facts_of(op).advice
    return graph.finding(
        "EK301",
        node,
        f"{op.name()} is not a core ATen operator",
        notes=(
            "torch has no decomposition for it, or it was preserved on purpose",
            *(() if advice is None else (advice,)),
        ),
        hint=f"if your runtime has a kernel: EdgeCompileConfig(_core_aten_ops_exception_list=[torch.ops.{op}])",
    )


def _is_complex(node: Node) -> bool:
    """Return whether a call takes or returns complex tensors."""
    results = value_of(node)
    values = [*map(value_of, node.all_input_nodes), *(results if isinstance(results, list | tuple) else [results])]
    return any(isinstance(value, torch.Tensor) and value.is_complex() for value in values)


def _not_edge(graph: ProgramGraph, node: Node, what: str) -> Diagnostic:
    target: Any = node.target
    legal = _legal_in_edge(target)
    if legal is None:
        hint = "a functional graph has operators that return new tensors and write to no argument: call one of these"
        return graph.finding("EK303", node, f"{target.name()} is {what}", hint=hint)
    name = operator_name(legal)
    return graph.finding(
        "EK303",
        node,
        f"{target.name()} is {what}",
        expected=f"the handle `exirkit.ops.edge.{name}`",
        hint=f"passes on Edge programs call `exirkit.ops.edge.{name}`, not `torch.ops.{operator_name(target)}`",
    )


def _legal_in_edge(target: Any) -> Any:
    """Return the operator that computes the same without views and writes, if there is one."""
    if returns_view(target):
        return copy_variant(target)
    op = underlying(target)
    if not op._schema.is_mutable:
        return target
    if is_out_variant(op):
        return functional_variant(op)
    namespace, _, name = op._schema.name.partition("::")
    try:
        return operator_named(f"{namespace}.{name.removesuffix('_')}.{op._overloadname}")
    except UnknownOperatorError:
        return None


def _illegal(graph: ProgramGraph, node: Node, dialect: Dialect) -> Diagnostic:
    name = getattr(node.target, "__name__", str(node.target))
    message = f"{name} is not a legal call target of the {dialect.name} dialect"
    expected = f"operators of these kinds: {', '.join(sorted(dialect.targets))}; or arithmetic on sizes"
    if not isinstance(node.target, OpOverloadPacket):
        return graph.finding("EK312", node, message, expected=expected)
    overloads = ", ".join(node.target.overloads())
    hint = f"an operator is called by one of its overloads: `exirkit.ops.edge.{node.target}` has {overloads}"
    return graph.finding("EK312", node, message, expected=expected, hint=hint)


def _view(graph: ProgramGraph, node: Node, op: Any) -> Diagnostic:
    name = underlying(op)._schema.name.partition("::")[2]
    return graph.finding(
        "EK314",
        node,
        f"{op.name()} returns a view of its argument",
        hint=f"use the copying operator, {name}_copy; whether memory is shared is decided by the memory plan",
    )


def _writes(graph: ProgramGraph, node: Node, op: Any) -> Diagnostic:
    return graph.finding("EK302", node, f"{op.name()} writes to its arguments in a functional graph")


def check_dtypes(program: ExportedProgram | GraphModule, *, runtime: bool = False) -> list[Diagnostic]:
    """Look up whether operators take the dtypes that they are given, and return those that are recorded.

    Args:
        program: Program of any dialect.
        runtime: Look up what kernels of the ExecuTorch runtime take; without, what those of torch take.

    Returns:
        All findings (EK353: no kernel takes these arguments, EK354: it returns another dtype), in graph order.
        Operators and dtypes that the catalogue does not know are passed over.
    """
    known = known_dtypes(runtime)
    findings: list[Diagnostic] = []
    for graph in graphs_of(program):
        for node in graph.calls():
            op = _functional(node)
            entry = None if op is None else known.get(operator_name(op))
            if entry is not None:
                findings += _findings(graph, node, entry, runtime)
    return findings


def _functional(node: Node) -> OpOverload | DefinedOperator | None:
    op = underlying(node.target)
    if not isinstance(op, OpOverload | DefinedOperator):
        return None
    if is_out_variant(op):
        functional: OpOverload | DefinedOperator | None = functional_variant(op)
        return functional
    return op


def _findings(graph: ProgramGraph, node: Node, entry: OperatorDtypes, runtime: bool) -> Iterator[Diagnostic]:
    arguments = named_arguments(node)
    given = tuple(_dtype(arguments.get(name)) for name in entry.arguments)
    if None in given or not entry.is_known(given) or _is_weak(arguments.values()):  # type: ignore[arg-type]
        return
    where = "the ExecuTorch runtime" if runtime else "torch"
    possible = entry.results.get(given)  # type: ignore[arg-type]
    if possible is None:
        shown = ", ".join(f"{name}: {dtype}" for name, dtype in zip(entry.arguments, given, strict=True))
        yield graph.finding(
            "EK353",
            node,
            f"no kernel of {where} takes {shown}",
            expected=f"one of: {'  /  '.join(entry.rules[:4])}{'  ...' if len(entry.rules) > 4 else ''}",
        )
        return
    returned = _returned(node)
    if returned is not None and returned not in possible and _says_dtype(node):
        yield graph.finding(
            "EK354",
            node,
            f"%{node.name} is recorded to be {', '.join(returned)}",
            expected=" or ".join(sorted(", ".join(each) for each in possible)),
        )


def _is_weak(arguments: Iterable[Any]) -> bool:
    """Return whether tensors without dims stand beside others of another dtype, which they may not widen."""
    tensors = [value for one in arguments if isinstance(value := value_of(one), torch.Tensor)]
    return len({one.dtype for one in tensors}) > 1 and len({one.dim() == 0 for one in tensors}) > 1


def _says_dtype(node: Node) -> bool:
    """Return whether the dtype of the result follows from the arguments: it is lost for some out variants."""
    return not is_out_variant(underlying(node.target))


def _returned(node: Node) -> tuple[str, ...] | None:
    value = node.meta.get("val")
    values: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
    if not values or not all(isinstance(one, torch.Tensor) for one in values):
        return None
    returns = underlying(node.target)._schema.returns
    if len(returns) == 1 and isinstance(value, list | tuple):
        values = values[:1]
    return tuple(str(one.dtype).removeprefix("torch.") for one in values)


def _dtype(argument: Any) -> str | None:
    """Return the dtype of an argument, `none` if it is not given, or None if there is no saying."""
    if isinstance(argument, list | tuple):
        found = {_dtype(one) for one in argument} - {"none"}
        return found.pop() if len(found) == 1 else "none" if not found else None
    value = value_of(argument)
    if value is None:
        return None if isinstance(argument, Node) else "none"
    if isinstance(value, torch.Tensor):
        return str(value.dtype).removeprefix("torch.")
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else None


_GETATTR = (GraphModule, torch.nn.Module, torch.Tensor, torch.ScriptObject)
_WITH_DIM_ORDER_VARIANT = ("aten::_to_copy", "aten::empty.memory_format", "aten::clone")


class _ForeignHandle(type):
    """Class of the class whose instances are edge handles of any library."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return not isinstance(instance, OpOverload | DefinedOperator) and underlying(instance) is not instance


class _AnyEdgeHandle(metaclass=_ForeignHandle):
    """Stands for edge handles in lists of types."""


class _Unregistered(VerifierMeta):
    """Makes verifiers without telling torch, which would have the newest of a dialect read programs from files."""

    def __new__(cls, name: str, bases: tuple[type, ...], attributes: dict[str, Any]) -> Any:
        dialect = attributes.get("dialect")
        known = VerifierMeta._registry.get(str(dialect))
        made = super().__new__(cls, name, bases, attributes)  # type: ignore[no-untyped-call]
        if known is not None:
            VerifierMeta._registry[str(dialect)] = known
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
            raise SpecViolationError(_text("EK312", f"{op.__name__} is not an operator of the Edge dialect"))
        return
    behind = underlying(op)
    if isinstance(op, OpOverload | DefinedOperator):
        if not is_left_to_runtime(op):
            raise SpecViolationError(_text("EK303", f"{op.name()} is not an operator of the Edge dialect"))
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
