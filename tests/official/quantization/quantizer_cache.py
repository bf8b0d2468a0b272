"""Patterns of the XNNPACK quantizer, exported once in a process.

It exports its twelve patterns of convolution and batch norm for each model that it annotates, which takes most of the
time of a test with a quantised model. They do not depend on the model.
"""

from __future__ import annotations

import copy
import functools
import importlib
from collections.abc import Callable
from typing import Any
from unittest import mock

_EXPORT = "_get_aten_graph_module_for_pattern"


@functools.cache
def cache_quantizer_patterns() -> None:
    """Have the quantizer export each pattern once, from now on."""
    utils = importlib.import_module("executorch.backends.xnnpack.quantizer.xnnpack_quantizer_utils")
    export: Callable[..., Any] = getattr(utils, _EXPORT)
    known: dict[Any, Any] = {}

    def cached(pattern: Any, example_inputs: tuple[Any, ...], is_cuda: bool = False) -> Any:
        # A pattern is a closure over the operator and the choices that make it.
        function = pattern.fn
        cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
        key = (function.__code__, cells, is_cuda, tuple(one.shape for one in example_inputs))
        if key not in known:
            known[key] = export(pattern, example_inputs, is_cuda)
        # The matcher changes the pattern that it is given.
        return copy.deepcopy(known[key])

    mock.patch.object(utils, _EXPORT, cached).start()
