"""What `gen` says a list equals is put into samples, instead of drawing lists until one fits."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from exirkit.patterns import parse_book
from exirkit.patterns.types.sampling import Sampler, SamplingError

BOOK = """
rulebook: 1
rules:
- id: canonicalize.example
  vars: {{x: "f32 [M, N]", t: "{kind}"}}
  match: return aten.view_copy.default(x, t)
  replace: return aten.reshape.default(x, t)
"""


@pytest.mark.parametrize(
    ("kind", "gen", "expected"),
    [
        ("shape", "t == ([M * N, 1] if M % 2 == 0 else [1, M, N])", lambda m, n: [1, m, n] if m % 2 else [m * n, 1]),
        ("shape", "M > 0 and t == [N, M - 1]", lambda m, n: [n, m - 1]),
        ("ints 2 in [0, 100]", "t == [N + 1, M]", lambda m, n: [n + 1, m]),
    ],
)
def test_lists_are_what_an_equation_says(
    kind: str, gen: str, expected: Callable[[int, int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (rule,) = parse_book(BOOK.format(kind=kind)).require_valid().rules
    sampler, rng = Sampler(rule.variables, gen=gen), random.Random(0)
    tries, once = list[object](), sampler._try

    def counted(*args: Any) -> Any:
        tries.append(args)
        return once(*args)

    monkeypatch.setattr(sampler, "_try", counted)
    for _ in range(50):
        sample = sampler.sample(rng)
        assert sample.values["t"] == expected(sample.symbols["M"], sample.symbols["N"])
    assert len(tries) < 100


def test_sizes_below_zero_are_not_put_into_a_shape() -> None:
    (rule,) = parse_book(BOOK.format(kind="shape")).require_valid().rules
    sampler, rng = Sampler(rule.variables, gen="t == [N - 2]"), random.Random(0)
    assert all(min(sampler.sample(rng).values["t"], default=0) >= 0 for _ in range(50))


def test_sizes_that_a_lower_bound_holds_up_are_not_made_smaller_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (rule,) = parse_book(BOOK.format(kind="shape")).require_valid().rules
    sampler = Sampler(rule.variables, gen="M >= 100 and N >= 100 and t == [M, N]", max_elements=64)
    solved, solve = list[object](), sampler.problem.solve
    tries, once = list[object](), sampler._try

    def counted(*args: Any) -> Any:
        solved.append(args)
        return solve(*args)

    def tried(*args: Any) -> Any:
        tries.append(args)
        return once(*args)

    monkeypatch.setattr(sampler.problem, "solve", counted)
    monkeypatch.setattr(sampler, "_try", tried)
    with pytest.raises(SamplingError):
        sampler.sample(random.Random(0))
    # One more than it takes to bring both down to their bounds.
    assert len(solved) <= 5 * len(tries)
