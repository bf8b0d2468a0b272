"""A process that annotates models with the official XNNPACK quantizer and with ours; prints one JSON document.

Usage: python -m tests.official.quantization.quantizer_worker MODEL ...
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from typing import Any

import torch

warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

from benchmarks.models import build  # noqa: E402
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (  # noqa: E402
    XNNPACKQuantizer,
    get_symmetric_quantization_config,
)
from tests.official.quantization.quantizer_cache import cache_quantizer_patterns  # noqa: E402
from torchao.quantization.pt2e.prepare import (  # noqa: E402
    _get_edge_or_node_to_group_id,
    _get_edge_or_node_to_qspec,
)
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e  # noqa: E402

from exirkit.passes import data_quantizer  # noqa: E402

SCHEMES: dict[str, dict[str, bool]] = {
    "per tensor": {},
    "per channel": {"per_channel": True},
    "dynamic": {"per_channel": True, "dynamic": True},
}


class Annotated(Exception):  # noqa: N818 - it is a result
    """A model has been annotated; what follows is not needed."""


def official(settings: dict[str, bool]) -> Any:
    """Return the official quantizer."""
    config = get_symmetric_quantization_config(
        is_per_channel=settings.get("per_channel", False), is_dynamic=settings.get("dynamic", False)
    )
    return XNNPACKQuantizer().set_global(config)


class Recorder:
    """Annotates by another quantizer, and gives back what torchao would make of it."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.transform_for_annotation = inner.transform_for_annotation

    def annotate(self, model: Any) -> None:
        raise Annotated(groups(self.inner.annotate(model)))


def groups(model: Any) -> set[Any]:
    """Return, for each group of values that share their parameters, how it is quantized and what is in it."""
    specs = {place: spec for place, spec in _get_edge_or_node_to_qspec(model).items() if spec is not None}
    found: dict[int, list[Any]] = {}
    for place, number in _get_edge_or_node_to_group_id(specs).items():
        found.setdefault(number, []).append(place)
    return {(way_of([specs[one] for one in places]), tuple(sorted(map(name, places)))) for places in found.values()}


def way_of(specs: list[Any]) -> str:
    """Return how a group is quantized; of a group, one place says it."""
    return next((spec_text(one) for one in specs if hasattr(one, "qscheme")), "")


def spec_text(spec: Any) -> str:
    """Return what matters of a spec."""
    observer = spec.observer_or_fake_quant_ctr.p
    axis = spec.ch_axis if "channel" in str(spec.qscheme) else None
    parts = (spec.dtype, spec.quant_min, spec.quant_max, spec.qscheme, axis, spec.is_dynamic, observer.func.__name__)
    return f"{parts} {sorted(observer.keywords.items())}"


def name(place: Any) -> str:
    """Return the name of a place; numbers that became tensors have other names in both."""
    if isinstance(place, tuple):
        return f"{name(place[0])} -> {name(place[1])}"
    is_number = place.op == "get_attr" and ("tensor_constant" in place.target or "_number_" in place.target)
    return "number" if is_number else str(place.target if place.op == "get_attr" else place.name)


def annotated(program: Any, quantizer: Any) -> set[Any]:
    """Return what a quantizer says of a model, batch norms folded."""
    try:
        prepare_pt2e(program.module(), Recorder(quantizer))
    except Annotated as found:
        return set(found.args[0])
    raise AssertionError("annotate is called")


def compared(model: str) -> dict[str, Any]:
    """Return how many groups there are, and which only one side has, by scheme."""
    program = build(model).export()
    answer = {}
    for scheme, settings in SCHEMES.items():
        theirs, ours = annotated(program, official(settings)), annotated(program, data_quantizer("xnnpack", **settings))
        answer[scheme] = {"same": len(theirs & ours), "theirs": sorted(theirs - ours), "ours": sorted(ours - theirs)}
    return answer


def llama() -> dict[str, str]:
    """Return what becomes of a Llama whose positions are integers that are added."""
    from transformers import LlamaConfig, LlamaForCausalLM

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            config = LlamaConfig(
                vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
            )
            self.model = LlamaForCausalLM(config)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.model(x).logits

    torch.manual_seed(0)
    inputs = (torch.randint(0, 64, (1, 8)),)
    model = Logits().eval()
    program = torch.export.export(model, inputs, strict=False)
    answer = {}
    settings = {"per_channel": True}
    for title, quantizer in (("official", official(settings)), ("ours", data_quantizer("xnnpack", **settings))):
        try:
            prepared = prepare_pt2e(program.module(), quantizer)
            prepared(*inputs)
            got, want = convert_pt2e(prepared)(*inputs), model(*inputs)
            answer[title] = str((10 * torch.log10((want**2).mean() / ((want - got) ** 2).mean())).item())
        except RuntimeError as error:
            answer[title] = f"{type(error).__name__}: {error}"
    return answer


if __name__ == "__main__":
    cache_quantizer_patterns()
    json.dump({one: llama() if one == "tiny llama" else compared(one) for one in sys.argv[1:]}, sys.stdout)
