"""Lowers models with backends in a process of its own: the copies with other imports in our chain, or the originals.

    python -m tests.official.backends.migrated_worker ours FOLDER BACKEND MODEL ...
    python -m tests.official.backends.migrated_worker theirs FOLDER BACKEND MODEL ...

FOLDER has the copied packages in `migrated/`, and gets the outputs: those of eager, and those of the programs that can
run here. Each model is one line of JSON: the delegates with their backends and the digests of what they hold, and the
operators beside them. `all-copies` in front of the models keeps copies in our Edge that change nothing.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import re
import runpy
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.official.oracle import ROOT
from torch import nn

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
    "wide": lambda: (
        _layers(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 3)),
        (torch.randn(4, 12),),
    ),
    "stacked": lambda: (
        _layers(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 4, 1)),
        (torch.randn(1, 4, 8, 8),),
    ),
    "gated": lambda: (_layers(nn.Linear(6, 12), nn.GLU(), nn.LayerNorm(6), nn.LeakyReLU(0.1)), (torch.randn(2, 6),)),
}


# What copies a value as it is. Our Edge has no such calls; the official one does, and there they end delegates.
COPIES = ("expand", "expand_copy", "view_copy")


def main() -> None:
    whose, folder, backend, *models = sys.argv[1:]

    # By path: the package that it is in imports the official one, which the copies do without.
    runpy.run_path(str(ROOT / "src/exirkit/bridge/against/absent_tools.py"))["install_absent_tools"]()
    sys.path.insert(0, folder)
    packages = "migrated" if whose == "ours" else "executorch.backends"
    kept = [getattr(torch.ops.aten, name).default for name in COPIES if "all-copies" in models]
    for name in (one for one in models if one != "all-copies"):
        torch.manual_seed(3)
        module, inputs = MODELS[name]()
        place = Path(folder, whose, f"{name}.{backend}")
        place.parent.mkdir(exist_ok=True)
        chain = _Chain(whose, packages, backend, kept)
        try:
            done = chain.lowered(module.eval(), inputs, place)
        except Exception as error:  # What fails in one chain or in both is compared as well.
            done = {"error": repr(error.__cause__ or error).partition("\\")[0][:200]}
        sys.stdout.write(json.dumps({"model": name, **done}) + "\n")
        sys.stdout.flush()


class _Chain:
    """One backend in one chain."""

    def __init__(self, whose: str, packages: str, backend: str, kept: list[Any]) -> None:
        self._exir = importlib.import_module("exirkit.exir" if whose == "ours" else "executorch.exir")
        self._packages = packages
        self._backend = backend
        self._kept = kept if whose == "ours" else []

    def lowered(self, module: nn.Module, inputs: tuple[Any, ...], place: Path) -> dict[str, Any]:
        """Lower a model; write program and inputs, or outputs, to files that begin with `place`."""
        expected = module(*inputs)
        torch.save([inputs, _flat(expected)], f"{place}.eager")
        if self._backend in PARTITIONERS:
            return self._delegated(module, inputs, place)
        with torch.no_grad():
            program = self._transformed(module, inputs)
            torch.save(_flat(program.module()(*inputs)), f"{place}.outputs")
        return _described(program.graph_module, _digest)

    def _delegated(self, module: nn.Module, inputs: tuple[Any, ...], place: Path) -> dict[str, Any]:
        path, name = PARTITIONERS[self._backend]
        partitioner = getattr(self._module(path), name)()
        digest = _digest
        if self._backend == "xnnpack":
            self._number_no_nodes()
        elif self._backend == "coreml":
            digest = self._core_ml_digest
        exported = torch.export.export(module, inputs)
        config = self._exir.EdgeCompileConfig(preserve_ops=self._kept) if self._kept else None
        edge = self._exir.to_edge_transform_and_lower(exported, partitioner=[partitioner], compile_config=config)
        Path(f"{place}.pte").write_bytes(bytes(edge.to_executorch().buffer))
        return _described(edge.exported_program().graph_module, digest)

    def _transformed(self, module: nn.Module, inputs: tuple[Any, ...]) -> Any:
        """Return the program after the passes of a package that has no delegates."""
        if self._backend == "cadence":
            compiler = self._module("cadence.aot.compiler")
            self._module("cadence.aot.ref_implementations")
            return compiler.export_to_cadence(module, inputs).exported_program()
        quantizer = self._module("cortex_m.quantizer.quantizer").CortexMQuantizer()
        pt2e = importlib.import_module("torchao.quantization.pt2e.quantize_pt2e")
        prepared = pt2e.prepare_pt2e(torch.export.export(module, inputs).module(check_guards=False), quantizer)
        prepared(*inputs)
        exported = torch.export.export(pt2e.convert_pt2e(prepared), inputs)
        config = self._module("cortex_m.edge_compile_config").cortex_m_edge_compile_config()
        edge = self._exir.to_edge(exported, compile_config=config)
        manager = self._module("cortex_m.passes.cortex_m_pass_manager").CortexMPassManager
        return manager(edge.exported_program()).transform()

    def _module(self, path: str) -> Any:
        return importlib.import_module(f"{self._packages}.{path}")

    def _number_no_nodes(self) -> None:
        """Leave debug handles out of payloads: they count the nodes of the Edge program, of which ours has fewer."""
        preprocess = self._module("xnnpack.xnnpack_preprocess")
        serialize = self._module("xnnpack.serialization.xnnpack_graph_serialize").serialize_xnnpack_binary

        def without_handles(graph: Any, *others: Any) -> Any:
            for node in graph.xnodes:
                vars(node)["debug_handle"] = 0
            return serialize(graph, *others)

        preprocess.serialize_xnnpack_binary = without_handles

    def _core_ml_digest(self, data: bytes) -> str:
        """Return the digest of a model and its weights; names in it are numbered, since they are those of nodes."""
        coremltools = importlib.import_module("coremltools")
        files = self._module("apple.coreml").executorchcoreml
        with tempfile.TemporaryDirectory() as folder:
            files.unflatten_directory_contents(data, folder)
            parts = []
            for path in sorted(one for one in Path(folder).rglob("*") if one.is_file()):
                if path.suffix == ".mlmodel":
                    spec = coremltools.proto.Model_pb2.Model()
                    spec.ParseFromString(path.read_bytes())
                    parts.append(_numbered(str(spec)).encode())
                elif path.suffix == ".bin":
                    parts.append(path.read_bytes())
        assert parts
        return hashlib.sha256(b"|".join(parts)).hexdigest()


def _numbered(text: str) -> str:
    """Replace names of values that hold the name of an operator or a number by numbers, in their order."""
    numbers = itertools.count()
    names: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        name = found[1]
        if name not in names:
            names[name] = f'"v{next(numbers)}"'
        return names[name]

    return re.sub(r'"((?:aten_|const_|executorch_)\w[\w-]*)"', number, text)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _flat(outputs: Any) -> list[torch.Tensor]:
    return [one.detach() for one in (outputs if isinstance(outputs, tuple) else (outputs,))]


def _described(module: torch.fx.GraphModule, digest: Callable[[bytes], str]) -> dict[str, Any]:
    delegates, beside = [], Counter[str]()
    for node in module.graph.nodes:
        if node.op == "get_attr" and hasattr(getattr(module, node.target), "processed_bytes"):
            delegate = getattr(module, node.target)
            delegates.append([delegate.backend_id, digest(bytes(delegate.processed_bytes))])
        elif node.op == "call_function" and hasattr(node.target, "_schema"):
            beside[node.target._schema.name] += 1
    return {"delegates": delegates, "beside": dict(sorted(beside.items()))}


if __name__ == "__main__":
    main()
