"""The models: well-known architectures, at small sizes, with random weights; nothing is downloaded."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers

Built = tuple[torch.nn.Module, tuple[torch.Tensor, ...]]
_TEXT = {
    "vocab_size": 128, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64,
}  # fmt: skip
_GROUPED = {**_TEXT, "num_key_value_heads": 2, "use_cache": False}
_EYES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 32}


class First(torch.nn.Module):
    """A model of transformers, reduced to the first of what it returns."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.model(*inputs)[0]
        return result


def _text(kind: str, attention: str, config: Mapping[str, Any]) -> Built:
    made = getattr(transformers, f"{kind}Config")(**config, attn_implementation=attention)
    model = getattr(transformers, f"{kind}Model")(made)
    return First(model), (torch.randint(3, 100, (1, 16), generator=torch.Generator().manual_seed(1)),)


def _image(kind: str, config: Mapping[str, Any], size: int = 32, attention: str | None = None) -> Built:
    extra = {} if attention is None else {"attn_implementation": attention}
    model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**config, **extra))
    return First(model), (torch.randn(1, 3, size, size),)


def _encoder_decoder(kind: str, config: Mapping[str, Any]) -> Built:
    model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**config))

    class Both(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.model(input_ids=source, decoder_input_ids=target, use_cache=False)[0]
            return result

    return Both(), (torch.arange(3, 15)[None], torch.arange(5, 13)[None])


def _speech(kind: str, config: Mapping[str, Any]) -> Built:
    model = getattr(transformers, f"{kind}Model")(getattr(transformers, f"{kind}Config")(**config))
    return First(model), (torch.randn(1, 3200),)


def _whisper(attention: str) -> Built:
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    options: Any = {
        "d_model": 32, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 64,
        "max_source_positions": 32, "num_mel_bins": 16, "attn_implementation": attention,
    }  # fmt: skip
    config = transformers.WhisperConfig(**options)
    return First(WhisperEncoder(config)), (torch.randn(1, 16, 64),)


def torchvision_models() -> Any:
    """Return `torchvision.models`, or None where torchvision is not installed.

    Its operators are declared first: a build for another device has no library of them, and nothing here calls them.
    """
    try:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, name):
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torchvision_models.library = library  # type: ignore[attr-defined]
        return importlib.import_module("torchvision").models
    except ImportError:
        return None


def timm_module() -> Any:
    """Return `timm`, or None where it is not installed; torchvision is loaded before it."""
    if torchvision_models() is None:
        return None
    try:
        return importlib.import_module("timm")
    except ImportError:
        return None


def _vision(name: str, size: int, options: Mapping[str, Any]) -> Built:
    return getattr(torchvision_models(), name)(weights=None, **options), (torch.randn(1, 3, size, size),)


def _timm(name: str, size: int, options: Mapping[str, Any]) -> Built:
    return timm_module().create_model(name, pretrained=False, **options), (torch.randn(1, 3, size, size),)


class Upscaler(torch.nn.Module):
    """Super-resolution by sub-pixel convolution, as ESPCN has it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(1, 16, 5, padding=2), torch.nn.Tanh(), torch.nn.Conv2d(16, 8, 3, padding=1), torch.nn.Tanh()
        )
        self.last = torch.nn.Conv2d(8, 9, 3, padding=1)
        self.shuffle = torch.nn.PixelShuffle(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.shuffle(self.last(self.body(x))))


class ResidualUpscaler(torch.nn.Module):
    """Super-resolution by residual blocks, as EDSR has it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.blocks = torch.nn.ModuleList(
            torch.nn.Sequential(
                torch.nn.Conv2d(16, 16, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3, padding=1)
            )
            for _ in range(3)
        )  # fmt: skip
        self.tail = torch.nn.Sequential(
            torch.nn.Conv2d(16, 64, 3, padding=1), torch.nn.PixelShuffle(2), torch.nn.Conv2d(16, 64, 3, padding=1),
            torch.nn.PixelShuffle(2), torch.nn.Conv2d(16, 3, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.head(x)
        for block in self.blocks:
            x = x + 0.1 * block(x)
        y: torch.Tensor = self.tail(x)
        return y


class DarknetBlocks(torch.nn.Module):
    """Convolutions, batch norms and mish, as YOLOv4 has them."""

    def __init__(self) -> None:
        super().__init__()

        def unit(inputs: int, outputs: int, kernel: int, stride: int = 1) -> torch.nn.Sequential:
            conv = torch.nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
            return torch.nn.Sequential(conv, torch.nn.BatchNorm2d(outputs), torch.nn.Mish())

        self.stem = unit(3, 8, 3, 2)
        self.narrow, self.wide = unit(8, 4, 1), unit(4, 8, 3)
        self.down = unit(8, 16, 3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        y: torch.Tensor = self.down(x + self.wide(self.narrow(x)))
        return y


class DiffusionBlock(torch.nn.Module):
    """The residual block of a diffusion network: group norms, SiLU, and attention over pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.conv1 = torch.nn.GroupNorm(4, 16), torch.nn.Conv2d(16, 16, 3, padding=1)
        self.norm2, self.conv2 = torch.nn.GroupNorm(4, 16), torch.nn.Conv2d(16, 16, 3, padding=1)
        self.norm3, self.qkv, self.out = torch.nn.GroupNorm(4, 16), torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        silu = torch.nn.functional.silu
        h = self.conv2(silu(self.norm2(self.conv1(silu(self.norm1(x))))))
        x = x + h
        n, c, height, width = x.shape
        q, k, v = self.qkv(self.norm3(x).reshape(n, c, height * width).transpose(1, 2)).chunk(3, -1)
        y = torch.softmax(q @ k.transpose(-1, -2) * c**-0.5, -1) @ v
        z: torch.Tensor = x + self.out(y).transpose(1, 2).reshape(n, c, height, width)
        return z


class Encoder(torch.nn.Module):
    """torch's own encoder of transformers."""

    def __init__(self, activation: str) -> None:
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation=activation)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.layers(x)
        return y


class GatedConvolution(torch.nn.Module):
    """Convolutions with gates, as WaveNet and the language models of Dauphin have them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv1d(8, 32, 3, padding=1), torch.nn.Conv1d(16, 32, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        glu = torch.nn.functional.glu
        return glu(self.second(glu(self.first(x), 1)), 1)


def _plain(module: Callable[[], torch.nn.Module], *shape: int) -> Built:
    return module(), (torch.randn(*shape),)


_GPT2 = {"vocab_size": 128, "n_embd": 32, "n_head": 4, "n_layer": 2, "use_cache": False}
_GPT_NEO = {
    "vocab_size": 128, "hidden_size": 32, "num_layers": 2, "num_heads": 4,
    "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 64, "use_cache": False,
}  # fmt: skip
_T5 = {"vocab_size": 128, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "use_cache": False}
_BART = {
    "vocab_size": 128, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
    "use_cache": False,
}  # fmt: skip
_SPEECH = {
    **_TEXT, "conv_dim": (16, 16), "conv_stride": (5, 4), "conv_kernel": (10, 8), "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2,
}  # fmt: skip
_TEXT_MODELS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("Llama", _GROUPED),
    "mistral": ("Mistral", _GROUPED),
    "qwen2": ("Qwen2", _GROUPED),
    "qwen3": ("Qwen3", {**_GROUPED, "head_dim": 8}),
    "gemma": ("Gemma", {**_GROUPED, "head_dim": 8}),
    "gemma2": ("Gemma2", {**_GROUPED, "head_dim": 8}),
    "phi": ("Phi", {**_TEXT, "use_cache": False}),
    "phi3": ("Phi3", {**_GROUPED, "pad_token_id": 0}),
    "olmo2": ("Olmo2", _GROUPED),
    "smollm3": ("SmolLM3", {**_GROUPED, "pad_token_id": 0}),
    "gpt-neox": ("GPTNeoX", {**_TEXT, "use_cache": False}),
    "gpt2": ("GPT2", _GPT2),
    "gpt-neo": ("GPTNeo", _GPT_NEO),
    "opt": (
        "OPT", {"vocab_size": 128, "hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "max_position_embeddings": 64, "word_embed_proj_dim": 32, "use_cache": False}
    ),
    "bert": ("Bert", _TEXT),
    "roberta": ("Roberta", _TEXT),
    "electra": ("Electra", {**_TEXT, "embedding_size": 32}),
    "distilbert": ("DistilBert", {"vocab_size": 128, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}),
    "albert": ("Albert", {**_TEXT, "embedding_size": 16}),
    "modernbert": (
        "ModernBert", {**_TEXT, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1,
        "sep_token_id": 2}
    ),
}  # fmt: skip
_BOTH = {"llama", "gpt2", "bert", "modernbert", "gpt-neox"}
_ONLY_EAGER = {"gpt-neo", "gemma2", "qwen2", "phi3", "olmo2", "opt", "electra", "albert"}
_IMAGE_MODELS: dict[str, tuple[str, Mapping[str, Any], int]] = {
    "vit": ("ViT", {**_EYES, "patch_size": 8}, 32),
    "deit": ("DeiT", {**_EYES, "patch_size": 8}, 32),
    "dinov2": ("Dinov2", {**_EYES, "patch_size": 8, "use_swiglu_ffn": True}, 32),
    "beit": ("Beit", {**_EYES, "patch_size": 8}, 32),
    "siglip": ("SiglipVision", {**_EYES, "patch_size": 8}, 32),
    "clip-vision": ("CLIPVision", {**_EYES, "patch_size": 8}, 32),
    "swin": (
        "Swin", {"image_size": 32, "patch_size": 2, "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4],
        "window_size": 4}, 32
    ),
    "segformer": (
        "Segformer", {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 16, 32, 32],
        "num_attention_heads": [1, 2, 2, 4]}, 64
    ),
    "convnext": ("ConvNext", {"hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 2, 1]}, 64),
    "convnextv2": ("ConvNextV2", {"hidden_sizes": [16, 32, 32, 64], "depths": [1, 1, 2, 1]}, 64),
    "resnet": ("ResNet", {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]}, 64),
    "regnet": ("RegNet", {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "groups_width": 8}, 64),
    "mobilevit": (
        "MobileViT", {"image_size": 64, "hidden_sizes": [16, 24, 32],
        "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 64]}, 64
    ),
    "levit": (
        "Levit", {"image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 3, 4],
        "depths": [1, 1, 1], "key_dim": [8, 8, 8]}, 64
    ),
}  # fmt: skip
_TORCHVISION: dict[str, tuple[int, Mapping[str, Any]]] = {
    "mobilenet_v2": (64, {"width_mult": 0.25}),
    "mobilenet_v3_small": (64, {}),
    "mobilenet_v3_large": (64, {}),
    "efficientnet_b0": (64, {}),
    "shufflenet_v2_x0_5": (64, {}),
    "squeezenet1_1": (64, {}),
    "resnet18": (64, {}),
    "regnet_y_400mf": (64, {}),
}
_TIMM: dict[str, tuple[int, Mapping[str, Any]]] = {
    "vit_tiny_patch16_224": (32, {"img_size": 32, "depth": 2}),
    "eva02_tiny_patch14_224": (28, {"img_size": 28, "depth": 2}),
    "convnext_atto": (64, {}),
    "resmlp_12_224": (64, {"img_size": 64}),
    "repvgg_a0": (64, {}),
    "resnetv2_50": (64, {"layers": (1, 1, 1, 1)}),
    "seresnet18": (64, {}),
    "ghostnet_100": (64, {}),
    "mobilenetv4_conv_small": (64, {}),
    "poolformer_s12": (64, {}),
    "cspdarknet53": (64, {"act_layer": "mish"}),
}
_OWN: dict[str, Callable[[], Built]] = {
    "upscaler": functools.partial(_plain, Upscaler, 1, 1, 12, 12),
    "residual upscaler": functools.partial(_plain, ResidualUpscaler, 1, 3, 12, 12),
    "darknet blocks": functools.partial(_plain, DarknetBlocks, 1, 3, 32, 32),
    "diffusion block": functools.partial(_plain, DiffusionBlock, 1, 16, 8, 8),
    "torch encoder, GELU": functools.partial(_plain, functools.partial(Encoder, "gelu"), 2, 10, 32),
    "torch encoder, ReLU": functools.partial(_plain, functools.partial(Encoder, "relu"), 2, 10, 32),
    "gated convolution": functools.partial(_plain, GatedConvolution, 1, 8, 20),
}


def catalogue() -> dict[str, Callable[[], Built]]:
    """Return how to make each model, by its name; those of packages that are not installed are left out."""
    made: dict[str, Callable[[], Built]] = {}
    for name, (kind, config) in _TEXT_MODELS.items():
        for attention in ("sdpa", "eager") if name in _BOTH else ("eager",) if name in _ONLY_EAGER else ("sdpa",):
            made[f"{name} ({attention})"] = functools.partial(_text, kind, attention, config)
    made["t5 (eager)"] = functools.partial(_encoder_decoder, "T5", _T5)
    made["bart (sdpa)"] = functools.partial(_encoder_decoder, "Bart", {**_BART, "attn_implementation": "sdpa"})
    made["bart (eager)"] = functools.partial(_encoder_decoder, "Bart", {**_BART, "attn_implementation": "eager"})
    made["wav2vec2"] = functools.partial(_speech, "Wav2Vec2", _SPEECH)
    made["hubert"] = functools.partial(_speech, "Hubert", _SPEECH)
    made["whisper encoder (sdpa)"] = functools.partial(_whisper, "sdpa")
    made["whisper encoder (eager)"] = functools.partial(_whisper, "eager")
    for name, (kind, config, size) in _IMAGE_MODELS.items():
        made[name] = functools.partial(_image, kind, config, size)
    made["vit (eager)"] = functools.partial(_image, *_IMAGE_MODELS["vit"], "eager")
    if torchvision_models() is not None:
        for name, (size, options) in _TORCHVISION.items():
            made[f"torchvision {name}"] = functools.partial(_vision, name, size, options)
    if timm_module() is not None:
        for name, (size, options) in _TIMM.items():
            made[f"timm {name}"] = functools.partial(_timm, name, size, options)
    return made | _OWN


def build(make: Callable[[], Built]) -> Built:
    """Return a model in inference mode, with weights that are the same in every run, and what it is called with."""
    torch.manual_seed(20261122)
    model, inputs = make()
    return model.eval().requires_grad_(False), inputs
