"""Joint graphs of forward and backward in the official training module, in a process of its own.

    python -m tests.official.training_worker NAME...

Each line is JSON: model, level, and losses of torch, of our file and, where it lowers the model, of the official one.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.experimental import _export_forward_backward
from torch.nn import functional

from exirkit import to_edge
from exirkit.passes import ExecutorchBackendConfig
from exirkit.runtime_ref import Runtime

STEPS, RATE = 20, 0.1
Model = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Classifier(nn.Module):
    """A network with the loss of its classes; what it predicts comes second."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        predicted = self.net(x)
        return functional.cross_entropy(predicted, y), predicted.detach().argmax(1)


class LastOfSequence(nn.Module):
    """The last state of an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 8, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class GradientIsParameter(nn.Module):
    """A gradient that is the parameter itself, a number as a parameter, and one that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.fixed = nn.Parameter(torch.full((3,), 0.25), requires_grad=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return ((self.weight * self.weight).sum() / 2 + ((x @ (self.fixed * 2)) * self.scale).tanh().sum(),)


def _mlp() -> Model:
    net = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 3))
    return Classifier(net), (torch.randn(8, 6), torch.randint(0, 3, (8,)))


def _batch_norm() -> Model:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
    return Classifier(net), (torch.randn(4, 1, 8, 8), torch.randint(0, 3, (4,)))


def _convolutions() -> Model:
    net = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.SiLU(), nn.Flatten(), nn.Linear(64, 3))
    return Classifier(net), (torch.randn(4, 1, 8, 8), torch.randint(0, 3, (4,)))


def _embedding() -> Model:
    net = nn.Sequential(nn.Embedding(10, 8), nn.Tanh(), nn.Flatten(), nn.Linear(24, 3))
    return Classifier(net), (torch.randint(0, 10, (5, 3)), torch.randint(0, 3, (5,)))


def _attention() -> Model:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return Classifier(nn.Sequential(layer, nn.Flatten(), nn.Linear(40, 3))), (
        torch.randn(2, 5, 8),
        torch.randint(0, 3, (2,)),
    )


MODELS: dict[str, Callable[[], Model]] = {
    "mlp": _mlp,
    "batch_norm": _batch_norm,
    "convolutions": _convolutions,
    "embedding": _embedding,
    "lstm": lambda: (Classifier(LastOfSequence()), (torch.randn(3, 5, 4), torch.randint(0, 3, (3,)))),
    "attention": _attention,
    "gradient_is_parameter": lambda: (GradientIsParameter(), (torch.randn(2, 3),)),
}


def main(names: Sequence[str]) -> None:
    """Print a line for each model and level."""
    warnings.simplefilter("ignore")
    for name in names:
        torch.manual_seed(0)
        model, inputs = MODELS[name]()
        joint = _export_forward_backward(torch.export.export(model, inputs))
        expected = _torch_losses(model, inputs)
        for level in (0, 1, 2):
            lowered = to_edge(joint).to_executorch(ExecutorchBackendConfig(optimization_level=level))
            _answer(
                name=name,
                level=level,
                torch=expected,
                ours=_trained(lowered.buffer, inputs),
                runtimes=_differences(lowered.buffer, inputs),
                external=_with_data_file(joint, level, inputs),
            )
        _answer(name=name, torch=expected, official=_official(joint, inputs))


def _answer(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def _torch_losses(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[float]:
    trained = copy.deepcopy(model)
    optimizer = torch.optim.SGD([one for one in trained.parameters() if one.requires_grad], lr=RATE)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = trained(*inputs)[0]
        losses.append(float(loss))
        loss.backward()
        optimizer.step()
    return losses


def _trained(buffer: bytes, inputs: tuple[torch.Tensor, ...]) -> list[float]:
    from executorch.extension.training import _load_for_executorch_for_training, get_sgd_optimizer

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.pte")
        path.write_bytes(buffer)
        module = _load_for_executorch_for_training(str(path))
        losses = []
        optimizer = None
        for _ in range(STEPS):
            losses.append(float(module.forward_backward("forward", list(inputs))[0]))
            if optimizer is None:
                optimizer = get_sgd_optimizer(module.named_parameters(), RATE)
            optimizer.step(module.named_gradients())
        return losses


def _differences(buffer: bytes, inputs: tuple[torch.Tensor, ...]) -> list[float]:
    """Return by how much results, gradients and parameters of both runtimes differ."""
    from executorch.runtime import Runtime as OfficialRuntime

    ours = Runtime.get().load_program(buffer).load_method("forward").execute(list(inputs))
    theirs = OfficialRuntime.get().load_program(buffer).load_method("forward").execute(list(inputs))
    return [float((one.double() - two.double()).abs().max()) for one, two in zip(ours, theirs, strict=True)]


def _with_data_file(joint: ExportedProgram, level: int, inputs: tuple[torch.Tensor, ...]) -> list[float]:
    """Return the loss of both runtimes on a file whose parameters are in a data file."""
    from executorch.runtime import Runtime as OfficialRuntime

    config = ExecutorchBackendConfig(optimization_level=level, external_mutable_weights=True)
    lowered = to_edge(joint).to_executorch(config)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.pte")
        path.write_bytes(lowered.buffer)
        lowered.write_tensor_data_to_file(folder)
        (data,) = Path(folder).glob("*.ptd")
        runs: list[Any] = [
            runtime.get().load_program(path, data_path=data).load_method("forward").execute(list(inputs))
            for runtime in (Runtime, OfficialRuntime)
        ]
    return [float(run[0]) for run in runs]


def _official(joint: ExportedProgram, inputs: tuple[torch.Tensor, ...]) -> list[float] | str:
    from executorch.exir import to_edge as official_to_edge

    try:
        return _trained(official_to_edge(joint).to_executorch().buffer, inputs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:300]


if __name__ == "__main__":
    main(sys.argv[1:] or list(MODELS))
