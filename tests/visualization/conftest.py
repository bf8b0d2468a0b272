"""A lowered program, its memory map, made-up ones of any size, and a browser, loudly missing where there is none."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tests.visualization.browser import Browser, find_browser, running_browser

from exirkit import to_edge
from exirkit.program import ExecutorchProgramManager
from exirkit.visualization import MappedValue, MemoryMap, MethodMap, Step, ValueKind, memory_map_of_manager
from exirkit.visualization import arena_of_values as arena_of

# Set where a browser must be there, so that a broken installation cannot pass for a missing one.
REQUIRED = "EXIRKIT_REQUIRE_BROWSER"
MISSING = "no Chromium on this machine: pages are not examined"

KINDS: list[ValueKind] = ["input", "output", "state", "activation", "activation", "activation"]
_skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count what was skipped for want of a browser."""
    if report.skipped and MISSING in str(report.longrepr):
        _skipped.append(report.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say it aloud."""
    if _skipped:
        count = f"{len(_skipped)} tests were skipped"
        terminalreporter.write_sep("!", f"{count}: {MISSING}; set {REQUIRED}=1 to fail instead", yellow=True)


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = find_browser()
    if path is None:
        if os.environ.get(REQUIRED) == "1":
            pytest.fail(f"{MISSING}, and {REQUIRED}=1", pytrace=False)
        pytest.skip(MISSING)
    with running_browser(path, tmp_path_factory.mktemp("browser")) as running:
        yield running


class Counting(torch.nn.Module):
    """A model with an input, several activations, state, a split, and two outputs."""

    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3, 8))
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        left = self.linear(x).sin()
        wide = torch.cat([left, x.cos(), left * x], 1)
        parts = wide.split(8, 1)
        self.count.add_(parts[0])
        return parts[1] + self.count, (wide.reshape(-1) * 2.0).sum()


@pytest.fixture(scope="session")
def lowered() -> ExecutorchProgramManager:
    with torch.random.fork_rng():
        model = Counting()
    return to_edge(torch.export.export(model, (torch.ones(3, 8),))).to_executorch()


@pytest.fixture(scope="session")
def memory_map(lowered: ExecutorchProgramManager) -> MemoryMap:
    return memory_map_of_manager(lowered, title="counting.pt2")


Draw = Callable[..., MemoryMap]


@pytest.fixture(scope="session")
def made_up() -> Draw:
    """A function that draws a memory map of so many values, stacked without overlap."""

    def draw(
        count: int, *, seed: int = 0, title: str = "made up", name: str = "value", limit: int | None = None
    ) -> MemoryMap:
        drawn = random.Random(seed)
        free: list[int] = [0] * 40
        values = []
        steps = tuple(
            Step(
                text=f"aten::op{index % 7}.out",
                source=f"model.py:{index} in forward:  x = f(x)",
                module=f"layer{index // 9}",
            )
            for index in range(count)
        )
        for index in range(count):
            row = drawn.randrange(40)
            first = max(free[row], index)
            last = min(first + drawn.randrange(1, 40), count - 1)
            if first > last:
                continue
            free[row] = last + 1
            kind = drawn.choice(KINDS)
            values.append(
                MappedValue(
                    name=f"{name}_{index}", value=index, type="float32[4]", kind=kind, arena=1, offset=row * 1024,
                    nbytes=drawn.randrange(1, 1024), spans=((first, last),), producer=first, readers=(last,),
                )
            )  # fmt: skip
        arena = arena_of(1, 40 * 1024, limit, values, max(count, 1))
        method = MethodMap(name="forward", steps=steps, arenas=(arena,), values=tuple(values))
        return MemoryMap(title=title, methods=(method,))

    return draw


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    """A function that writes a page and returns its path."""

    def write(text: str) -> Path:
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        return path

    return write
