"""Ways to go through the official exporter: its usual one, and some of its flags and passes that a program must name.

Only the worker that holds the package calls these functions; what they import is not imported before.
"""

from __future__ import annotations

import importlib
import random
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torch.export import ExportedProgram

Programs = dict[str, ExportedProgram]


def _usual(programs: Programs) -> Any:
    return _edge(programs).to_executorch()


def _twice(programs: Programs) -> Any:
    edge = _edge(programs)
    edge.to_executorch()
    return edge.to_executorch()


def _first_values(programs: Programs) -> Any:
    module = importlib.import_module("executorch.exir.passes.init_mutable_pass")
    every_buffer = module.InitializedMutableBufferPass([""])
    return _edge(programs).to_executorch(_exir().ExecutorchBackendConfig(passes=[every_buffer]))


def _reinplaced(programs: Programs) -> Any:
    return _edge(programs).to_executorch(_exir().ExecutorchBackendConfig(run_reinplace_pass=True))


def _memory_of_the_caller(programs: Programs) -> Any:
    planning = importlib.import_module("executorch.exir.passes").MemoryPlanningPass(
        alloc_graph_input=False, alloc_graph_output=False
    )
    return _edge(programs).to_executorch(_exir().ExecutorchBackendConfig(memory_planning_pass=planning))


def _batch_norm_fused(programs: Programs) -> Any:
    module = importlib.import_module("executorch.backends.transforms.fuse_batch_norm_with_conv")
    edge = _edge(programs)
    for name in edge.methods:
        edge = edge.transform({name: [module.FuseBatchNormWithConvPass(edge.exported_program(name))]})
    return edge.to_executorch()


def _scalars_as_tensors(programs: Programs) -> Any:
    module = importlib.import_module("executorch.backends.transforms.replace_scalar_with_tensor")
    edge = _edge(programs, _check_ir_validity=False)
    return edge.transform([module.ReplaceScalarWithTensorArgPass()]).to_executorch()


def _common_subexpressions(programs: Programs) -> Any:
    module = importlib.import_module("executorch.exir.passes.cse_pass")
    return _edge(programs).transform([module.CSEPass()]).to_executorch()


def _delegated(programs: Programs) -> Any:
    return _lowered_for_xnnpack(programs)


def _each_delegated(programs: Programs) -> Any:
    return _lowered_for_xnnpack(programs, per_op_mode=True)


def _delegated_behind_edge(programs: Programs) -> Any:
    """Go the older way: partition the Edge program, in which composites are decomposed already."""
    return _edge(programs, _check_ir_validity=False).to_backend(_partitioner()).to_executorch()


def _delegated_in_part(programs: Programs) -> Any:
    """Delegate some kinds of operators only, by their own or many at a time, as the text of the program decides."""
    configs = importlib.import_module("executorch.backends.xnnpack.partition.config")
    precisions = importlib.import_module("executorch.backends.xnnpack.partition.config.xnnpack_config")
    text = "".join(str(program.graph) for program in programs.values())
    draw = random.Random(zlib.crc32(text.encode()))
    known = list(configs.ALL_PARTITIONER_CONFIGS)
    kept = [one for one in known if draw.random() < draw.choice((0.5, 0.8))] or known
    precision = draw.choice((None, precisions.ConfigPrecisionType.FP32))
    return _lowered_for_xnnpack(
        programs, configs=kept, config_precisions=precision, per_op_mode=draw.random() < 0.3, draw=draw
    )


def _lowered_for_xnnpack(programs: Programs, draw: random.Random | None = None, **choices: Any) -> Any:
    exir = _exir()
    config = exir.EdgeCompileConfig(_check_ir_validity=False, _skip_dim_order=draw is not None and draw.random() < 0.3)
    edge = exir.to_edge_transform_and_lower(programs, partitioner=[_partitioner(**choices)], compile_config=config)
    return edge.to_executorch()


def _partitioner(**choices: Any) -> Any:
    module = importlib.import_module("executorch.backends.xnnpack.partition.xnnpack_partitioner")
    return module.XnnpackPartitioner(**choices)


VARIANTS: Mapping[str, Callable[[Programs], Any]] = MappingProxyType(
    {
        "": _usual,
        "first_values": _first_values,
        "twice": _twice,
        "reinplaced": _reinplaced,
        "memory_of_the_caller": _memory_of_the_caller,
        "batch_norm_fused": _batch_norm_fused,
        "scalars_as_tensors": _scalars_as_tensors,
        "common_subexpressions": _common_subexpressions,
        "xnnpack": _delegated,
        "xnnpack_each": _each_delegated,
        "xnnpack_behind_edge": _delegated_behind_edge,
        "xnnpack_in_part": _delegated_in_part,
    }
)
"""By name: from exported programs by method to something with the file in its attribute `buffer`."""


def _exir() -> Any:
    return importlib.import_module("executorch.exir")


def _edge(programs: Programs, **choices: Any) -> Any:
    exir = _exir()
    return exir.to_edge(programs, compile_config=exir.EdgeCompileConfig(**choices))
