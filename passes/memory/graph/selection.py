"""Which tensors the program provides memory for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from exirkit.ir import ContractError, Diagnostic, ModelError, TensorSpec, locate
from exirkit.passes.memory.algorithms import has_integer_sizes, still_symbolic

from .specs import SpecRoles


@dataclass(frozen=True, slots=True)
class AllocationPolicy:
    """Whose memory is planned; what is not planned the caller provides.

    Attributes:
        graph_input: User inputs; all of them, none, or those of these placeholders.
        graph_output: What the caller gets back; all of it, nothing, or what is at these places of it. A tensor that is
            an input and an output is planned only if both are: if the caller provides one of them, it provides the
            tensor.
        mutable_buffers: Buffers and parameters that the program mutates. One that is returned as well belongs to the
            program all the same, for its value has to outlive the call.
    """

    graph_input: bool | Collection[str] = True
    graph_output: bool | Collection[int] = True
    mutable_buffers: bool = True

    def covers(self, spec: TensorSpec, roles: SpecRoles) -> bool:
        """Return whether the memory of a spec, which is no view, is planned; that of constants never is."""
        if spec in roles.constants:
            return False
        if spec in roles.state:
            return self.mutable_buffers
        return self._covers_input(spec, roles) and self._covers_output(spec, roles)

    def _covers_input(self, spec: TensorSpec, roles: SpecRoles) -> bool:
        if spec not in roles.inputs or isinstance(self.graph_input, bool):
            return spec not in roles.inputs or bool(self.graph_input)
        return roles.owners[spec].name in self.graph_input

    def _covers_output(self, spec: TensorSpec, roles: SpecRoles) -> bool:
        return spec not in roles.outputs or self.covers_places(roles.output_places[spec])

    def covers_places(self, places: Collection[int]) -> bool:
        """Return whether outputs at all of these places are planned."""
        if isinstance(self.graph_output, bool):
            return self.graph_output
        return all(place in self.graph_output for place in places)


def select_specs(roles: SpecRoles, policy: AllocationPolicy) -> list[TensorSpec]:
    """Return the specs to plan, none of them a view, in order of appearance.

    Raises:
        ModelError: EK451 for a shape that is still symbolic, EK452 for one without upper bound.
        ContractError: EK454, if the caller is to provide an output that is a view of other memory.
    """
    for one in roles.returned_views:
        if not policy.covers_places(roles.output_places[one]):
            raise ContractError(_returned_view(roles, one))
    selected = [spec for spec in roles.owners if policy.covers(spec, roles) and not _is_left_to_the_runtime(spec)]
    for spec in selected:
        if spec.is_dynamic_unbound_tensor:
            raise ModelError(_unbounded(roles, spec))
        if not has_integer_sizes(spec):
            raise ModelError(still_symbolic(spec, locate(roles.owners[spec])))
    return selected


def _is_left_to_the_runtime(spec: TensorSpec) -> bool:
    # Sizes without a bound are 0 once they have been looked at.
    return spec.is_dynamic_unbound_tensor and has_integer_sizes(spec) and 0 in spec.shape


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
            "its sizes have not been given to the runtime either, as bound-symbolic-shapes does if it is told to",
        ),
        hint="bound the dimension: torch.export.Dim(..., max=...), or torch._check(size <= ...) in the model",
    )
