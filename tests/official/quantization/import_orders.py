"""Lowers a program of quantized operators and runs it, with the library of the official runtime imported at some point.

python -m tests.official.quantization.import_orders ORDER, which is one of
never|first|before-exirkit|after-exirkit|after-lowering|after-exporter
"""

from __future__ import annotations

import importlib
import sys

ORDERS = ("never", "first", "before-exirkit", "after-exirkit", "after-lowering", "after-exporter")
LIBRARY = "executorch.kernels.quantized"


def main(order: str) -> None:
    """Lower twice, and run."""
    import torch

    if order == "first":
        importlib.import_module(LIBRARY)
    importlib.import_module("torch.ao.quantization.fx._decomposed")
    if order == "before-exirkit":
        importlib.import_module(LIBRARY)
    from exirkit import ExecutorchBackendConfig, to_edge
    from exirkit.runtime_ref import Runtime

    if order == "after-exporter":
        importlib.import_module("executorch.exir")
    if order in ("after-exirkit", "after-exporter"):
        importlib.import_module(LIBRARY)
    q = torch.ops.quantized_decomposed

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor) -> tuple[torch.Tensor, ...]:
            one = q.quantize_per_tensor.default(x, 0.25, 3, -128, 127, torch.int8)
            two = q.quantize_per_channel.default(x, scales, zeros, 0, -128, 127, torch.int8)
            scale, zero = q.choose_qparams.tensor(x, -128, 127, 1e-5, torch.int8)
            three = q.quantize_per_tensor.tensor(x, scale, zero, -128, 127, torch.int8)
            four = q.quantize_per_token.default(x, scales.unsqueeze(1), zeros.unsqueeze(1), -128, 127, torch.int8)
            return (
                q.dequantize_per_tensor.default(one, 0.25, 3, -128, 127, torch.int8),
                q.dequantize_per_channel.default(two, scales, zeros, 0, -128, 127, torch.int8),
                q.dequantize_per_tensor.tensor(three, scale, zero, -128, 127, torch.int8),
                q.dequantize_per_token.default(
                    four, scales.unsqueeze(1), zeros.unsqueeze(1), -128, 127, torch.int8, torch.float32
                ),
            )

    inputs = (torch.linspace(-3, 4, 8).reshape(2, 4), torch.tensor([0.5, 0.125]), torch.tensor([0, 1]))
    exported = torch.export.export(Model(), inputs)
    files = []
    for level in (0, 1, 2):
        files.append(to_edge(exported).to_executorch(ExecutorchBackendConfig(optimization_level=level)).buffer)
        if order == "after-lowering":
            importlib.import_module(LIBRARY)
    expected = exported.module()(*inputs)
    for file in files:
        for mine, eager in zip(
            Runtime.get().load_program(file).load_method("forward").execute(inputs), expected, strict=True
        ):
            torch.testing.assert_close(mine, eager)
    sys.stdout.buffer.write(files[1])


if __name__ == "__main__":
    main(sys.argv[1])
