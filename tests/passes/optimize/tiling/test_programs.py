"""Programs in bands: the same results within the limit, for random networks, at all levels, on both runtimes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.export import ExportedProgram

from exirkit import ExecutorchBackendConfig, MemoryPlanningPass, ModelError, to_edge
from exirkit.fuzz import OfficialRuntime
from exirkit.passes import LiveValues, TileRegions
from exirkit.runtime_ref import Runtime

Step = Callable[[torch.Tensor], torch.Tensor]


class Network(torch.nn.Module):
    """Steps one after another, some of which add or join what was there before."""

    def __init__(self, steps: Sequence[tuple[str, Any]]) -> None:
        super().__init__()
        self.steps = steps
        self.layers = torch.nn.ModuleList(one for _, one in steps if isinstance(one, torch.nn.Module))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept: dict[tuple[int, ...], torch.Tensor] = {}
        for name, one in self.steps:
            before = kept.get(tuple(x.shape), x)
            kept[tuple(x.shape)] = x
            x = before + x if name == "add" else torch.cat([before, x], 1) if name == "join" else one(x)
        return x


def _rows_as_tokens(channels: int) -> Step:
    layer = torch.nn.Linear(channels, 2 * channels)

    def step(x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        tokens = x.permute(0, 2, 3, 1).reshape(n, h * w, c)
        made = torch.nn.functional.gelu(torch.nn.functional.linear(tokens, layer.weight, layer.bias))
        return made.reshape(n, h, w, 2 * c).permute(0, 3, 1, 2)

    return step


@st.composite
def networks(draw: st.DrawFn) -> tuple[Network, torch.Tensor]:
    """Draw a network and an image for it."""
    torch.manual_seed(draw(st.integers(0, 99)))
    image = torch.randn(1, 1, draw(st.integers(8, 33)), draw(st.integers(8, 33)))
    # What lies between is larger than what is given and returned.
    steps: list[tuple[str, Any]] = [("convolution", torch.nn.Conv2d(1, 8, draw(st.integers(1, 3)), padding=1))]
    for _ in range(draw(st.integers(1, 6))):
        with torch.no_grad():
            made = _drawn_step(draw, Network(steps).eval()(image))
        steps += [] if made is None else [made]
    with torch.no_grad():
        channels = Network(steps).eval()(image).shape[1]
    steps.append(("convolution", torch.nn.Conv2d(channels, 1, 1)))
    return Network(steps).eval().requires_grad_(False), image


def _drawn_step(draw: st.DrawFn, x: torch.Tensor) -> tuple[str, Any] | None:
    channels, least = x.shape[1], min(x.shape[2:])
    name = draw(st.sampled_from(_STEPS))
    kernel = draw(st.integers(1, 3))
    if name in ("convolution", "deep", "largest", "mean") and least < 4:
        return None
    if name == "convolution":
        stride, padding, dilation = (draw(st.integers(low, 2)) for low in (1, 0, 1))
        made = torch.nn.Conv2d(channels, draw(st.sampled_from([2, 8])), min(kernel, 2), stride, padding, dilation)
        return name, made
    if name == "deep":
        return name, torch.nn.Conv2d(channels, 2 * channels, 3, padding=draw(st.integers(0, 1)), groups=channels)
    if name in ("largest", "mean"):
        pool = torch.nn.MaxPool2d if name == "largest" else torch.nn.AvgPool2d
        return name, pool(kernel, draw(st.integers(1, 2)), draw(st.integers(0, kernel // 2)))
    if channels * x.shape[2] * x.shape[3] > 20_000 and name in ("larger", "tokens", "join"):
        return None
    others: dict[str, Any] = {
        "relu": torch.nn.Hardtanh(), "add": None, "join": None, "norm": torch.nn.BatchNorm2d(channels),
        "larger": torch.nn.Upsample(scale_factor=2, mode="nearest"), "tokens": _rows_as_tokens(channels),
        "pad": lambda x: torch.nn.functional.pad(x, (1, 0, 2, 1), value=0.5), "cut": lambda x: x[:, :, 1:, ::2],
        "softmax": lambda x: torch.softmax(x, 1), "square": lambda x: x * x.mean(1, keepdim=True),
        "widen": lambda x: x.expand(2, *x.shape[1:]) if x.shape[0] == 1 else x[1:],
    }  # fmt: skip
    return name, others[name]


_STEPS = (
    "convolution", "deep", "largest", "mean", "relu", "add", "join", "norm", "larger", "tokens", "pad", "cut",
    "softmax", "square", "widen",
)  # fmt: skip


def edge_program(module: torch.nn.Module, *inputs: torch.Tensor) -> ExportedProgram:
    return to_edge(torch.export.export(module, inputs)).exported_program()


def peak(program: ExportedProgram, *, in_place: bool) -> float:
    live = LiveValues(program, in_place=in_place)
    return max(live.at(node) for node in program.graph.nodes)


@settings(max_examples=25, deadline=None)
@given(networks(), st.sampled_from([0.5, 0.7, 0.9]), st.booleans())
def test_the_same_within_the_limit(drawn: tuple[Network, torch.Tensor], share: float, in_place: bool) -> None:
    network, image = drawn
    program = edge_program(network, image)
    limit = int(share * peak(program, in_place=in_place))
    one = TileRegions(limit=limit, in_place=in_place)
    made, _ = one.apply(program)
    assert one.report is not None
    if not one.report.is_met:
        assert made is program
        return
    made.validate()
    assert peak(made, in_place=in_place) <= limit
    torch.testing.assert_close(made.module()(image), network(image), rtol=1e-5, atol=1e-5)
    assert made.module()(image).stride() == program.module()(image).stride()


class Wired(torch.nn.Module):
    """Two convolutions and one of several ways to use what they make."""

    def __init__(self, wiring: Callable[..., torch.Tensor], channels: tuple[int, int]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Conv2d(1, channels[0], 3, padding=1)
        self.second = torch.nn.Conv2d(channels[0], channels[1], 3, padding=1)
        self.wiring = wiring

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.wiring(self, x)


def _read_twice(m: Wired, x: torch.Tensor) -> torch.Tensor:
    large = m.first(x)
    return (m.second(large) + torch.nn.functional.max_pool2d(large, 5, 1, 2)).mean(1)


def _overwritten(m: Wired, x: torch.Tensor) -> torch.Tensor:
    large = m.first(x)
    return m.second(torch.nn.functional.hardtanh(large) * large).mean(1)


def _used_behind(m: Wired, x: torch.Tensor) -> torch.Tensor:
    large = m.first(x)
    return m.second(torch.nn.functional.hardtanh(large)).mean(1) + large.amax((1, 2, 3))


_WIRINGS: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, int]]] = {
    "a large result": (lambda m, x: m.second(m.first(x)), (16, 10)),
    "a result of some size": (lambda m, x: m.second(m.first(x)), (16, 6)),
    "read twice": (_read_twice, (8, 8)),
    "overwritten": (_overwritten, (8, 8)),
    "used behind": (_used_behind, (8, 8)),
}


@pytest.mark.parametrize("name", _WIRINGS)
@pytest.mark.parametrize("in_place", [False, True])
def test_within_every_limit(name: str, in_place: bool) -> None:
    model, image = Wired(*_WIRINGS[name]).eval(), torch.randn(1, 1, 24, 20)
    program = edge_program(model, image)
    most = peak(program, in_place=in_place)
    met = 0
    for percent in range(20, 100, 2):
        one = TileRegions(limit=int(percent / 100 * most), in_place=in_place)
        made, _ = one.apply(program)
        assert one.report is not None
        if not one.report.is_met:
            continue
        met += 1
        assert peak(made, in_place=in_place) <= percent / 100 * most
        torch.testing.assert_close(made.module()(image), model(image), rtol=1e-5, atol=1e-5)
    assert met


def test_a_region_reads_the_result_of_another() -> None:
    layers = [
        layer
        for _ in range(2)
        for layer in (torch.nn.Conv2d(1, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 1, 3, padding=1))
    ]
    model, image = torch.nn.Sequential(*layers).eval(), torch.randn(1, 1, 24, 20)
    program = edge_program(model, image)
    limit = int(0.4 * peak(program, in_place=True))
    one = TileRegions(limit=limit, in_place=True)
    made, _ = one.apply(program)
    assert one.report is not None
    first, second = one.report.regions
    assert first.result in {one.node for one in second.readings[0][second.nodes[0]].operands}
    assert peak(made, in_place=True) <= limit
    torch.testing.assert_close(made.module()(image), model(image), rtol=1e-5, atol=1e-5)


def test_bytes_that_are_alive() -> None:
    """A result lies over an argument only where that is read for the last time."""
    program = edge_program(Wired(_overwritten, (8, 8)).eval(), torch.randn(1, 1, 24, 20))
    nodes = {str(node.target): node for node in program.graph.nodes if node.op == "call_function"}
    image, large = 4 * 24 * 20, 8 * 4 * 24 * 20
    for in_place in (False, True):
        live = LiveValues(program, in_place=in_place)
        assert live.at(nodes["aten.hardtanh.default"]) == 2 * large
        assert live.at(nodes["aten.mul.Tensor"]) == (2 if in_place else 3) * large
        assert live.behind(nodes["aten.mul.Tensor"]) == large
        assert live.at(next(node for node in program.graph.nodes if node.op == "call_function")) == image + large


class Vision(torch.nn.Module):
    """Convolutions that make large values of a small image and a small result of them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, 1, 1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.MaxPool2d(3, 2, 1),
            torch.nn.Conv2d(16, 32, 3, 2, 1, groups=16), torch.nn.Hardswish(), torch.nn.Conv2d(32, 8, 1),
            torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 4),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.layers(x)
        return made


IMAGE = torch.randn(1, 3, 40, 37, generator=torch.Generator().manual_seed(1))


def lowered(level: int, arena_limit: int | None = None, **planning: Any) -> Any:
    edge = to_edge(torch.export.export(Vision().eval(), (IMAGE,)))
    planner = MemoryPlanningPass(**planning)
    return edge.to_executorch(
        ExecutorchBackendConfig(optimization_level=level, memory_planning_pass=planner, arena_limit=arena_limit)
    )


def arena(program: Any) -> int:
    return sum(program.executorch_program.execution_plan[0].non_const_buffer_sizes)


@pytest.mark.parametrize(("level", "planning"), [(1, {}), (1, {"in_place": True, "schedule": True}), (2, {})])
def test_half_of_the_arena(official_runtime: OfficialRuntime, level: int, planning: dict[str, Any]) -> None:
    whole = lowered(level, **planning)
    made = lowered(level, arena(whole) // 2, **planning)
    assert arena(made) <= arena(whole) // 2
    assert lowered(level, arena(whole) // 2, **planning).buffer == made.buffer
    one, other = (official_runtime.run(program.buffer, [[IMAGE]]).outputs[0][0] for program in (whole, made))
    torch.testing.assert_close(one, Vision().eval()(IMAGE), rtol=1e-4, atol=1e-5)
    # At -O1 bit for bit.
    torch.testing.assert_close(one, other, **({"rtol": 0, "atol": 0} if level == 1 else {"rtol": 1e-4, "atol": 1e-5}))
    run = Runtime.get().load_program(made.buffer, sanitize=True, in_place=True).load_method("forward")
    torch.testing.assert_close(run.execute([IMAGE])[0], other, rtol=1e-4, atol=1e-5)


def test_no_limit_is_asked_at_level_0() -> None:
    whole = lowered(0)
    with pytest.raises(ModelError, match="EK707"):
        lowered(0, arena(whole) // 2)


def test_what_cannot_be_met() -> None:
    """An image and a result have to be there."""
    with pytest.raises(ModelError, match="EK707"):
        lowered(1, IMAGE.numel() * 4)


def test_exact_bands_leave_products_whole() -> None:
    """A product of fewer rows may be rounded in another way."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    program = edge_program(model, torch.randn(1, 32, 4))
    limit = int(0.6 * peak(program, in_place=False))
    for exact in (True, False):
        one = TileRegions(limit=limit, exact=exact)
        one.apply(program)
        assert one.report is not None
        assert one.report.is_met is not exact


def test_sizes_that_vary_are_left() -> None:
    dynamic = {0: torch.export.Dim("n", min=2, max=64)}
    model = torch.nn.Sequential(torch.nn.Linear(4, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    exported = torch.export.export(model, (torch.randn(8, 4),), dynamic_shapes=(dynamic,))
    program = to_edge(exported).exported_program()
    one = TileRegions(limit=int(0.6 * peak(program, in_place=False)))
    assert one.apply(program)[0] is program


def test_regions_are_reported() -> None:
    program = edge_program(Vision().eval(), IMAGE)
    one = TileRegions(limit=int(0.5 * peak(program, in_place=False)))
    made, _ = one.apply(program)
    assert one.report is not None
    assert one.report.regions
    for region in one.report.regions:
        assert region.nodes[-1] is region.result
        ends = [(band.start, band.stop) for band in region.bands]
        size = region.result.meta["val"].shape[region.bands[0].dim] if region.result.op == "call_function" else 0
        assert ends[0][0] == 0
        assert ends[-1][1] == size
        assert all(stop == start for (_, stop), (start, _) in itertools.pairwise(ends))
        nbytes = 4 * region.result.meta["val"].numel()
        assert 2 * nbytes <= region.nbytes <= 0.5 * peak(program, in_place=False)
    names = {node.name for node in made.graph.nodes}
    assert not any(region.nodes[0].name in names for region in one.report.regions)
