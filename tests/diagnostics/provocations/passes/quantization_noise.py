"""Programs and samples between which no noise can be measured."""

from __future__ import annotations

from pathlib import Path

import torch
from tests.diagnostics.provocation import provokes

from exirkit.passes import quantization_report, search_float_modules

X = torch.ones(2, 4)


@provokes("EK417")
def quantized_form_of_another_model(_: Path) -> object:
    plain = torch.export.export(torch.nn.Linear(4, 4).eval(), (X,))
    return quantization_report(plain, torch.export.export(torch.nn.Tanh(), (X,)), [(X,)])


@provokes("EK418")
def sample_with_too_many_inputs(_: Path) -> object:
    plain = torch.export.export(torch.nn.Linear(4, 4).eval(), (X,))
    return quantization_report(plain, plain, [(X, X)])


@provokes("EK419")
def accuracy_that_no_choice_reaches(_: Path) -> object:
    plain = torch.export.export(torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Sigmoid()), (X,))
    return search_float_modules(plain, "xnnpack", [(X,)], at_least=2, metric=lambda model: 1)


@provokes("EK420")
def metric_that_returns_text(_: Path) -> object:
    plain = torch.export.export(torch.nn.Tanh(), (X,))
    return search_float_modules(plain, "xnnpack", [(X,)], 1, metric=lambda model: "good")  # type: ignore[arg-type,return-value]
