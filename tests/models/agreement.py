"""Whether two executors gave the same answers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tests.models.case import Tolerance, Value


def assert_agree(got: Sequence[Sequence[Value]], expected: Sequence[Sequence[Value]], tolerance: Tolerance) -> None:
    """Compare the flat outputs of all calls: count, kind, dtype and shape exactly, elements within the tolerance."""
    assert len(got) == len(expected), f"{len(got)} calls were answered instead of {len(expected)}"
    for index, (answers, wanted) in enumerate(zip(got, expected, strict=True)):
        assert len(answers) == len(wanted), f"call {index}: {len(answers)} outputs instead of {len(wanted)}"
        for position, (answer, want) in enumerate(zip(answers, wanted, strict=True)):
            difference = find_difference(answer, want, tolerance)
            assert difference is None, f"call {index}, output {position}: {difference}"


def find_difference(answer: Value, want: Value, tolerance: Tolerance) -> str | None:
    """Return what is wrong with an answer, or `None`."""
    if not isinstance(want, torch.Tensor) or not isinstance(answer, torch.Tensor):
        same = type(answer) is type(want) and answer == want
        return None if same else f"{answer!r} instead of {want!r}"
    for what in ("dtype", "shape"):
        if getattr(answer, what) != getattr(want, what):
            return f"{what} {getattr(answer, what)} instead of {getattr(want, what)}"
    if not want.is_floating_point() or tolerance.rtol == tolerance.atol == 0.0:
        wrong = ~((answer == want) | ((answer != answer) & (want != want)))
        return describe_wrong(answer, want, wrong)
    close = torch.isclose(answer.double(), want.double(), tolerance.rtol, tolerance.atol, equal_nan=True)
    return describe_wrong(answer, want, ~close)


def describe_wrong(answer: torch.Tensor, want: torch.Tensor, wrong: torch.Tensor) -> str | None:
    """Return where two tensors differ first and how far they are apart, or `None`."""
    if not wrong.any():
        return None
    first = tuple(wrong.nonzero()[0].tolist())
    count = int(wrong.sum())
    largest = (answer.double() - want.double()).abs().nan_to_num(0.0).max().item()
    return (
        f"{count} of {wrong.numel()} elements differ, by up to {largest:.3g}; "
        f"first at {first}: {answer[first].item()!r} instead of {want[first].item()!r}"
    )
