"""Which calls may write in place: by the level, by what the user asks for, and by the kernels that a target has."""

from __future__ import annotations

from typing import Any

from exirkit.ir import (
    UsageError,
    find_in_place_variant,
    find_out_variant,
    operator_name,
    out_operator_name,
    overwritable_arguments,
    underlying,
)
from exirkit.passes import ExecutorchBackendConfig
from exirkit.verifiers import KernelTable

_INDEX_PUT = "aten.index_put.default"
# What brings indices and values into the form that kernels of `index_put_` take, and these kernels.
_KERNELS_OF_INDEX_PUT = (
    "aten::index_put_",
    "aten::lt.Scalar_out",
    "aten::add.Scalar_out",
    "aten::where.self_out",
    "aten::expand_copy.out",
    "aten::view_copy.out",
)
_LEAST_NBYTES = 4096
"""Below this a copy of a tensor takes no longer than the calls that bring an index into the form."""


def in_place_settings(config: ExecutorchBackendConfig, kernels: KernelTable | None) -> dict[str, Any]:
    """Return what the choices of `to_executorch` say about writing in place, as settings of its pipeline.

    Args:
        config: Choices of the caller.
        kernels: Kernels of the target; None where nothing is known of them.

    Raises:
        UsageError: EK763, one of `reinplace_extra_ops` can neither write in place nor over an argument.
    """
    is_asked = bool(config.run_reinplace_pass or config.reinplace_extra_ops)
    is_by_level = config.optimization_level > 0
    if not is_asked and not is_by_level:
        return {}
    writing, sharing = _of_extra_operators(config, kernels)
    if all(map(kernels.has, _KERNELS_OF_INDEX_PUT)) if kernels is not None else is_asked:
        writing[_INDEX_PUT] = "aten.index_put_.default"
    return {
        "in-place": True,
        "in-place-operators": writing,
        "result-over-argument": tuple(sharing),
        "states-in-place": is_by_level,
        "in-place-least-nbytes": 0 if is_asked else _LEAST_NBYTES,
    }


def _of_extra_operators(
    config: ExecutorchBackendConfig, kernels: KernelTable | None
) -> tuple[dict[str, str], list[str]]:
    writing: dict[str, str] = {}
    sharing: list[str] = []
    for given in sorted(config.reinplace_extra_ops or (), key=operator_name):
        op = underlying(given)
        found, out = find_in_place_variant(op), find_out_variant(op)
        if found is not None and (kernels is None or kernels.has(found.name())):
            writing[operator_name(op)] = operator_name(found)
        elif out is not None and len(overwritable_arguments(out_operator_name(out))) == 1:
            sharing.append(operator_name(op))
        else:
            raise UsageError(
                code="EK763",
                message=f"{operator_name(op)}, of `reinplace_extra_ops`, cannot write in place on this target",
                notes=(f"it has {'no variant that does' if found is None else f'no kernel for {found.name()}'}",),
                hint="leave it out; or, if your runtime has such a kernel, describe it in the target",
            )
    return writing, sharing
