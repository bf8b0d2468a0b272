"""A sample of the firing table: the rules find what an oracle that knows nothing of rules counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from benchmarks.firing.columns import COLUMNS, Finder
from benchmarks.firing.measure import measure
from benchmarks.firing.models import catalogue
from benchmarks.firing.oracle import sites_of
from benchmarks.firing.reasons import UNKNOWN
from benchmarks.firing.sites import CONCEPTS, Site, missed

# The official exporter and the packages of models warn of what is their own business.
pytestmark = pytest.mark.filterwarnings("ignore")

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "firing_table.md"
SAMPLE = ("llama (eager)", "gpt2 (eager)", "bert (sdpa)", "darknet blocks", "diffusion block", "residual upscaler")
COUNTED = {
    "llama (eager)": {"attention, grouped": 2, "rotary": 4, "RMS norm": 5, "SwiGLU": 2},
    "gpt2 (eager)": {"attention, causal": 2, "GELU, tanh": 2, "linear + activation": 2, "layer norm": 5},
    "bert (sdpa)": {"attention": 2, "GELU": 2, "linear + activation": 2, "layer norm": 5},
    "darknet blocks": {"conv + batch norm": 4, "mish": 4, "conv + activation": 4},
    "diffusion block": {"group norm": 3, "SiLU": 2, "attention": 1},
    "residual upscaler": {"pixel shuffle": 2, "conv + activation": 3},
}


@pytest.fixture(scope="module")
def finder() -> Finder:
    return Finder()


@pytest.mark.executorch
@pytest.mark.parametrize("name", SAMPLE)
def test_every_site_of_a_sample_is_found(name: str, finder: Finder) -> None:
    row = measure(name, catalogue()[name], finder)
    counted: Counter[str] = Counter()
    for site, count in row.sites.items():
        counted[site.concept] += count
    assert {key: counted[key] for key in COUNTED[name]} == COUNTED[name]
    assert set(row.missed) == set(COLUMNS)
    assert row.missed == {key: Counter() for key in COLUMNS}


def test_sites_are_paired_in_their_own_module() -> None:
    sites = Counter({Site("attention, masked", "layers.0.attn"): 2, Site("SiLU", "layers.0.mlp"): 1})
    found = Counter({Site("attention", "layers.0.attn"): 1, Site("attention", "layers.1.attn"): 5})
    found[Site("SiLU", "layers.0.mlp.act")] = 1
    assert missed(sites, found) == Counter({Site("attention, masked", "layers.0.attn"): 1})


def test_the_oracle_knows_what_is_not_a_site() -> None:
    class Near(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, second = self.layer(x).chunk(2, -1)
            return torch.relu(first) + torch.softmax(second, -1) * x.mean()

    assert sites_of(Near().eval(), (torch.randn(2, 8),)) == Counter()


def test_the_page_has_all_columns_and_reasons() -> None:
    text = PAGE.read_text()
    assert UNKNOWN not in text
    assert all(meaning in text for meaning in CONCEPTS.values())
    shares = [
        float(cell.split("%")[0].split(", ")[-1])
        for cell in text.split("| **all** |")[1].splitlines()[0].split("|")[2:5]
    ]
    assert len(shares) == len(COLUMNS)
    assert min(shares) >= 98.0
    models = text.split("## By model")[1].split("## Sites")[0].count("\n| ") - 1
    assert models >= 40
