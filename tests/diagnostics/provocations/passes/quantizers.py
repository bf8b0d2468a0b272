"""Quantizers that cannot be read, and models that they do not fit."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

import torch
from tests.diagnostics.provocation import provokes

from exirkit.passes import Annotator, QuantizerPolicy, account_of_model, data_quantizer, load_quantizer, parse_quantizer

HEAD = "quantizer: 1\nid: small\nspecs: {act: {dtype: i8}, fixed: {dtype: u8, scale: 0.00390625, zero_point: 0}}\n"
RELU = "- {name: relu, vars: {x: 'f32 [*S]'}, match: return aten.relu.default(x), annotate: {x: act, result: act}}\n"


def policy(text: str) -> QuantizerPolicy:
    return parse_quantizer(HEAD + text, "small.yaml")


class Activations(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(torch.relu(x))


def plan(text: str) -> object:
    module = torch.export.export(Activations(), (torch.randn(3),)).module()
    return account_of_model(Annotator(policy(text)), module)


@provokes("EK438")
def quantizer_with_a_repeated_key(_: Path) -> None:
    policy(f"id: other\nrules:\n{RELU}")


@provokes("EK439")
def quantizer_with_a_key_that_there_is_not(_: Path) -> None:
    policy(f"carries: [aten.view.default]\nrules:\n{RELU}")


@provokes("EK440")
def spec_that_there_is_not(_: Path) -> None:
    policy(f"rules:\n{RELU.replace('result: act', 'result: atc')}")


@provokes("EK469")
def values_that_share_and_differ(_: Path) -> object:
    sigmoid = RELU.replace("name: relu", "name: sigmoid").replace("aten.relu", "aten.sigmoid")
    sigmoid = sigmoid.replace("{x: act, result: act}", "{x: fixed}, join: x")
    return plan(f"rules:\n{RELU}{sigmoid}")


@provokes("EK477")
def module_that_there_is_not(_: Path) -> object:
    return plan(f"leave: [{{module: encoder.*}}]\nrules:\n{RELU}")


@provokes("EK479")
def without_torchao(_: Path) -> None:
    with patch.dict(sys.modules, {"torchao.quantization.pt2e.quantizer": None}):
        data_quantizer(load_quantizer("xnnpack"))


@provokes("EK483")
def call_that_stays_a_float(_: Path) -> object:
    module = torch.export.export(Activations(), (torch.randn(3),)).module()
    return [one.diagnostic(why_not=True) for one in account_of_model(Annotator(policy(f"rules:\n{RELU}")), module)]
