"""Run as a module, in a process of its own: programs by the official exporter, and what its reader says of ours.

    python -m tests.emit.official_samples export DIRECTORY
    python -m tests.emit.official_samples compare DIRECTORY

The first writes `<sample>.pte` files. The second reads every `<sample>.pte` and `<sample>.ours` with the official
deserialiser and prints the samples whose contents differ.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn


class Counter(nn.Module):
    """A buffer that every call changes."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("count", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(x.sum(0))
        y: torch.Tensor = self.linear(x)
        return y + self.count


class Top(nn.Module):
    """Several results, scalars and lists."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        values, indices = torch.topk(x.flatten(), 3)
        return values, indices, torch.cat([x, x * float("-inf")]).sum([0, 1])


class Branch(nn.Module):
    """Jumps and moves."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))
        return y


def export_all(directory: Path) -> None:
    """Write the samples."""
    exir = importlib.import_module("executorch.exir")
    initialize = importlib.import_module("executorch.exir.passes.init_mutable_pass").InitializedMutableBufferPass
    partitioner = importlib.import_module("executorch.backends.xnnpack.partition.xnnpack_partitioner")
    Config = exir.ExecutorchBackendConfig  # noqa: N806
    from torch.export import Dim, export

    x = (torch.ones(2, 4),)
    two_layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)).eval()

    def plain(module: nn.Module, **options: Any) -> Any:
        return exir.to_edge({"forward": export(module, x, **options)})

    def delegated() -> Any:
        parts = [partitioner.XnnpackPartitioner()]
        return exir.to_edge_transform_and_lower(export(two_layers, x), partitioner=parts)

    programs = {
        "two_methods": exir.to_edge({"forward": export(Counter(), x), "top": export(Top(), x)}).to_executorch(),
        "initial_values": plain(Counter()).to_executorch(
            Config(passes=[initialize(["count"])], constant_tensor_alignment=64)
        ),
        "stack_traces": plain(Top()).to_executorch(Config(emit_stacktrace=True)),
        "dynamic": plain(two_layers, dynamic_shapes=({0: Dim("batch", max=8)},)).to_executorch(),
        "branch": plain(Branch()).to_executorch(),
        "delegate": delegated().to_executorch(),
        "inline_delegate": delegated().to_executorch(Config(extract_delegate_segments=False, delegate_alignment=64)),
    }
    for name, program in programs.items():
        (directory / f"{name}.pte").write_bytes(program.buffer)


def compare_all(directory: Path) -> list[str]:
    """Return the samples that the official deserialiser reads differently in our form."""
    deserialize = importlib.import_module("executorch.exir._serialize._program").deserialize_pte_binary

    def same(path: Path) -> bool:
        theirs, ours = (deserialize(each.read_bytes()) for each in (path, path.with_suffix(".ours")))
        return bool(theirs == ours)

    return [path.stem for path in sorted(directory.glob("*.pte")) if not same(path)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    command, folder = sys.argv[1], Path(sys.argv[2])
    if command == "export":
        with torch.no_grad():
            export_all(folder)
    else:
        sys.stdout.write("".join(f"differs: {name}\n" for name in compare_all(folder)))
