"""The page of `exirkit report` for a large program: how large it is, how long it takes to make and to open.

Usage: python -m benchmarks.devtools.report_page [--nodes N] [--rules BOOK] [--output FILE]

Lowers a network of about N calls in modules of modules, with and without recording it for a page. Seconds of making
the page are of processor time, with the lowering that is recorded; those of opening it are of wall time, in
Chromium, until the program is drawn, and to search in it. Without Chromium the page is made only. The exit code is 1
if the page has more than 30 MB, takes more than 20 s to make or 3 s to open, asks for any address but its own, or its
scripts raise an error.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from exirkit import to_edge
from exirkit.passes import ApplyRules
from exirkit.patterns import load_book
from exirkit.visualization import write_report

MOST_BYTES, MOST_MAKING_S, MOST_OPENING_S = 30e6, 20.0, 3.0
_CALLS_OF_BLOCK = 8


class Block(torch.nn.Module):
    """Eight calls, of which rules rewrite some."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.widen = torch.nn.Linear(width, 2 * width)
        self.narrow = torch.nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = torch.nn.functional.silu(self.widen(self.norm(x)))
        return x + self.narrow(inner * 1.0) * 0.5 + 0.0


class Network(torch.nn.Module):
    """Layers of ten blocks."""

    def __init__(self, blocks: int, width: int = 16) -> None:
        super().__init__()
        layers = [range(start, min(start + 10, blocks)) for start in range(0, blocks, 10)]
        self.layers = torch.nn.Sequential(*(torch.nn.Sequential(*(Block(width) for _ in one)) for one in layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(x)
        return found


def network(nodes: int) -> ExportedProgram:
    """Return a program of about so many calls."""
    torch.manual_seed(0)
    model = Network(max(1, nodes // _CALLS_OF_BLOCK)).eval().requires_grad_(False)
    return torch.export.export(model, (torch.ones(4, 16),))


def opened(page: Path, home: Path) -> dict[str, Any]:
    """Open a page in Chromium; return seconds, addresses that it asked for, and errors of its scripts.

    Raises:
        FileNotFoundError: There is no Chromium.
    """
    chromium = importlib.import_module("tests.visualization.browser")
    path = chromium.find_browser()
    if path is None:
        raise FileNotFoundError("no Chromium on this machine")
    with chromium.running_browser(path, home) as browser:
        started = time.perf_counter()
        browser.open(page)
        browser.wait_for("document.body.dataset.ready === 'true'")
        browser.settle()
        seconds = time.perf_counter() - started
        assert browser.value("document.querySelectorAll('.row').length") > 10
        searching = time.perf_counter()
        browser.press("/")
        browser.write("narrow")
        browser.settle()
        searched = time.perf_counter() - searching
        listed = browser.value("document.querySelectorAll('#found li').length")
        requests = [one for one in browser.requests if one != page.as_uri()]
        return {
            "opened_s": seconds, "searched_s": searched, "found": listed, "requests": requests,
            "errors": list(browser.errors),
        }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--rules", default="algebra", metavar="BOOK")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where to leave the page")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    program = network(options.nodes)
    passes = [ApplyRules(load_book(options.rules))]
    started = time.process_time()
    lowered = to_edge(program).transform(passes).to_executorch()
    lowering_s = time.process_time() - started
    with tempfile.TemporaryDirectory() as folder:
        page = options.output or Path(folder, "report.html")
        started = time.process_time()
        made = write_report(program, page, transform_passes=passes)
        making_s = time.process_time() - started
        assert made is not None
        assert bytes(made.buffer) == bytes(lowered.buffer)
        figures: dict[str, Any] = {
            "calls": sum(node.op == "call_function" for node in program.graph.nodes),
            "nodes": len(program.graph.nodes),
            "instructions": len(made.executorch_program.execution_plan[0].chains[0].instructions),
            "bytes": page.stat().st_size,
            "lowered_s": round(lowering_s, 2),
            "made_s": round(making_s, 2),
        }
        try:
            figures |= opened(page.resolve(), Path(folder, "home"))
        except FileNotFoundError as error:
            figures["not opened"] = str(error)
    sys.stdout.write(json.dumps(figures, indent=1) + "\n")
    is_good = figures["bytes"] < MOST_BYTES and making_s < MOST_MAKING_S and figures.get("opened_s", 0) < MOST_OPENING_S
    return 0 if is_good and not figures.get("requests") and not figures.get("errors") else 1


if __name__ == "__main__":
    sys.exit(main())
