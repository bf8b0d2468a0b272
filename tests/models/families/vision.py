"""Image models of the transformers library, with their real layers, narrow and shallow."""

from __future__ import annotations

from typing import Any

import torch
from tests.models.case import DEEP, Built, Call, Family, enliven, single
from torch import nn

family = Family("vision")

LABELS: dict[str, Any] = {"num_labels": 10}


class Field(nn.Module):
    """Takes one field of the answer of a model of the transformers library."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model = enliven(model)
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.model(x, return_dict=True)[self.name]
        return answer


def pictures(model: Any, name: str = "logits", size: int = 32, batch: int = 1) -> Built:
    """Return the case of a model that takes pictures of `size` by `size` pixels."""
    return single(Field(model, name), *(Call(torch.randn(batch, 3, size, size)) for _ in range(2)))


@family.case(DEEP)
def resnet() -> Built:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[2, 2], layer_type="basic", **LABELS)
    return pictures(ResNetForImageClassification(config))


@family.case(DEEP)
def resnet_bottleneck() -> Built:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=8, hidden_sizes=[16, 32, 64], depths=[1, 2, 1], layer_type="bottleneck", **LABELS
    )
    return pictures(ResNetForImageClassification(config), batch=2)


@family.case(DEEP)
def mobilenet_v2() -> Built:
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config(depth_multiplier=0.25, image_size=32, **LABELS)
    return pictures(MobileNetV2ForImageClassification(config))


@family.case(DEEP)
def efficientnet() -> Built:
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    config = EfficientNetConfig(
        image_size=32,
        width_coefficient=0.25,
        depth_coefficient=0.34,
        kernel_sizes=[3, 3, 5, 3],
        in_channels=[32, 16, 24, 40],
        out_channels=[16, 24, 40, 80],
        depthwise_padding=[],
        strides=[1, 2, 2, 2],
        num_block_repeats=[1, 2, 2, 1],
        expand_ratios=[1, 6, 6, 6],
        hidden_dim=320,
        **LABELS,
    )
    return pictures(EfficientNetForImageClassification(config))


@family.case(DEEP)
def convnext() -> Built:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(
        hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1], layer_scale_init_value=0.5, **LABELS, image_size=32
    )
    return pictures(ConvNextForImageClassification(config))


@family.case(DEEP)
def convnext_v2() -> Built:
    from transformers import ConvNextV2Config, ConvNextV2ForImageClassification

    config = ConvNextV2Config(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, **LABELS, image_size=32)
    return pictures(ConvNextV2ForImageClassification(config))


def encoder(**more: Any) -> dict[str, Any]:
    """Return the sizes that the transformer models share."""
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "image_size": 32,
        "patch_size": 8,
    }
    return sizes | LABELS | more


@family.case(DEEP, "attention")
def vit() -> Built:
    from transformers import ViTConfig, ViTForImageClassification

    return pictures(ViTForImageClassification(ViTConfig(**encoder(attn_implementation="eager"))))


@family.case(DEEP, "attention")
def vit_sdpa() -> Built:
    from transformers import ViTConfig, ViTModel

    return pictures(ViTModel(ViTConfig(**encoder(attn_implementation="sdpa"))), "pooler_output", batch=2)


@family.case(DEEP, "attention")
def deit() -> Built:
    from transformers import DeiTConfig, DeiTForImageClassificationWithTeacher

    return pictures(DeiTForImageClassificationWithTeacher(DeiTConfig(**encoder(attn_implementation="sdpa"))))


@family.case(DEEP, "attention")
def swin() -> Built:
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(
        image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, **LABELS
    )
    return pictures(SwinForImageClassification(config))


@family.case(DEEP, "attention")
def segformer() -> Built:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(
        num_encoder_blocks=2,
        depths=[1, 1],
        sr_ratios=[4, 1],
        hidden_sizes=[16, 32],
        patch_sizes=[7, 3],
        strides=[4, 2],
        num_attention_heads=[1, 2],
        mlp_ratios=[2, 2],
        decoder_hidden_size=32,
        **LABELS,
    )
    return pictures(SegformerForSemanticSegmentation(config))
