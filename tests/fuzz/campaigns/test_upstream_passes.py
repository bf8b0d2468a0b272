"""Three passes of the official package, written with the public API: fuzzed as they are, and with mistakes.

The passes are in `examples/`. A mutant is a copy of one with a piece of its text changed; the fuzzer has to find it, to
blame the pass, and to reduce the program to a few calls.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from exirkit.fuzz.campaigns.user_tests import PassFuzzer

EXAMPLES = Path(__file__).parents[3] / "examples"
MOST_LINES = 25


def vision(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(*layers).eval()


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.mm(x, w.permute(1, 0))


def sum_and_product(b: torch.Tensor, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.addmm(b, x, w.permute(1, 0))


torch.manual_seed(0)
PASSES: dict[str, tuple[str, Sequence[tuple[Any, tuple[torch.Tensor, ...]]]]] = {
    "06_fold_batch_norm": (
        "FoldBatchNorm",
        [
            (vision(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)), (torch.randn(2, 2, 5, 5),)),
            (
                vision(nn.Conv1d(2, 4, 2, bias=False, groups=2), nn.BatchNorm1d(4, affine=False)),
                (torch.randn(1, 2, 5),),
            ),
            (vision(nn.ConvTranspose2d(2, 2, 2), nn.BatchNorm2d(2)), (torch.randn(1, 2, 3, 3),)),
        ],
    ),
    "07_to_linear": (
        "ToLinear",
        [
            (nn.Linear(3, 4), (torch.randn(2, 3),)),
            # Weights that lie in columns: a permutation that keeps the order of dims is a copy of these.
            (product, (torch.randn(3, 3), torch.randn(3, 3).t())),
            (sum_and_product, (torch.randn(3), torch.randn(3, 3), torch.randn(3, 3))),
        ],
    ),
    "08_split_groups": (
        "SplitGroups",
        [
            (nn.Conv2d(4, 6, 3, groups=2, padding=1), (torch.randn(1, 4, 5, 5),)),
            (nn.Conv1d(3, 3, 2, groups=3, bias=False), (torch.randn(2, 3, 5),)),
            (nn.ConvTranspose2d(4, 4, 2, groups=2), (torch.randn(1, 4, 3, 3),)),
        ],
    ),
}

# File, what is written there, and what the mutant has instead.
MUTANTS = {
    "epsilon": ("06_fold_batch_norm", "call(aten.add.Scalar, var, eps)", "call(aten.add.Scalar, var, 1e-5)"),
    "gamma": ("06_fold_batch_norm", "scale if gamma is None else call(MUL, scale, gamma)", "scale"),
    "mean": ("06_fold_batch_norm", "call(aten.sub.Tensor, bias, mean)", "call(aten.add.Tensor, bias, mean)"),
    "bias": ("06_fold_batch_norm", "if bias is None else call(aten.sub.Tensor, bias, mean)", ""),
    "transposed": ("06_fold_batch_norm", " or conv.args[6]", ""),
    "stride": ("06_fold_batch_norm", "shift, *rest)", "shift, [1], *rest[1:])"),
    "no bias": ("07_to_linear", "(x, weight, *bias)", "(x, weight)"),
    "any permutation": ("07_to_linear", " or [dim % 2 for dim in turned.args[1]] != [1, 0]", ""),
    "factors": ("07_to_linear", " or node.kwargs", ""),
    "turned weight": ("07_to_linear", "weight = turned.args[0]", "weight = turned"),
    "first group": ("08_split_groups", "group * width, (group + 1) * width", "0, width"),
    "order": ("08_split_groups", "for group in range(groups):", "for group in reversed(range(groups)):"),
    "bias of groups": ("08_split_groups", "None if bias is None else cut(bias, 0, group)", "None"),
    "padding": ("08_split_groups", "some, *rest, 1)", "some, rest[0], [0], *rest[2:], 1)"),
    "channels": ("08_split_groups", 'weight.meta["val"].dim() + 1', 'weight.meta["val"].dim()'),
}


def pass_of(name: str, before: str = "", after: str = "") -> Any:
    text = (EXAMPLES / f"{name}.py").read_text()
    assert text.count(before) == 1 or not before, before
    space: dict[str, Any] = {"__name__": name}
    exec(compile(text.replace(before, after) if before else text, f"{name}.py", "exec"), space)
    return space[PASSES[name][0]]


@pytest.mark.parametrize("name", PASSES)
def test_passes_are_short(name: str) -> None:
    tree = ast.parse((EXAMPLES / f"{name}.py").read_text())
    (found,) = (one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == PASSES[name][0])
    assert found.end_lineno is not None
    assert found.end_lineno - found.lineno + 1 <= MOST_LINES


@pytest.mark.parametrize("name", PASSES)
def test_right_passes_are_right(name: str, fuzz_pass: PassFuzzer) -> None:
    (found,) = fuzz_pass(pass_of(name), seeds=48, examples=PASSES[name][1])
    assert found.changed >= 20


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_are_found_blamed_and_reduced(mutant: str, tmp_path: Path) -> None:
    name, before, after = MUTANTS[mutant]
    fuzzer = PassFuzzer(directory=tmp_path)
    wrong = pass_of(name, before, after)
    with pytest.raises(pytest.fail.Exception) as caught:
        fuzzer(wrong, seeds=72, examples=PASSES[name][1])
    told = str(caught.value)
    assert f"culprit: {wrong.name}" in told
    assert told.partition("reduced:")[2].count(" = aten.") <= 3, told
    assert (tmp_path / "fuzz_pass.py").is_file()


def test_a_pattern_that_cannot_be_had_by_chance(fuzz_pass: PassFuzzer) -> None:
    pattern = {
        "vars": {"x": "f32 [M, K]", "w": "param f32 [N, K]", "b": "param f32 [N]"},
        "match": "return aten.addmm.default(b, x, aten.permute_copy.default(w, [1, 0]))",
    }
    (found,) = fuzz_pass(pass_of("07_to_linear"), seeds=8, pattern=pattern)
    assert found.changed >= 4
