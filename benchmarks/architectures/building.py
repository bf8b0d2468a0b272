"""Architectures of transformers, timm and torchvision as modules with example inputs, from small configurations.

Nothing is downloaded. What is built is written in `library.yaml`.
"""

from __future__ import annotations

import re
import sys
import warnings
import zlib
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

LIBRARY_FILE = Path(__file__).with_name("library.yaml")

# Sizes for configurations of transformers, given where a configuration has a field of this name.
SMALL: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embed_dim", "embedding_size"), 32),
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_encoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "num_heads", "n_head", "n_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "hidden_dim"), 64),
    **dict.fromkeys(("head_dim", "d_head", "d_kv", "attention_head_size", "hidden_size_per_layer_input"), 8),
    **dict.fromkeys(("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), 8),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank"), 16),
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), 96),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "image_size", "d_inner"), 64),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 32),
    **dict.fromkeys(("n_group", "topk_group"), 1),
    "num_key_value_heads": 2,
    "num_experts_per_tok": 2,
    "patch_size": 16,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}


@dataclass(frozen=True)
class Architecture:
    """One entry of the library.

    Attributes:
        name: What the library calls it.
        library: `transformers`, `timm` or `torchvision`.
        inputs: Descriptions of tensors by parameter name, or `image` alone for one positional picture.
        options: For transformers fields of the configuration beyond `SMALL`, for the others arguments of the builder.
        model: For transformers the class, if it is not what `AutoModel` chooses.
        quick: Whether the tests try it.
        gain: Factor of weights, below 1 where a model would multiply rounding errors up.
    """

    name: str
    library: str
    inputs: dict[str, str]
    options: dict[str, Any] = field(default_factory=dict)
    model: str | None = None
    quick: bool = False
    gain: float = 1.0

    def build(self) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
        """Return the module in eval mode and its inputs; both depend on the name alone."""
        with torch.random.fork_rng(devices=[]), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(zlib.crc32(self.name.encode()))
            model = _BUILDERS[self.library](self).eval().requires_grad_(False)
            _enliven(model, self.gain)
            values = tuple(_tensor(text) for text in self.inputs.values())
        return FirstTensor(model, tuple(self.inputs)), values

    def export(self) -> tuple[ExportedProgram, torch.nn.Module, tuple[torch.Tensor, ...]]:
        """Trace the module, and return it and its inputs too."""
        module, inputs = self.build()
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.export.export(module, inputs, strict=False), module, inputs


class FirstTensor(torch.nn.Module):
    """Gives a model inputs by name and returns the first floating tensor of the answer that is more than a number."""

    def __init__(self, model: torch.nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        if self.names == ("image",):
            answer = self.model(*inputs)
        else:
            answer = self.model(**dict(zip(self.names, inputs, strict=True)))
        leaves = [one for one in pytree.tree_leaves(_plain(answer)) if isinstance(one, torch.Tensor)]
        return next(one for one in leaves if one.is_floating_point() and one.numel() > 1)


def _plain(answer: Any) -> Any:
    return tuple(answer.values()) if hasattr(answer, "to_tuple") else answer


def read_library(path: Path = LIBRARY_FILE) -> dict[str, Architecture]:
    """Read the architectures, by `library/name`."""
    found: dict[str, Architecture] = {}
    for group in yaml.safe_load(path.read_text()):
        for name, entry in group["models"].items():
            entry = entry or {}
            inputs = entry.get("inputs", group["inputs"])
            inputs = {"image": inputs} if isinstance(inputs, str) else inputs
            options = {**group.get("options", {}), **entry.get("options", {})}
            rest = {key: entry[key] for key in ("model", "quick", "gain") if key in entry}
            one = Architecture(name, group["library"], inputs, options, **rest)
            found[f"{one.library}/{name}"] = one
    return found


def _transformers_model(one: Architecture) -> torch.nn.Module:
    transformers = import_module("transformers")
    transformers.logging.set_verbosity_error()
    mapping = transformers.CONFIG_MAPPING
    configuration = mapping[one.options.get("type", one.name)]
    known = configuration().to_dict()
    small = {name: value for name, value in SMALL.items() if isinstance(known.get(name), int)}
    given = {name: value for name, value in one.options.items() if name != "type"}
    config = configuration(**{**small, **given})
    if one.model is None:
        return transformers.AutoModel.from_config(config)
    return getattr(transformers, one.model)(config)


def _timm_model(one: Architecture) -> torch.nn.Module:
    import_torchvision()
    return import_module("timm").create_model(one.name, pretrained=False, **one.options)


def _torchvision_model(one: Architecture) -> torch.nn.Module:
    return import_torchvision().models.get_model(one.name, weights=None, **one.options)


def import_torchvision() -> Any:
    """Import torchvision, with stand-ins for the operators that it expects of a C library it may lack."""
    try:
        return import_module("torchvision")
    except RuntimeError:
        for module in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[module]
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(library)
        return import_module("torchvision")


_KEPT: list[Any] = []
_BUILDERS = {"transformers": _transformers_model, "timm": _timm_model, "torchvision": _torchvision_model}


def _enliven(model: torch.nn.Module, gain: float) -> None:
    """Give weights sizes that keep the signal alive, so that a wrong layer shows in the answer."""
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point():
            continue
        if parameter.dim() > 1:
            fan_in = parameter[0, 0].numel() if parameter.dim() == 3 and "expert" in name else parameter[0].numel()
            parameter.normal_(std=gain * max(fan_in, 1) ** -0.5)
        elif name.endswith("weight"):
            parameter.uniform_(0.5, 1.5)
        else:
            parameter.normal_(std=0.1)
    for name, buffer in model.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(std=0.1)
        elif name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)


def _tensor(text: str) -> torch.Tensor:
    """Make a tensor from a description: `f32 [1, 3, 64, 64]`, `i64 [1, 8] < 96`, `ones [1, 8]`."""
    match = re.fullmatch(r"(f32|i64|ones|bool) \[([\d, ]*)\](?: < (\d+))?", text)
    if match is None:
        raise ValueError(f"not a description of a tensor: {text!r}")
    kind, sizes, below = match.groups()
    shape = [int(size) for size in sizes.split(",") if size.strip()]
    if kind == "f32":
        return torch.randn(shape)
    if kind == "i64":
        return torch.randint(3, int(below), shape)
    return torch.ones(shape, dtype=torch.int64 if kind == "ones" else torch.bool)
