"""A quantizer of torchao that does what a policy says: for `prepare_pt2e`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import GraphModule, Node

from exirkit.ir import Diagnostic, FakeTensor, UsageError
from exirkit.passes.config.policies import full_names, operator_names

from .annotating import Annotator, Point, QuantizationPlan
from .model import QuantizedAs, QuantizerPolicy, check_quantizer, load_quantizer

if TYPE_CHECKING:
    from torchao.quantization.pt2e.quantizer import Quantizer

_KEY = "quantization_annotation"


def data_quantizer(policy: QuantizerPolicy | str | Path, **settings: bool) -> Quantizer:
    """Return a quantizer for `prepare_pt2e` of torchao.

    Its attribute `annotator` is the policy with its settings, and `plan`, once it has annotated a model, what it said.

    Args:
        policy: A policy, a file, or the name of one that comes with exirkit: `xnnpack`.
        **settings: Choices, by the names that the policy gives them.

    Raises:
        UsageError: EK440, the policy has no such setting; EK479, torchao is not installed.
        ModelError: EK438 to EK440 and EK210 and following, the policy is wrong.
        OSError: The file cannot be read.
    """
    if isinstance(policy, QuantizerPolicy):
        check_quantizer(policy)
    else:
        policy = load_quantizer(policy)
    made: Quantizer = _subclass_of(_torchao().quantizer.Quantizer)(Annotator(policy, settings))
    return made


def _torchao() -> Any:
    """Return torchao's part for exported programs, with names of observers.

    Raises:
        UsageError: EK479, it is not installed.
    """
    try:
        # With its submodule `quantizer`.
        import_module("torchao.quantization.pt2e.quantizer")
        return import_module("torchao.quantization.pt2e")
    except ImportError as error:
        message = f"quantizers are given to torchao, which cannot be imported: {error}"
        raise UsageError(Diagnostic.of("EK479", message)) from error


@cache
def _subclass_of(base: Any) -> Callable[[Annotator], Any]:
    """Return the class of quantizers; torchao is imported only where one is made."""

    class DataQuantizer(base):  # type: ignore[misc]
        """What `data_quantizer` returns."""

        def __init__(self, annotator: Annotator) -> None:
            super().__init__()
            self.annotator = annotator
            self.plan: QuantizationPlan | None = None

        def transform_for_annotation(self, model: GraphModule) -> GraphModule:
            """Make tensors of the numbers that operators are given beside tensors of floats."""
            return with_numbers_as_tensors(model, self.annotator.policy.numbers)

        def annotate(self, model: GraphModule) -> GraphModule:
            """Annotate the nodes of a model.

            Raises:
                ModelError: EK469, values that share their parameters are to be quantized differently; EK477, a selector
                    means no module of the model.
            """
            self.plan = self.annotator.plan(model)
            write_annotations(self.plan)
            return model

        def validate(self, model: GraphModule) -> None:
            """Do nothing: a plan without conflicts can be carried out."""

    return DataQuantizer


def with_numbers_as_tensors(module: GraphModule, globs: Sequence[str]) -> GraphModule:
    """Give operators tensors instead of numbers, where they compute floats; the module is edited.

    Args:
        module: What `ExportedProgram.module()` gives.
        globs: Names of the operators. Their numbers that are not tensors by their schema stay, and integers stay
            integers: a number in an index must not become a float.
    """
    names = full_names(globs)
    for node in list(module.graph.nodes):
        if node.op != "call_function" or not set(names).intersection(operator_names(node)):
            continue
        value = node.meta.get("val")
        if not isinstance(value, FakeTensor) or not value.dtype.is_floating_point:
            continue
        for place, argument in enumerate(node.target._schema.arguments[: len(node.args)]):
            given = node.args[place]
            if str(argument.type) == "Tensor" and isinstance(given, int | float):
                made = _stored_number(module, node, torch.tensor(given, dtype=value.dtype))
                node.update_arg(place, made)
    module.recompile()
    return module


def _stored_number(module: GraphModule, node: Node, number: torch.Tensor) -> Node:
    place = 0
    while hasattr(module, f"_number_{place}"):
        place += 1
    name = f"_number_{place}"
    module.register_buffer(name, number)
    with module.graph.inserting_before(node):
        made = module.graph.get_attr(name)
    made.meta["val"] = node.meta["val"].fake_mode.from_tensor(number, static_shapes=True)
    return made


def write_annotations(plan: QuantizationPlan) -> None:
    """Write what a plan says into the nodes, as torchao reads it."""
    library = _torchao().quantizer
    specs: dict[Point, Any] = {}
    for first, group in plan.groups.items():
        derived = _derived_from(plan, first)
        specs[first] = _spec(plan.ways[first], derived)
        for point in group[1:]:
            specs[point] = library.SharedQuantizationSpec(_edge_or_node(first))
    inputs: dict[Node, dict[Node, Any]] = {}
    results: dict[Node, Any] = {}
    for point, spec in specs.items():
        if point.reader is None:
            results[point.value] = spec
        else:
            inputs.setdefault(point.reader, {})[point.value] = spec
    for call in plan.by_call:
        call.meta[_KEY] = library.QuantizationAnnotation(
            input_qspec_map=inputs.get(call, {}), output_qspec=results.get(call), _annotated=True
        )


def _edge_or_node(point: Point) -> Any:
    return point.value if point.reader is None else (point.value, point.reader)


def _derived_from(plan: QuantizationPlan, point: Point) -> list[Any]:
    """Return what the parameters of a point are derived from, as torchao names it."""
    names = plan.ways[point].derived
    if not names:
        return []
    owner = next(one for one in plan.annotations if any(point in group for group in one.points.values()))
    return [_edge_or_node(owner.points[name][0]) for name in names]


def _spec(way: QuantizedAs, derived: list[Any]) -> Any:
    library = _torchao().quantizer
    low, high = way.range
    common: dict[str, Any] = {"dtype": way.torch_dtype, "quant_min": low, "quant_max": high, "qscheme": _scheme(way)}
    if way.scale is not None:
        return library.FixedQParamsQuantizationSpec(scale=way.scale, zero_point=way.zero_point, **common)
    if derived:
        return library.DerivedQuantizationSpec(
            derived_from=derived, derive_qparams_fn=product_of_scales, ch_axis=way.axis, **common
        )
    observer = _observer(way)
    return library.QuantizationSpec(
        observer_or_fake_quant_ctr=observer, ch_axis=way.axis, is_dynamic=way.dynamic, **common
    )


def _scheme(way: QuantizedAs) -> torch.qscheme:
    if way.axis is None:
        return torch.per_tensor_symmetric if way.symmetric else torch.per_tensor_affine
    return torch.per_channel_symmetric if way.symmetric else torch.per_channel_affine


def _observer(way: QuantizedAs) -> Any:
    names: Mapping[tuple[str, bool], str] = {
        ("min_max", False): "MinMaxObserver",
        ("min_max", True): "PerChannelMinMaxObserver",
        ("moving_average", False): "MovingAverageMinMaxObserver",
        ("moving_average", True): "MovingAveragePerChannelMinMaxObserver",
        ("histogram", False): "HistogramObserver",
    }
    name = "PlaceholderObserver" if way.dynamic else names[way.observer or "min_max", way.axis is not None]
    given = {} if way.eps is None else {"eps": way.eps}
    return getattr(_torchao(), name).with_args(**given)


def product_of_scales(observers: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the scale of a bias, the product of those of an input and its weight, and its zero point 0."""
    (one, _), (other, _) = (each.calculate_qparams() for each in observers)
    scale = one * other
    return scale, torch.zeros(scale.shape, dtype=torch.int32)
