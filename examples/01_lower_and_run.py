"""From a PyTorch model to a program file, and the file run: the whole way in four calls."""

import tempfile
from pathlib import Path

import torch

from exirkit import to_edge
from exirkit.runtime_ref import Runtime


class Classifier(torch.nn.Module):
    """A small convolutional classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
        )
        self.head = torch.nn.Linear(8, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Map images `[batch, 3, height, width]` to logits `[batch, 10]`."""
        return torch.softmax(self.head(self.features(image)), -1)


def main() -> None:
    """Lower, save, load, run, compare."""
    model, image = Classifier().eval(), torch.randn(1, 3, 16, 16)
    exported = torch.export.export(model, (image,))
    program = to_edge(exported).to_executorch()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "classifier.pte")
        program.save(path)
        method = Runtime.get().load_program(path).load_method("forward")
        (found,) = method.execute([image])
    print(method.metadata)
    print("largest difference from eager PyTorch:", (found - model(image)).abs().max().item())
    torch.testing.assert_close(found, model(image))


if __name__ == "__main__":
    main()
