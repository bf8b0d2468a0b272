"""Two backends that run what they are given, and check everything that they are handed."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.ir import CompileSpec
from exirkit.passes import BackendDetails, PreprocessResult
from exirkit.program import ReferenceBackend
from exirkit.runtime_ref import DelegateContext, LoadedDelegate, Runtime

KEY = "what it is"


class CheckingBackend(BackendDetails):
    """Compiles like `ReferenceBackend`; each delegate knows what it must be handed, in which order.

    It checks number, dtypes and sizes of what it is handed, that no two tensors lie over each other, that it finds its
    named data and compile specs again, and it writes over all that it was handed once it has run: nothing of that may
    reach the program. Its own runs are watched byte by byte.
    """

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        """Compile a part, and write down what its inputs are."""
        made = ReferenceBackend.preprocess(edge_program, [])
        nodes = {node.name: node for node in edge_program.graph.find_nodes(op="placeholder")}
        inputs = [_described(nodes[str(name)]) for name in edge_program.graph_signature.user_inputs]
        said = {spec.key: spec.value.decode() for spec in compile_specs}
        header = json.dumps({"inputs": inputs, "specs": said}).encode()
        payload = len(header).to_bytes(8, "little") + header + made.processed_bytes
        handles = [node.meta.get("debug_handle") for node in edge_program.graph.nodes]
        known = tuple(sorted({one for one in handles if isinstance(one, int)}))
        return PreprocessResult(payload, {0: known} if known else None, {KEY: b"a checking backend"})


class OtherCheckingBackend(CheckingBackend):
    """The same under another name, so that there are two."""


def _described(node: Node) -> dict[str, Any]:
    value = node.meta["val"]
    if not isinstance(value, Tensor):
        return {"kind": "number"}
    sizes = [size if isinstance(size, int) else None for size in value.shape]
    return {"kind": "tensor", "dtype": str(value.dtype), "sizes": sizes}


class _Delegate(LoadedDelegate):
    def __init__(self, context: DelegateContext) -> None:
        length = int.from_bytes(context.processed[:8], "little")
        header = json.loads(context.processed[8 : 8 + length])
        self._inputs: list[dict[str, Any]] = header["inputs"]
        found = {key: value.decode() for key, value in context.compile_specs.items()}
        if found != header["specs"]:
            raise ValueError(f"compile specs {found} are found, and {header['specs']} were given")
        if context.named_data(KEY) != b"a checking backend":
            raise ValueError("its named data is that of another delegate")
        self._method = Runtime.get().load_program(context.processed[8 + length :], sanitize=True).load_method("forward")

    @property
    def result_count(self) -> int:
        return self._method.metadata.num_outputs()

    def execute(self, inputs: Sequence[Any]) -> Sequence[Tensor]:
        if len(inputs) != len(self._inputs):
            raise ValueError(f"{len(inputs)} values are handed over, and {len(self._inputs)} expected")
        for place, (given, wanted) in enumerate(zip(inputs, self._inputs, strict=True)):
            _check(place, given, wanted)
        tensors = [one for one in inputs if isinstance(one, Tensor)]
        _check_apart(tensors)
        results = list(self._method.execute(list(inputs), numbers_vary=True))
        for one in tensors:
            one.fill_(1)
        return results


def _check(place: int, given: Any, wanted: dict[str, Any]) -> None:
    if not isinstance(given, Tensor):
        if wanted["kind"] != "number":
            raise ValueError(f"value {place} is {given!r}, and a tensor is expected")
        return
    sizes = wanted.get("sizes")
    if sizes is None or str(given.dtype) != wanted["dtype"] or len(sizes) != given.ndim:
        raise ValueError(f"value {place} is {given.dtype} {list(given.shape)}, and {wanted} is expected")
    if any(size not in (None, found) for size, found in zip(sizes, given.shape, strict=True)):
        raise ValueError(f"value {place} has sizes {list(given.shape)}, and {sizes} are expected")


def _check_apart(tensors: Sequence[Tensor]) -> None:
    """Reject tensors that lie over each other."""
    spans = sorted(
        (storage.data_ptr(), storage.data_ptr() + storage.nbytes())
        for storage in (one.untyped_storage() for one in tensors if one.numel())
    )
    for (_, end), (start, _) in itertools.pairwise(spans):
        if start < end:
            raise ValueError("two of the values lie over each other")


for _backend in (CheckingBackend, OtherCheckingBackend):
    Runtime.get().backend_registry.register(_backend.__name__, _Delegate)
