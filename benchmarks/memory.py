"""What lowering holds beside the weights of a model: ours at each level of optimization, and the official exporter.

Usage: python -m benchmarks.memory [MODEL ...] [--exporters NAME ...] [--json FILE]
       python -m benchmarks.memory --gigabytes 10 [--level N] [--folder DIR]

Each model is lowered and written in a fresh process per exporter. Printed are the rise of resident memory and of
anonymous memory from before `to_edge` to their peaks, as parts of the weights: 0.00 is lowering that copies nothing.

With `--gigabytes`, a Llama-shaped stack of that size is made as a safetensors file, mapped, lowered twice by ours
alone, and both files are compared; memory is that of the whole process.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.lowering.worker import chain_of
from benchmarks.measured_process import reset_resident_peak, resident_peak_bytes
from benchmarks.models import Benchmark, chain
from benchmarks.models import build as build_from_zoo
from exirkit.emit import replaced_file

EXPORTERS = ("official", "ours-O0", "ours", "ours-O2")
_INTERVAL_SECONDS = 0.002
_BLOCK_ELEMENTS = 1 << 22


def wide_mlp() -> Benchmark:
    """Eight layers, 0.5 GB."""
    layers: list[torch.nn.Module] = []
    for _ in range(8):
        layers += [torch.nn.Linear(4096, 4096), torch.nn.ReLU()]
    return Benchmark(torch.nn.Sequential(*layers), (torch.randn(1, 4096),))


def heavy_llama() -> Benchmark:
    """Ten blocks of 2048 features, about 1 GB with half of the usual vocabulary."""
    return Benchmark(LlamaStack(10, 1024, 2816, 16000), (torch.randint(0, 16000, (1, 32)),))


def heavy_vision() -> Benchmark:
    """Convolutions with batch norms, 0.3 GB: at -O2 the norms become part of the weights."""
    layers: list[torch.nn.Module] = [torch.nn.Conv2d(3, 1024, 3, padding=1)]
    for _ in range(8):
        layers += [torch.nn.Conv2d(1024, 1024, 3, padding=1, bias=False), torch.nn.BatchNorm2d(1024), torch.nn.ReLU()]
    return Benchmark(torch.nn.Sequential(*layers), (torch.randn(1, 3, 8, 8),))


class LlamaBlock(torch.nn.Module):
    """Attention over all positions and a gated MLP, with norms by root mean square; products have no bias."""

    def __init__(self, features: int, inner: int, heads: int = 16) -> None:
        super().__init__()
        self.heads = heads
        self.norms = torch.nn.ModuleList(torch.nn.RMSNorm(features, eps=1e-6) for _ in range(2))
        self.query, self.key, self.value, self.out = (torch.nn.Linear(features, features, bias=False) for _ in range(4))
        self.gate, self.up = (torch.nn.Linear(features, inner, bias=False) for _ in range(2))
        self.down = torch.nn.Linear(inner, features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normal = self.norms[0](x)
        split = [
            one(normal).unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (self.query, self.key, self.value)
        ]
        mixed = torch.nn.functional.scaled_dot_product_attention(split[0], split[1], split[2], is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        normal = self.norms[1](x)
        changed: torch.Tensor = x + self.down(torch.nn.functional.silu(self.gate(normal)) * self.up(normal))
        return changed


class LlamaStack(torch.nn.Module):
    """An embedding, blocks, and the product that gives logits."""

    def __init__(self, blocks: int, features: int, inner: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, features)
        self.blocks = torch.nn.ModuleList(LlamaBlock(features, inner) for _ in range(blocks))
        self.norm = torch.nn.RMSNorm(features, eps=1e-6)
        self.head = torch.nn.Linear(features, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


MODELS: dict[str, Callable[[], Benchmark]] = {
    builder.__name__: builder for builder in (wide_mlp, heavy_llama, heavy_vision)
}
FROM_ZOO = ("mobilenet_v2", "bert")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[[], *MODELS, *FROM_ZOO])
    parser.add_argument("--exporters", nargs="+", choices=EXPORTERS, default=EXPORTERS)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--gigabytes", type=float, help="lower one large model from a mapped file")
    parser.add_argument("--level", type=int, default=1, choices=(0, 1, 2), help="optimization of the large model")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where large files go")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(lower(options.models[0], options.worker)))
        return 0
    if options.gigabytes:
        return lower_mapped(options.gigabytes, options.level, options.folder)
    figures: dict[str, dict[str, Any]] = {}
    for name in options.models or (*MODELS, *FROM_ZOO):
        figures[name] = {exporter: _in_fresh_process(name, exporter) for exporter in options.exporters}
        print(name, figures[name], file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps(figures, indent=1))
    _print(figures)
    return 0


def _in_fresh_process(name: str, exporter: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.memory", name, "--worker", exporter]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _print(figures: dict[str, dict[str, Any]]) -> None:
    table = Table(title="rise of resident / anonymous memory, as parts of the weights")
    table.add_column("model")
    table.add_column("weights", justify="right")
    exporters = list(next(iter(figures.values())))
    for exporter in exporters:
        table.add_column(exporter, justify="right")
    for name, row in figures.items():
        nbytes = row[exporters[0]]["weight_bytes"]
        cells = [f"{row[one]['resident'] / nbytes:.2f} / {row[one]['anonymous'] / nbytes:.2f}" for one in exporters]
        table.add_row(name, f"{nbytes / 1e6:.0f} MB", *cells)
    Console(width=max(140, Console().width)).print(table)


def lower(name: str, exporter: str) -> dict[str, Any]:
    """Lower one model in this process and say what it held beside the weights."""
    _quiet()
    to_edge, to_executorch = chain_of("ours" if exporter.startswith("ours") else exporter)
    if exporter != "official":
        from exirkit import ExecutorchBackendConfig

        config = ExecutorchBackendConfig(optimization_level={"ours-O0": 0, "ours": 1, "ours-O2": 2}[exporter])

        def to_executorch(edge: Any) -> Any:
            return edge.to_executorch(config)

    # What is imported and cached on first use is not what a model costs.
    to_executorch(to_edge(chain(8).export()))
    torch.manual_seed(1)
    program = (MODELS[name]() if name in MODELS else build_from_zoo(name)).export()
    nbytes = sum({one.data_ptr(): one.nbytes for one in program.state_dict.values()}.values())
    with tempfile.NamedTemporaryFile(suffix=".pte", dir="/tmp") as file, watched() as seen:
        to_executorch(to_edge(program)).write_to_file(file)
    return {"weight_bytes": nbytes, **seen}


@contextmanager
def watched() -> Iterator[dict[str, float]]:
    """Fill in the rise of resident and of anonymous memory, in bytes, when the block ends."""
    seen: dict[str, float] = {}
    base, base_anonymous = reset_resident_peak(), anonymous_bytes()
    ended = threading.Event()
    most = base_anonymous

    def sample() -> None:
        nonlocal most
        while not ended.wait(_INTERVAL_SECONDS):
            most = max(most, anonymous_bytes())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    start = time.perf_counter()
    try:
        yield seen
    finally:
        seconds = time.perf_counter() - start
        ended.set()
        thread.join()
        seen |= {"resident": resident_peak_bytes() - base, "anonymous": most - base_anonymous, "seconds": seconds}
        seen |= {"anonymous_peak": most}


def anonymous_bytes() -> int:
    """Return the anonymous memory of this process, in bytes (Linux)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no RssAnon")


def _quiet() -> None:
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)


# The large model


def lower_mapped(gigabytes: float, level: int, folder: Path) -> int:
    """Lower a large model of mapped weights twice and print what that took."""
    _quiet()
    weights = folder / f"exirkit_{gigabytes:g}.safetensors"
    model = _large(gigabytes)
    if not weights.exists():
        _write_random(model, weights)
    _map(model, weights)
    nbytes = sum(one.nbytes for one in model.state_dict().values())
    print(f"{nbytes / 1e9:.2f} GB of weights, mapped from {weights}", flush=True)
    digests = []
    for turn in range(2):
        program = Benchmark(model, (torch.randint(0, 32000, (1, 16)),)).export()
        file = folder / f"exirkit_{gigabytes:g}_{turn}.pte"
        try:
            with watched() as seen:
                _lower_to(program, level, file)
            digests.append(_digest(file))
            print(f"file {file.stat().st_size / 1e9:.2f} GB {digests[-1][:16]}, {seen['seconds']:.0f} s, "
                  f"anonymous memory at most {seen['anonymous_peak'] / 1e9:.2f} GB", flush=True)  # fmt: skip
        finally:
            file.unlink(missing_ok=True)
    print("equal files" if digests[0] == digests[1] else "DIFFERENT FILES")
    return int(digests[0] != digests[1])


def _lower_to(program: Any, level: int, file: Path) -> None:
    from exirkit import ExecutorchBackendConfig, to_edge

    config = ExecutorchBackendConfig(optimization_level=level)

    def say(line: str) -> None:
        print(line, flush=True)

    edge = to_edge(program, progress=say)
    edge.to_executorch(config, progress=say).save(file, progress=say)


def _large(gigabytes: float) -> LlamaStack:
    features, inner, vocabulary = 4096, 11008, 32000
    of_block = 4 * (4 * features**2 + 3 * features * inner + 2 * features)
    around = 4 * (2 * vocabulary * features + features)
    blocks = max(1, round((gigabytes * 1e9 - around) / of_block))
    with torch.device("meta"):
        return LlamaStack(blocks, features, inner, vocabulary)


def _write_random(model: torch.nn.Module, file: Path) -> None:
    """Write weights block by block: random ones, scaled differently in each block so that no two tensors are equal."""
    entries, start = {}, 0
    for name, one in model.state_dict().items():
        entries[name] = {"dtype": "F32", "shape": list(one.shape), "data_offsets": [start, start + one.nbytes]}
        start += one.nbytes
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    drawn = torch.randn(_BLOCK_ELEMENTS, generator=torch.Generator().manual_seed(1)).mul_(0.02)
    scale = 1.0
    with replaced_file(file) as partial, partial.open("wb") as opened:
        opened.write(len(header).to_bytes(8, "little") + header)
        for one in model.state_dict().values():
            for done in range(0, one.numel(), _BLOCK_ELEMENTS):
                count = min(_BLOCK_ELEMENTS, one.numel() - done)
                opened.write((drawn[:count] * scale).numpy().data)
                scale *= 1.0001


def _map(model: torch.nn.Module, file: Path) -> None:
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        model.load_state_dict({name: opened.get_tensor(name) for name in opened.keys()}, assign=True)  # noqa: SIM118


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
