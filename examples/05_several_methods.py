"""One file with several methods that share their weights, and a constant that says how to call them."""

import torch

from exirkit import to_edge
from exirkit.runtime_ref import Runtime


class Coder(torch.nn.Module):
    """Words as numbers, and numbers as words."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(words, width)

    def encode(self, word: torch.Tensor) -> torch.Tensor:
        """Map word indices `[batch]` to vectors `[batch, width]`."""
        return self.embedding(word)

    def decode(self, vector: torch.Tensor) -> torch.Tensor:
        """Map vectors `[batch, width]` to the indices of the most similar words `[batch]`."""
        return (vector @ self.embedding.weight.T).argmax(-1)


class Calling(torch.nn.Module):
    """A module whose forward is one method of another."""

    def __init__(self, coder: Coder, method: str) -> None:
        super().__init__()
        self.coder, self.method = coder, method

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Call the method."""
        return getattr(self.coder, self.method)(value)


def main() -> None:
    """Export each method, lower them together, and run one after the other."""
    coder, words = Coder(words=100, width=64).eval(), torch.tensor([3, 41, 99])
    inputs = {"encode": (words,), "decode": (coder.encode(words),)}
    programs = {name: torch.export.export(Calling(coder, name), each) for name, each in inputs.items()}
    lowered = to_edge(programs, constant_methods={"words": 100}).to_executorch()
    program = Runtime.get().load_program(lowered.buffer)
    print("methods:", sorted(program.method_names), "bytes:", len(lowered.buffer))
    (vectors,) = program.load_method("encode").execute([words])
    (found,) = program.load_method("decode").execute([vectors])
    assert program.load_method("words").execute([]) == [100]
    assert len(lowered.buffer) < 2 * coder.embedding.weight.nbytes, "the weights are stored once"
    torch.testing.assert_close(found, words)


if __name__ == "__main__":
    main()
