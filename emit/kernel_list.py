"""Which kernels a runtime needs for some program files, as the official selective build reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .printer import ValueNames
from .schema import ExecutionPlan, KernelCall, OptionalTensorList, Program, Tensor, TensorList

_ANY_TYPES = "default"


def needed_kernels(programs: Mapping[str, Program], *, with_types: bool = True) -> dict[str, Any]:
    """Return the operators of programs, with the dtypes and dim orders that each is called with.

    Args:
        programs: Programs by the names of their files.
        with_types: List dtypes and dim orders; otherwise each operator needs its kernels for all of them.

    Returns:
        A document as `executorch.codegen.tools.gen_oplist` writes it: `operators`, and by operator under
        `et_kernel_metadata` keys such as `v1/6;0,1|6;0,1` (scalar type and dim order of each tensor in turn).
    """
    files: dict[str, list[str]] = {}
    keys: dict[str, set[str]] = {}
    for file, program in programs.items():
        for plan in program.execution_plan:
            for name, key in _calls(plan):
                keys.setdefault(name, set()).add(key if with_types else _ANY_TYPES)
                if file not in files.setdefault(name, []):
                    files[name].append(file)
    return {
        "build_features": [],
        "custom_classes": [],
        "et_kernel_metadata": {name: sorted(keys[name]) for name in sorted(keys)},
        "include_all_non_op_selectives": False,
        "include_all_operators": False,
        "kernel_metadata": {},
        "operators": {
            name: {
                "debug_info": files[name],
                "include_all_overloads": False,
                "is_root_operator": True,
                "is_used_for_training": True,
            }
            for name in sorted(files)
        },
    }


def _calls(plan: ExecutionPlan) -> Iterable[tuple[str, str]]:
    names = ValueNames(plan.values)
    for instruction in (each for chain in plan.chains for each in chain.instructions):
        call = instruction.instr_args
        if isinstance(call, KernelCall) and 0 <= call.op_index < len(plan.operators):
            operator = plan.operators[call.op_index]
            name = f"{operator.name}.{operator.overload}" if operator.overload else operator.name
            yield name, "v1/" + "|".join(_keys(names, call.args))


def _keys(names: ValueNames, arguments: Iterable[int]) -> Iterable[str]:
    for index in arguments:
        value = names.value(index)
        if isinstance(value, (TensorList, OptionalTensorList)):
            # A kernel of a list is chosen by the first tensor in it.
            value = next((one for item in value.items if isinstance(one := names.value(item), Tensor)), None)
        if isinstance(value, Tensor):
            yield f"{value.scalar_type.value};{','.join(map(str, value.dim_order))}"
