"""Programs lowered to Edge by the official exporter, on its own operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from executorch.exir import EdgeCompileConfig as OfficialCompileConfig
from executorch.exir import to_edge as official_to_edge
from torch.export import ExportedProgram

from exirkit.ir import operator_named


def officially_lowered(
    programs: Mapping[str, ExportedProgram], keeps: Sequence[str] = ()
) -> dict[str, ExportedProgram]:
    """Return what the official exporter makes of exported programs, as a pass of its pass managers meets them.

    Args:
        programs: Exported programs by method; they are not changed.
        keeps: Names of operators that are not decomposed.
    """
    config = OfficialCompileConfig(_check_ir_validity=False, preserve_ops=[operator_named(one) for one in keeps])
    manager = official_to_edge(dict(programs), compile_config=config)
    return {name: manager.exported_program(name) for name in sorted(manager.methods)}
