"""Which tensors the program provides memory for."""

from __future__ import annotations

from dataclasses import dataclass

from exirkit.ir import ContractError, Diagnostic, ModelError, TensorSpec, locate

from .algorithms import has_integer_sizes, still_symbolic
from .graph_specs import SpecRoles


@dataclass(frozen=True, slots=True)
class AllocationPolicy:
    """Whose memory is planned; what is not planned the caller provides.

    Attributes:
        graph_input: User inputs.
        graph_output: What the caller gets back. A tensor that is an input and an output is planned only if both are: if
            the caller provides one of them, it provides the tensor.
        mutable_buffers: Buffers and parameters that the program mutates. One that is returned as well belongs to the
            program all the same, for its value has to outlive the call.
    """

    graph_input: bool = True
    graph_output: bool = True
    mutable_buffers: bool = True

    def covers(self, spec: TensorSpec, roles: SpecRoles) -> bool:
        """Return whether the memory of a spec, which is no view, is planned; that of constants never is."""
        if spec in roles.constants:
            return False
        if spec in roles.state:
            return self.mutable_buffers
        return (self.graph_input or spec not in roles.inputs) and (self.graph_output or spec not in roles.outputs)


def select_specs(roles: SpecRoles, policy: AllocationPolicy) -> list[TensorSpec]:
    """Return the specs to plan, none of them a view, in order of appearance.

    Raises:
        ModelError: EK451 for a shape that is still symbolic, EK452 for one without upper bound.
        ContractError: EK454, if the caller is to provide an output that is a view of other memory.
    """
    if not policy.graph_output and roles.returned_views:
        raise ContractError(_returned_view(roles, roles.returned_views[0]))
    selected = [spec for spec in roles.owners if policy.covers(spec, roles)]
    for spec in selected:
        if spec.is_dynamic_unbound_tensor:
            raise ModelError(_unbounded(roles, spec))
        if not has_integer_sizes(spec):
            raise ModelError(still_symbolic(spec, locate(roles.owners[spec])))
    return selected


def _returned_view(roles: SpecRoles, spec: TensorSpec) -> Diagnostic:
    return Diagnostic(
        code="EK454",
        message="an output that the caller provides memory for is a view of other memory",
        location=locate(roles.views[spec]),
        expected="an output that an operator writes, since nothing writes to a view's own memory",
        hint="keep the copy (`view_copy`) in front of this output, or plan with alloc_graph_output=True",
    )


def _unbounded(roles: SpecRoles, spec: TensorSpec) -> Diagnostic:
    return Diagnostic(
        code="EK452",
        message="a tensor whose size has no upper bound cannot be planned",
        location=locate(roles.owners[spec]),
        notes=(
            f"its spec is {spec!r}",
            "memory that the runtime allocates and frees while the program runs is not supported yet",
        ),
        hint="bound the dimension: torch.export.Dim(..., max=...), or torch._check(size <= ...) in the model",
    )
