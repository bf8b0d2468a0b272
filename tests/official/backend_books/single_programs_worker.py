"""A process that runs classes of the official package and the rules beside them on programs of their own.

The programs are ones that `same_programs` cannot say: a resize that is decomposed before it comes to Edge, what a
quantizer has annotated, and numbers that bodies of control flow hold.
"""

from __future__ import annotations

import copy
import json
import sys
import warnings
from collections import Counter
from typing import Any

import torch
from executorch.backends.transforms.duplicate_dynamic_quant_chain import DuplicateDynamicQuantChainPass
from executorch.backends.xnnpack._passes.convert_to_upsample_bilinear2d import ConvertToUpsampleBilinear2d
from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
from executorch.exir import EdgeCompileConfig, to_edge
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F  # noqa: N812
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import exirkit
from exirkit.bridge import edge_from_official, original_pass
from exirkit.ir import called_graphs, underlying
from exirkit.passes import ApplyRules
from exirkit.patterns import backend_classes, beside_other_libraries, load_book

# The module is imported before books are read: both define operators of the target.
INLINE = original_pass("executorch.backends.arm._passes.control_flow_const_inline:ControlFlowConstInlinePass")
BILINEAR = torch.ops.aten.upsample_bilinear2d.vec
RESIZES: tuple[dict[str, Any], ...] = (
    {"scale_factor": 2, "align_corners": False},
    {"scale_factor": 3, "align_corners": True},
    {"size": (7, 3), "align_corners": False},
    {"size": (7, 3), "align_corners": True},
    # Sizes do not give the factor: by the operator with sizes other pixels would be taken.
    {"scale_factor": 1.3, "align_corners": False},
)


class Resize(torch.nn.Module):
    """A bilinear resize."""

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self.options = options

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, mode="bilinear", **self.options)


class Projections(torch.nn.Module):
    """Linear layers on one value.

    Args:
        biases: Whether each of them has a bias.
    """

    def __init__(self, biases: tuple[bool, ...]) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 3 + index, bias=one) for index, one in enumerate(biases))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(layer(x) for layer in self.layers)


class Branches(torch.nn.Module):
    """Branches that compute with numbers, which become tensors that they hold; one of them in a branch inside."""

    def forward(self, p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        def second(x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: x * 0.5, lambda x: x - 3, (x,))

        return torch.cond(p, lambda x: x * 2.5, second, (x,))


class Loop(torch.nn.Module):
    """A loop whose body computes with a number."""

    def forward(self, p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = while_loop(lambda x: x.sum() < 40.0, lambda x: (x.abs() + 1.5,), (x,))[0]
        return made


def rules_of(book: str, class_name: str) -> ApplyRules:
    """Return the rules that the table of a book names for a class."""
    (entry,) = [one for one in backend_classes(book).entries if one.name == class_name]
    with beside_other_libraries():
        rules = load_book(book).require_valid().rules
    return ApplyRules([one for one in rules if one.rule.origin in entry.rules])


def operators(graph: torch.fx.Graph) -> Counter[str]:
    """Count the calls of a graph."""
    called = (underlying(node.target) for node in graph.nodes if node.op == "call_function")
    return Counter(
        str(getattr(one, "_op", one)) if "edge" in str(one) else str(one) for one in called if hasattr(one, "_schema")
    )


def resizes() -> list[dict[str, Any]]:
    """Say what is left of resizes that torch has decomposed."""
    found = []
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    for options in RESIZES:
        model = Resize(options).eval()
        parts = torch.export.export(model, (x,)).run_decompositions(
            {BILINEAR: torch._decomp.decomposition_table[BILINEAR]}
        )
        theirs = to_edge(parts).exported_program()
        before = operators(theirs.graph)
        taken = copy.deepcopy(theirs)
        changed = ConvertToUpsampleBilinear2d(taken)(taken.graph_module).graph_module
        rules = rules_of("backends/xnnpack", "ConvertToUpsampleBilinear2d")
        made = rules(exirkit.to_edge(parts).exported_program()).exported_program
        found.append(
            {
                "there": operators(changed.graph) != before,
                "here": dict(operators(made.graph)),
                "official edge": dict(operators(rules(theirs).exported_program.graph)),
                "error": float((made.module()(x) - model(x)).abs().max()),
            }
        )
    return found


def chains() -> list[dict[str, Any]]:
    """Say how often a value is quantised before and after, on both sides, by the biases of the layers that use it."""
    found = []
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    for biases in ((True, True), (False, False, False), (True, False), (True, True, False), (True,)):
        exported = torch.export.export(Projections(biases).eval(), (x,)).module()
        config = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
        prepared = prepare_pt2e(exported, XNNPACKQuantizer().set_global(config))
        prepared(x)
        converted = convert_pt2e(prepared)
        program = torch.export.export(converted, (x,))
        wanted = converted(x)
        made = rules_of("backends/transforms", "DuplicateDynamicQuantChainPass")(program).exported_program
        DuplicateDynamicQuantChainPass()(converted)
        found.append(
            {
                "before": _dynamic(program.graph),
                "there": _dynamic(converted.graph),
                "here": _dynamic(made.graph),
                "same": all(map(torch.equal, made.module()(x), wanted)),
            }
        )
    return found


def numbers_of_bodies() -> list[dict[str, Any]]:
    """Say how many tensors are made in all graphs, and whether numbers are stored, on both sides."""
    found = []
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0))
    for model in (Branches(), Loop()):
        exported = torch.export.export(model, (torch.tensor(False), x))
        program = to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False)).exported_program()
        mine = edge_from_official(program).exported_program()
        made = rules_of("backends/arm", "ControlFlowConstInlinePass")(mine).exported_program
        found.append(
            {
                "before": _full(program.graph_module),
                "there": _full(INLINE(program).graph_module),
                "here": _full(made.graph_module),
                "same": all(torch.equal(made.module()(torch.tensor(p), x), model(torch.tensor(p), x)) for p in (0, 1)),
            }
        )
    return found


def _full(module: torch.fx.GraphModule) -> int:
    return sum(operators(one.graph)["aten.full.default"] for one in called_graphs(module))


def _dynamic(graph: torch.fx.Graph) -> list[int]:
    counts = operators(graph)
    parts = ("choose_qparams", "quantize_per_tensor", "dequantize_per_tensor")
    return [counts[f"quantized_decomposed.{part}.tensor"] for part in parts]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    json.dump({"resizes": resizes(), "chains": chains(), "numbers": numbers_of_bodies()}, sys.stdout)
