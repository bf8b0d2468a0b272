"""Short scripts about the official exporter for those who maintain it: no exirkit in them, only torch and tensors."""

from __future__ import annotations

from collections.abc import Iterator

from exirkit.fuzz.programs import Program, inputs_of, module_source, stored_tensor, tensor_source

_HEAD = """import torch
from executorch.exir import to_edge
from executorch.extension.pybindings.portable_lib import _load_for_executorch_from_buffer
"""


def upstream_script(program: Program) -> str | None:
    """Return a script that lowers a program with the official exporter and runs it on the official runtime.

    It ends with an AssertionError where the results are not those of eager torch, or with whatever the exporter or the
    runtime raises.

    Args:
        program: A program, reduced.

    Returns:
        The script; None for programs with several methods, or with sizes that are more than a symbol.
    """
    shapes = _dynamic_shapes(program)
    if len(program.methods) != 1 or shapes is None:
        return None
    method = program.methods[0]
    stored = ", ".join(f'"{one.name}": {tensor_source(stored_tensor(program, one.name))}' for one in program.stored)
    calls = ", ".join(_tuple(tensor_source(one) for one in inputs_of(program, run)) for run in program.runs)
    lines = [
        _HEAD,
        module_source(program).rstrip(),
        "",
        f"make = lambda: Method_{method.name}({{{stored}}})",
        f"calls = [{calls}]",
        f"exported = torch.export.export(make(), calls[0]{shapes})",
        "loaded = _load_for_executorch_from_buffer(to_edge(exported).to_executorch().buffer)",
        "model = make()",
        "for inputs in calls:",
        "    wanted, got = torch.utils._pytree.tree_leaves(model(*inputs)), loaded.forward(list(inputs))",
        "    for one, other in zip(wanted, got, strict=True):",
        "        torch.testing.assert_close(other, one)",
    ]
    return "\n".join(lines) + "\n"


def _dynamic_shapes(program: Program) -> str | None:
    """Return the argument that says which sizes vary, nothing if none does, or None if that cannot be said shortly."""
    known = {one.name: f'torch.export.Dim("{one.name}", min={one.low}, max={one.high})' for one in program.symbols}
    method = program.methods[0]
    if not any(isinstance(size, str) for one in method.inputs for size in one.type.sizes):
        return ""
    listed = []
    for one in method.inputs:
        dims = {at: size for at, size in enumerate(one.type.sizes) if isinstance(size, str)}
        if not all(size in known for size in dims.values()):
            return None
        listed.append(f"{{{', '.join(f'{at}: {known[str(size)]}' for at, size in dims.items())}}}")
    return f", dynamic_shapes={_tuple(listed)}"


def _tuple(parts: Iterator[str] | list[str]) -> str:
    return "(" + "".join(f"{part}, " for part in parts) + ")"
