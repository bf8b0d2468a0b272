"""How the benchmark models are quantized: by `prepare_pt2e` with a quantizer as data, or by `quantize_` of torchao."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.export import ExportedProgram

from benchmarks.models import Benchmark
from exirkit.ir import is_quantization
from exirkit.passes import data_quantizer

# torch has these dtypes, and no annotations for them.
INT4: torch.dtype = vars(torch)["int4"]
INT2: torch.dtype = vars(torch)["int2"]


class UnsuitedModelError(Exception):
    """The model has no layer that the flow quantizes."""


def pt2e(benchmark: Benchmark, *, fold_quantize: bool = True, **settings: bool) -> ExportedProgram:
    """Return a model after `convert_pt2e`, calibrated with its own inputs.

    Args:
        benchmark: The model.
        fold_quantize: Whether quantized weights are stored, instead of float weights that each call quantizes.
        **settings: Of the quantizer `xnnpack`.

    Raises:
        UnsuitedModelError: The quantizer quantizes nothing.
    """
    flow = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
    prepared = flow.prepare_pt2e(benchmark.export().module(), data_quantizer("xnnpack", **settings))
    with torch.no_grad():
        prepared(*benchmark.inputs)
        converted = flow.convert_pt2e(prepared, fold_quantize=fold_quantize)
    if not any(is_quantization(node.target) for node in converted.graph.nodes):
        raise UnsuitedModelError
    return torch.export.export(converted, benchmark.inputs, dynamic_shapes=benchmark.dynamic_shapes, strict=False)


def source(benchmark: Benchmark, kind: type[torch.nn.Module], config: Callable[[Any], Any]) -> ExportedProgram:
    """Return a model whose layers of a kind torchao has quantized.

    Args:
        benchmark: The model.
        kind: Of the layers.
        config: Makes what `quantize_` is given, of the package `torchao.quantization`.

    Raises:
        UnsuitedModelError: There is no such layer.
    """
    library = importlib.import_module("torchao.quantization")
    module = copy.deepcopy(benchmark.module)
    chosen = config(library)
    granularity = getattr(chosen, "weight_granularity", None) or getattr(chosen, "granularity", None)
    sizes = getattr(granularity, "group_size", 1)

    def suits(layer: torch.nn.Module, _: str) -> bool:
        # Groups fill rows.
        return isinstance(layer, kind) and layer.get_parameter("weight").shape[-1] % sizes == 0

    if not any(suits(layer, "") for layer in module.modules()):
        raise UnsuitedModelError
    library.quantize_(module, chosen, suits)
    return Benchmark(module, benchmark.inputs, benchmark.dynamic_shapes).export()


def tables(dtype: torch.dtype, group: int) -> Callable[[Any], Any]:
    """Return what makes torchao's configuration of tables of integers.

    Args:
        dtype: Of the elements.
        group: Columns with one scale; 0 for whole rows.
    """

    def config(library: Any) -> Any:
        granularity = library.PerGroup(group) if group else library.PerAxis(0)
        return library.IntxWeightOnlyConfig(weight_dtype=dtype, granularity=granularity)

    return config


def _four_bits(library: Any) -> Any:
    groups = library.PerGroup(32)
    return library.Int8DynamicActivationIntxWeightConfig(weight_dtype=INT4, weight_granularity=groups)


_LINEAR, _TABLE = torch.nn.Linear, torch.nn.Embedding
FLOWS: Mapping[str, Callable[[Benchmark], ExportedProgram]] = {
    "per channel": partial(pt2e, per_channel=True),
    "per tensor": partial(pt2e, per_channel=False),
    "dynamic": partial(pt2e, per_channel=True, dynamic=True),
    "int8 weights": partial(source, kind=_LINEAR, config=lambda library: library.Int8WeightOnlyConfig()),
    "int8 dynamic, int8 weights": partial(
        source, kind=_LINEAR, config=lambda library: library.Int8DynamicActivationInt8WeightConfig()
    ),
    "int8 dynamic, int4 weights": partial(source, kind=_LINEAR, config=_four_bits),
    "int8 embeddings": partial(source, kind=_TABLE, config=tables(torch.int8, 0)),
    "int4 embeddings": partial(source, kind=_TABLE, config=tables(INT4, 32)),
    "int2 embeddings": partial(source, kind=_TABLE, config=tables(INT2, 32)),
}
"""What makes quantized programs of models."""
