"""One file with several methods that share their weights, and a constant that says how to call them."""

import torch

from exirkit import to_edge
from exirkit.runtime_ref import Runtime


class Coder(torch.nn.Module):
    """Maps word indices `[batch]` to vectors `[batch, width]`, and back to the most similar words."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(words, width)

    def forward(self, word: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.embedding(word, self.embedding.weight)

    def decode(self, vector: torch.Tensor) -> torch.Tensor:
        return (self.embedding.weight @ vector.T).argmax(0)  # `vector @ weight.T` would store it transposed as well


class Decoder(torch.nn.Module):
    """A module whose forward is the way back."""

    def __init__(self, coder: Coder) -> None:
        super().__init__()
        self.coder = coder

    def forward(self, vector: torch.Tensor) -> torch.Tensor:
        return self.coder.decode(vector)


def main() -> None:
    coder, words = Coder(words=100, width=64).eval(), torch.tensor([3, 41, 99])
    encoder = torch.export.export(coder, (words,))
    decoder = torch.export.export(Decoder(coder), (coder(words),))
    lowered = to_edge({"encode": encoder, "decode": decoder}, constant_methods={"words": 100}).to_executorch()
    program = Runtime.get().load_program(lowered.buffer)
    print("methods:", sorted(program.method_names), "bytes:", len(lowered.buffer))
    (vectors,) = program.load_method("encode").execute([words])
    (found,) = program.load_method("decode").execute([vectors])
    assert program.load_method("words").execute([]) == [100]
    assert len(lowered.buffer) < 2 * coder.embedding.weight.nbytes, "the weights are stored once"
    torch.testing.assert_close(found, words)


if __name__ == "__main__":
    main()
