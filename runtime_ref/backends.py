"""Backends at run time: what they implement in Python so that their delegates run here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from exirkit.emit import BackendDelegate, ExecutionPlan, PteFile, Tensor
from exirkit.runtime_ref.interpreter.values import StepFailure, TensorCell
from exirkit.runtime_ref.limits import Findings


@dataclass(frozen=True)
class DelegateContext:
    """What a backend is given to load a delegate.

    Attributes:
        backend_id: Name of the backend.
        method: Method that the delegate is part of.
        processed: What `preprocess` made.
        compile_specs: What it was compiled for: values by key.
        named_data: Gives the named data of a key (raises `UsageError` EK524 if there is none).
    """

    backend_id: str
    method: str
    processed: bytes
    compile_specs: Mapping[str, bytes]
    named_data: Callable[[str], bytes]


class LoadedDelegate(ABC):
    """A delegate that can run. It may keep a state from run to run."""

    @property
    @abstractmethod
    def result_count(self) -> int:
        """How many tensors it computes."""

    @abstractmethod
    def execute(self, inputs: Sequence[Any]) -> Sequence[torch.Tensor]:
        """Compute the results.

        Args:
            inputs: Tensors, which are copies, and numbers.

        Returns:
            Tensors of the dtypes and sizes of the program's values; they are copied to where these lie.
        """


LoadDelegate: TypeAlias = Callable[[DelegateContext], LoadedDelegate]


class BackendRegistry:
    """The backends that can run delegates."""

    def __init__(self) -> None:
        self._backends: dict[str, LoadDelegate] = {}

    def register(self, backend_id: str, load: LoadDelegate) -> None:
        """Let delegates of a backend run: `load` is called with each of them, once per loaded method."""
        self._backends[backend_id] = load

    def loader_of(self, backend_id: str) -> LoadDelegate:
        """Return the function that loads delegates of a registered backend, so that another backend can share it.

        Raises:
            KeyError: It is not registered.
        """
        return self._backends[backend_id]

    @property
    def registered_backend_names(self) -> list[str]:
        """Names of the registered backends."""
        return sorted(self._backends)

    def is_available(self, backend_name: str) -> bool:
        """Return whether delegates of that backend can run."""
        return backend_name in self._backends

    def load(self, file: PteFile, plan: ExecutionPlan, findings: Findings) -> list[LoadedDelegate]:
        """Load the delegates of a method.

        Returns:
            One for each of the plan's; what is wrong goes to the findings: EK621, the backend is not registered;
            EK627, it does not take the delegate.
        """
        loaded: list[LoadedDelegate] = []
        for index, delegate in enumerate(plan.delegates):
            load = self._backends.get(delegate.id)
            if load is None:
                findings.add(
                    "EK621",
                    f"delegate {index} needs backend {delegate.id}, which is not registered",
                    at=f"delegate {index}",
                    expected=_one_of(self.registered_backend_names),
                )
                continue
            try:
                loaded.append(load(_context(file, plan, delegate)))
            # The code of a backend may raise anything.
            except Exception as error:
                findings.add(
                    "EK627",
                    f"backend {delegate.id} does not take delegate {index}: {type(error).__name__}: {error}",
                    at=f"delegate {index}",
                )
        return loaded


def _one_of(names: Iterable[str]) -> str:
    return f"one of {', '.join(names)}" if names else "a backend; none is registered"


def _context(file: PteFile, plan: ExecutionPlan, delegate: BackendDelegate) -> DelegateContext:
    return DelegateContext(
        delegate.id,
        plan.name,
        bytes(file.delegate_payload(delegate)),
        {spec.key: bytes(spec.value) for spec in delegate.compile_specs},
        lambda key: bytes(file.named_data(key)),
    )


def results_of_delegate(plan: ExecutionPlan, loaded: LoadedDelegate, args: Sequence[int]) -> Sequence[int]:
    """Return those of a call's arguments that are results: the last ones.

    Raises:
        ValueError: There are fewer, or some are not tensors.
    """
    count = loaded.result_count
    results = args[len(args) - count :] if 0 <= count <= len(args) else ()
    if len(results) < count or not all(isinstance(plan.values[index].val, Tensor) for index in results):
        raise ValueError(f"it computes {count} tensors, and is called with {len(args)} values")
    return results


def run_delegate(
    loaded: LoadedDelegate, backend: str, values: list[Any], inputs: Sequence[int], results: Sequence[int]
) -> None:
    """Run a delegate, and copy what it computes to where the program wants it.

    Raises:
        StepFailure: EK656, it fails, or its results are not what the program expects.
    """
    # Copies, so that whatever it does to them does not reach the program.
    given = [_copied(values[index]) for index in inputs]
    try:
        made = list(loaded.execute(given))
    except Exception as error:
        raise StepFailure("EK656", f"backend {backend} failed: {type(error).__name__}: {error}") from error
    if len(made) != len(results):
        raise StepFailure("EK656", f"backend {backend} returned {len(made)} results", expected=str(len(results)))
    for index, tensor in zip(results, made, strict=True):
        cell: TensorCell = values[index]
        if not isinstance(tensor, torch.Tensor) or tensor.dtype != cell.dtype:
            kind = tensor.dtype if isinstance(tensor, torch.Tensor) else type(tensor).__name__
            raise StepFailure("EK656", f"backend {backend} returned {kind}", value=index, expected=str(cell.dtype))
        cell.resize(tensor.shape).copy_(tensor)


def _copied(value: Any) -> Any:
    return value.tensor().clone() if isinstance(value, TensorCell) else value
