"""Test cases of methods: inputs and the outputs that are expected of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from exirkit.ir import Diagnostic, UsageError, pytree

ConfigValue = torch.Tensor | int | bool | float


class MethodTestCase:
    """One run of a method.

    Args:
        inputs: Its inputs in any nesting of lists, tuples and dicts: tensors and numbers.
        expected_outputs: Its outputs in any nesting; None if they are not to be compared.

    Attributes:
        inputs: The inputs in order, flat.
        expected_outputs: The outputs in order, flat; empty if they are not to be compared.

    Raises:
        UsageError: EK708, a value is neither a dense tensor nor a number.
    """

    def __init__(self, inputs: Any, expected_outputs: Any = None) -> None:
        self.inputs: list[ConfigValue] = _flat(inputs, "input")
        self.expected_outputs: list[ConfigValue] = (
            [] if expected_outputs is None else _flat(expected_outputs, "expected output")
        )


@dataclass
class MethodTestSuite:
    """The test cases of one method.

    Attributes:
        method_name: Name of the method.
        test_cases: The cases; they are known by their index.
    """

    method_name: str
    test_cases: Sequence[MethodTestCase]


def _flat(nested: Any, what: str) -> list[ConfigValue]:
    leaves = pytree.tree_leaves(nested)
    for index, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            if leaf.layout == torch.strided and leaf.device.type != "meta":
                continue
            found = f"a tensor without data on {leaf.device}" if leaf.is_meta else f"a tensor of layout {leaf.layout}"
        elif isinstance(leaf, bool | int | float):
            continue
        else:
            found = f"of type {type(leaf).__name__}"
        raise UsageError(Diagnostic.of("EK708", f"{what} {index} is {found}"))
    return leaves
