"""Models that the benchmarks lower: real architectures at their real depth, with random weights."""

from __future__ import annotations

import logging
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch.export import Dim, ExportedProgram


@dataclass(frozen=True)
class Benchmark:
    """A module to lower, the inputs to trace it with, and the sizes that may vary."""

    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    dynamic_shapes: Any = None

    def export(self) -> ExportedProgram:
        """Trace the module in inference mode."""
        module = self.module.eval().requires_grad_(False)
        return torch.export.export(module, self.inputs, dynamic_shapes=self.dynamic_shapes, strict=False)


class LastHidden(torch.nn.Module):
    """A transformers model reduced to the one tensor that matters."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)[0]


def _text(model: torch.nn.Module, length: int = 64, vocabulary: int = 1000) -> Benchmark:
    return Benchmark(LastHidden(model), (torch.randint(0, vocabulary, (1, length)),))


def _image(model: torch.nn.Module, size: int) -> Benchmark:
    images = torch.randn(1, 3, size, size)
    keep_signal(model, images)
    return Benchmark(LastHidden(model), (images,))


def keep_signal(model: torch.nn.Module, images: torch.Tensor) -> None:
    """Give convolutions and batch norms weights and statistics under which values do not fade away from layer to layer.

    With those of new modules, results are zero or so small that arithmetic is slow and differences do not show.
    """
    norms = [one for one in model.eval().modules() if isinstance(one, torch.nn.BatchNorm2d)]
    for one in model.modules() if norms else ():
        if isinstance(one, torch.nn.Conv2d):
            torch.nn.init.kaiming_normal_(one.weight)
    hooks = []
    for norm in norms:
        torch.nn.init.ones_(norm.weight)
        hooks.append(norm.register_forward_pre_hook(_take_statistics))
    with torch.no_grad():
        model(images)
    for hook in hooks:
        hook.remove()


def _take_statistics(norm: torch.nn.BatchNorm2d, inputs: tuple[torch.Tensor]) -> None:
    variance, mean = torch.var_mean(inputs[0], (0, 2, 3))
    norm.get_buffer("running_mean").copy_(mean)
    norm.get_buffer("running_var").copy_(variance)


def mlp() -> Benchmark:
    layers: list[torch.nn.Module] = []
    for _ in range(8):
        layers += [torch.nn.Linear(128, 128), torch.nn.ReLU()]
    return Benchmark(torch.nn.Sequential(*layers), (torch.randn(4, 128),))


def mlp_dynamic_batch() -> Benchmark:
    static = mlp()
    return Benchmark(static.module, static.inputs, ({0: Dim("batch", min=2, max=64)},))


def resnet18() -> Benchmark:
    config = transformers.ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic"
    )
    return _image(transformers.ResNetModel(config), 96)


def mobilenet_v2() -> Benchmark:
    return _image(transformers.MobileNetV2Model(transformers.MobileNetV2Config(image_size=128)), 128)


def efficientnet_b0() -> Benchmark:
    config = transformers.EfficientNetConfig(
        image_size=128, width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280
    )
    return _image(transformers.EfficientNetModel(config), 128)


def convnext_tiny() -> Benchmark:
    return _image(transformers.ConvNextModel(transformers.ConvNextConfig(image_size=96)), 96)


def vit() -> Benchmark:
    config = transformers.ViTConfig(hidden_size=192, num_attention_heads=3, intermediate_size=768, image_size=128)
    return _image(transformers.ViTModel(config), 128)


def swin_tiny() -> Benchmark:
    return _image(transformers.SwinModel(transformers.SwinConfig(image_size=224, embed_dim=48)), 224)


def bert() -> Benchmark:
    config = transformers.BertConfig(
        vocab_size=1000, hidden_size=256, num_attention_heads=4, intermediate_size=1024, num_hidden_layers=12
    )
    return _text(transformers.BertModel(config))


def distilbert() -> Benchmark:
    config = transformers.DistilBertConfig(vocab_size=1000, dim=256, n_heads=4, hidden_dim=1024)
    return _text(transformers.DistilBertModel(config))


def gpt2() -> Benchmark:
    config = transformers.GPT2Config(vocab_size=1000, n_embd=256, n_head=4, n_layer=12, use_cache=False)
    return _text(transformers.GPT2Model(config))


def llama() -> Benchmark:
    config = transformers.LlamaConfig(
        vocab_size=1000,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=8,
        num_attention_heads=8,
        num_key_value_heads=4,
        use_cache=False,
    )
    return _text(transformers.LlamaModel(config))


def t5_encoder() -> Benchmark:
    config = transformers.T5Config(vocab_size=1000, d_model=256, d_kv=32, d_ff=512, num_layers=6, num_heads=8)
    return _text(transformers.T5EncoderModel(config))


def whisper_encoder() -> Benchmark:
    config = transformers.WhisperConfig(
        d_model=192, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=768, max_source_positions=100
    )
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    return Benchmark(LastHidden(WhisperEncoder(config)), (torch.randn(1, 80, 200),))


class Recurrent(torch.nn.Module):
    """An LSTM whose sequence output is the result."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(64, 128, num_layers=2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.lstm(x)[0]
        return output


def lstm() -> Benchmark:
    return Benchmark(Recurrent(), (torch.randn(1, 32, 64),))


class Chain(torch.nn.Module):
    """A straight line of cheap operators: what lowering costs per node, and nothing else."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in range(self.length // 6):
            x = torch.relu(x * 0.5 + float(step % 7)).view(4, 8).transpose(0, 1).contiguous()
        return x


def chain(length: int) -> Benchmark:
    """Return a chain of about `length` operators."""
    return Benchmark(Chain(length), (torch.randn(8, 4),))


MODELS: dict[str, Callable[[], Benchmark]] = {
    builder.__name__: builder
    for builder in (
        mlp, mlp_dynamic_batch, resnet18, mobilenet_v2, efficientnet_b0, convnext_tiny, vit, swin_tiny, bert,
        distilbert, gpt2, llama, t5_encoder, whisper_encoder, lstm,
    )
}  # fmt: skip


def build(name: str) -> Benchmark:
    """Build one benchmark with weights that depend on nothing but its name's place in the list."""
    torch.manual_seed(20260101)
    return MODELS[name]()


def quiet_options(parser: ArgumentParser) -> Namespace:
    """Read the arguments of a bench, the names of models first; from then on torch is quiet and has one thread.

    Args:
        parser: With the other arguments. `models` are all where none is given.
    """
    parser.add_argument("models", nargs="*", help="models; all when absent")
    options = parser.parse_args()
    if unknown := sorted(set(options.models) - set(MODELS)):
        parser.error(f"unknown models: {', '.join(unknown)}")
    options.models = options.models or list(MODELS)
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    return options
