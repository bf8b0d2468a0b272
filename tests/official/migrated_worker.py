"""Lowers models with backends in a process of its own: the copies with other imports in our chain, or the originals.

    python -m tests.official.migrated_worker ours FOLDER BACKEND MODEL ...
    python -m tests.official.migrated_worker theirs FOLDER BACKEND MODEL ...

FOLDER has the copied packages in `migrated/`, and gets the program files and outputs. Each model is one line of JSON:
the delegates with their backends and the digests of their payloads, and the operators beside them.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.official.upstream_suites.stand_ins import install

PARTITIONERS = {
    "xnnpack": ("xnnpack.partition.xnnpack_partitioner", "XnnpackPartitioner"),
    "vulkan": ("vulkan.partitioner.vulkan_partitioner", "VulkanPartitioner"),
    "coreml": ("apple.coreml.partition", "CoreMLPartitioner"),
}


class Residual(nn.Module):
    """Convolutions with a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return torch.relu(self.second(x) + x).mean((2, 3))


class Attention(nn.Module):
    """One head over its own inputs, with a layer norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.values = nn.LayerNorm(16), nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.values(self.norm(x)).chunk(3, -1)
        return x + torch.softmax(q @ k.transpose(1, 2) / 4.0, -1) @ v


class Elementwise(nn.Module):
    """Operators that work element by element, and reductions."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.sigmoid(x) * y - x.clamp(-1.0, 1.0), (x * x).sum(-1, keepdim=True)


class Table(nn.Module):
    """Embeddings and a layer on them."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.out = nn.Embedding(20, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.rows(x)).tanh()


class Joined(nn.Module):
    """Two branches that are joined, padded and cut."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3, padding=1, groups=4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([self.left(x), self.right(x)], 1)
        return nn.functional.pad(joined, (1, 1, 1, 1))[:, 1:7].permute(0, 2, 3, 1)


def _layers(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers)


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    "residual": lambda: (Residual(), (torch.randn(1, 3, 12, 12),)),
    "perceptron": lambda: (_layers(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), (torch.randn(3, 8),)),
    "attention": lambda: (Attention(), (torch.randn(1, 5, 16),)),
    "elementwise": lambda: (Elementwise(), (torch.randn(2, 6), torch.randn(2, 6))),
    "table": lambda: (Table(), (torch.tensor([[1, 5, 19]]),)),
    "joined": lambda: (Joined(), (torch.randn(1, 4, 6, 6),)),
    "depthwise": lambda: (
        _layers(nn.Conv2d(4, 8, 1), nn.ReLU6(), nn.Conv2d(8, 8, 3, 2, 1, groups=8), nn.Hardswish(), nn.Conv2d(8, 4, 1)),
        (torch.randn(1, 4, 10, 10),),
    ),
    "pooled": lambda: (
        _layers(nn.Conv2d(3, 6, 3), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(24, 5), nn.Softmax(-1)),
        (torch.randn(1, 3, 10, 10),),
    ),
    "one_dimension": lambda: (_layers(nn.Conv1d(4, 6, 3), nn.GELU(), nn.Conv1d(6, 2, 1)), (torch.randn(1, 4, 9),)),
    "gated": lambda: (_layers(nn.Linear(6, 12), nn.GLU(), nn.LayerNorm(6), nn.LeakyReLU(0.1)), (torch.randn(2, 6),)),
}


def main() -> None:
    whose, folder, backend, *models = sys.argv[1:]
    install()
    # Registers the operators of the official runtime's quantisation for both.
    sys.path.insert(0, folder)
    packages = "migrated" if whose == "ours" else "executorch.backends"
    for name in models:
        torch.manual_seed(3)
        module, inputs = MODELS[name]()
        answer = {"model": name, **_lowered(whose, packages, backend, module.eval(), inputs, Path(folder, whose, name))}
        loaded = sorted(one for one in sys.modules if one.startswith("executorch.exir"))
        print(json.dumps({**answer, "official_modules": len(loaded)}), flush=True)


def _lowered(
    whose: str, packages: str, backend: str, module: nn.Module, inputs: tuple[Any, ...], place: Path
) -> dict[str, Any]:
    exir = importlib.import_module("exirkit.exir" if whose == "ours" else "executorch.exir")
    place.parent.mkdir(exist_ok=True)
    if backend in PARTITIONERS:
        path, name = PARTITIONERS[backend]
        partitioner = getattr(importlib.import_module(f"{packages}.{path}"), name)()
        exported = torch.export.export(module, inputs)
        edge = exir.to_edge_transform_and_lower(exported, partitioner=[partitioner])
        place.with_suffix(f".{backend}.pte").write_bytes(bytes(edge.to_executorch().buffer))
        return _described(edge.exported_program().graph_module)
    with torch.no_grad():
        program = _passes(packages, backend, exir, module, inputs)
        outputs = program.module()(*inputs)
    torch.save([one.detach() for one in (outputs if isinstance(outputs, tuple) else (outputs,))], f"{place}.{backend}")
    return _described(program.graph_module)


def _passes(packages: str, backend: str, exir: Any, module: nn.Module, inputs: tuple[Any, ...]) -> Any:
    """Return the program after the passes of a package that has no delegates."""
    if backend == "cadence":
        compiler = importlib.import_module(f"{packages}.cadence.aot.compiler")
        importlib.import_module(f"{packages}.cadence.aot.ref_implementations")
        return compiler.export_to_cadence(module, inputs).exported_program()
    quantizer = importlib.import_module(f"{packages}.cortex_m.quantizer.quantizer").CortexMQuantizer()
    pt2e = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
    prepared = pt2e.prepare_pt2e(torch.export.export(module, inputs).module(), quantizer)
    prepared(*inputs)
    exported = torch.export.export(pt2e.convert_pt2e(prepared), inputs)
    config = importlib.import_module(f"{packages}.cortex_m.edge_compile_config").cortex_m_edge_compile_config()
    edge = exir.to_edge(exported, compile_config=config)
    manager = importlib.import_module(f"{packages}.cortex_m.passes.cortex_m_pass_manager").CortexMPassManager
    return manager(edge.exported_program()).transform()


def _described(module: torch.fx.GraphModule) -> dict[str, Any]:
    delegates, beside = [], Counter[str]()
    for node in module.graph.nodes:
        if node.op == "get_attr" and hasattr(getattr(module, node.target), "processed_bytes"):
            delegate = getattr(module, node.target)
            data = delegate.processed_bytes
            delegates.append([delegate.backend_id, len(data), hashlib.sha256(data).hexdigest()])
        elif node.op == "call_function" and hasattr(node.target, "_schema"):
            beside[node.target._schema.name] += 1
    return {"delegates": delegates, "beside": dict(sorted(beside.items()))}


if __name__ == "__main__":
    main()
