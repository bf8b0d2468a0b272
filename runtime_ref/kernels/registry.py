"""The registry of kernels by name: our own, and torch's operators, of which a program may name only some.

A file can name any operator that is registered in the process. Only those run that write to nothing but the memory
they are given and read nothing but their arguments.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Any, Final

import torch

from exirkit.ir import (
    OpOverload,
    find_schema,
    is_faster_on_ones,
    register_quantized_decomposed,
    registered_operator_names,
)
from exirkit.runtime_ref.interpreter.values import StepFailure

from .arithmetic import arithmetic_kernels
from .deviations import deviating_kernels
from .kernel import Kernel, KernelKind, make_kernel, out_slot, slots_of
from .own import own_kernels, write_result
from .quantized import quantized_kernels


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Operators of these libraries are torch's private business; everything else in the process was registered by
# a user who wants to run it.
_CLOSED_LIBRARIES: Final = _words(
    """
    _c10d_functional _c10d_functional_autograd _dtensor _native _quantized _test aoti_torch c10d debug_mode_ops
    debugprims export fsdp higher_order inductor inductor_prims mkl mkldnn mkldnn_prepacked onednn onnx prepacked prim
    prims profiler quantization quantized rngprims sparse static_runtime streams symm_mem torchbind xnnpack
    """
)
# Operators of `aten` with an out variant that would touch files, other storages or other devices.
_CLOSED_NAMES: Final = _words(
    "empty_quantized from_file lstm_mps_backward requires_grad_ resize set to_mkldnn values_copy"
)
_CLOSED_PREFIXES: Final = ("copy_sparse_", "cudnn_", "miopen_", "mkldnn_", "mps_", "q_per_", "resize_", "sparse_")
# Names with a leading underscore are private to torch, save those that core ATen decompositions leave behind.
_OPEN_PRIVATE_NAMES: Final = _words(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _cdist_forward _conj_physical _fft_c2c _fft_c2r _fft_r2c _int_mm
    _log_softmax _log_softmax_backward_data _native_batch_norm_legit _native_batch_norm_legit_no_training _pdist_forward
    _softmax _softmax_backward_data _to_copy _unsafe_view _upsample_bicubic2d_aa _upsample_bilinear2d_aa
    _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    """
)
_VALUE_OPERATORS: Final = _words("aten::_local_scalar_dense aten::sym_numel aten::sym_size.int aten::sym_stride.int")


def torch_kernel(name: str) -> Kernel | None:
    """Return the kernel for a qualified operator name with overload (`aten::add.out`), or None if none may run."""
    library, base, _ = _parts(name)
    if library in _CLOSED_LIBRARIES:
        return None
    if library == "quantized_decomposed":
        register_quantized_decomposed()
        if name.endswith("out"):
            # A library may have registered kernels of the official runtime, which cannot resize tensors of torch.
            return _composed(name)
    schema = _schema(name)
    if schema is None:
        return None if library == "aten" else _composed(name)
    if library == "aten" and not _is_open(name, base, schema):
        return None
    op = _overload(name)
    # What the overload calls itself, without the Python around it.
    return None if op is None else make_kernel(schema, op._op, is_faster_on_ones=is_faster_on_ones(op))


def torch_kernel_names() -> frozenset[str]:
    """Return the names of all operators of torch and of loaded libraries for which there is a kernel."""
    register_quantized_decomposed()
    others = (name for name in registered_operator_names() if not name.startswith("aten::"))
    return _aten_names() | {name for name in others if torch_kernel(name) is not None}


@cache
def _aten_names() -> frozenset[str]:
    names = (name for name in registered_operator_names() if name.startswith("aten::"))
    return frozenset(name for name in names if torch_kernel(name) is not None)


def _is_open(name: str, base: str, schema: torch.FunctionSchema) -> bool:
    if name in _VALUE_OPERATORS:
        return True
    if base in _CLOSED_NAMES or base.startswith(_CLOSED_PREFIXES):
        return False
    if base.startswith("_") and base not in _OPEN_PRIVATE_NAMES:
        return False
    if any(argument.is_out for argument in schema.arguments):
        return True
    return base.endswith("_") and _changes_only_itself(name, schema)


def _changes_only_itself(name: str, schema: torch.FunctionSchema) -> bool:
    first = schema.arguments[0] if schema.arguments else None
    if first is None or first.alias_info is None or not first.alias_info.is_write or len(schema.returns) != 1:
        return False
    if any(argument.alias_info is not None for argument in schema.arguments[1:]):
        return False
    op = _overload(name)
    # Those that change sizes and strides would move a tensor away from its planned place.
    return op is not None and torch.Tag.inplace_view not in op.tags


def _overload(name: str) -> OpOverload | None:
    library, base, overload = _parts(name)
    packet = getattr(getattr(torch.ops, library), base, None)
    return None if packet is None else getattr(packet, overload or "default", None)


def _parts(name: str) -> tuple[str, str, str]:
    """Split `aten::add.out` into library, name and overload, which may be empty."""
    library, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    return library, base, overload


def _schema(name: str) -> torch.FunctionSchema | None:
    # `torch.ops` remembers every name that it was asked for; the look-up in C++ does not.
    base, _, overload = name.partition(".")
    return find_schema(base, overload)


def _composed(name: str) -> Kernel | None:
    """Return an out kernel made of the functional operator and a copy, for libraries without out variants.

    The functional overload of `x.out` is `x`, that of `x.Tensor_out` is `x.Tensor` or, where the library spells it
    so, `x.tensor`. The out arguments come last.
    """
    library, base, overload = _parts(name)
    if overload != "out" and not overload.endswith("_out"):
        return None
    stem = overload.removesuffix("out").removesuffix("_")
    for spelling in dict.fromkeys((stem, stem.lower())):
        functional = f"{library}::{base}.{spelling}" if spelling else f"{library}::{base}"
        schema = _schema(functional)
        op = _overload(functional) if schema is not None else None
        if schema is not None and op is not None and all(str(one.type) == "Tensor" for one in schema.returns):
            return _with_outs(name, schema, op)
    return None


def _with_outs(name: str, schema: torch.FunctionSchema, op: OpOverload) -> Kernel | None:
    slots = slots_of(schema)
    if slots is None or any(slot.is_written for slot in slots):
        return None
    outs = tuple(f"out{number}" for number in range(len(schema.returns)))

    def call(*args: Any, **kwargs: Any) -> None:
        targets = [kwargs.pop(out) for out in outs]
        results = op._op(*args, **kwargs)
        for target, result in zip(targets, results if len(outs) > 1 else (results,), strict=True):
            if result.dtype != target.dtype:
                raise StepFailure("EK653", f"{name} gives {result.dtype}, its out argument is {target.dtype}")
            write_result(result, target)

    return Kernel(
        name=name,
        kind=KernelKind.OUT,
        slots=(*slots, *(out_slot(out) for out in outs)),
        call=call,
        returns=len(outs),
        returns_tensor=True,
    )


# A misspelled name is looked for among those that start alike.
_START: Final = 8


class OperatorRegistry:
    """The operators that a program may call.

    Args:
        eager_quantization: Run quantized operators, and divisions by one number, as torch computes them, instead of as
            the official runtime does.
        deviations: Compute as the official runtime also where its results are not those of torch, which lowering for
            it goes around: all operators of which that is known, or those with the given names (`aten::var`).
    """

    def __init__(self, *, eager_quantization: bool = False, deviations: bool | Collection[str] = False) -> None:
        official = () if eager_quantization else (*quantized_kernels(), *arithmetic_kernels())
        if deviations:
            official += tuple(
                one for one in deviating_kernels() if deviations is True or one.name.partition(".")[0] in deviations
            )
        self._own = {kernel.name: kernel for kernel in (*own_kernels(), *official)}
        self._found: dict[str, Kernel] = {}
        self._known: tuple[dict[str, list[str]], dict[str, list[str]]] | None = None

    @property
    def operator_names(self) -> AbstractSet[str]:
        """Names of all operators that run, `aten::add.out`; a default overload has no suffix."""
        return torch_kernel_names() | self._own.keys()

    def find(self, name: str) -> Kernel | None:
        """Return the kernel of that name, or None."""
        kernel = self._own.get(name) or self._found.get(name)
        # A failure is looked up again: the library may have been imported since.
        if kernel is None:
            kernel = torch_kernel(name)
            if kernel is not None:
                self._found[name] = kernel
        return kernel

    def suggest(self, name: str) -> str | None:
        """Return the known name that is closest to an unknown one, if any is close."""
        if self._known is None:
            self._known = _by_base_and_start(sorted(self.operator_names))
        by_base, by_start = self._known
        siblings = by_base.get(name.partition(".")[0], [])
        # Comparing texts is slow, and malformed files are full of unknown names.
        near = siblings or [one for one in by_start.get(name[:_START], ()) if abs(len(one) - len(name)) < 3]
        close = difflib.get_close_matches(name, near, n=1, cutoff=0.0 if siblings else 0.75)
        return close[0] if close else None


def _by_base_and_start(names: Iterable[str]) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return names by what is before their overload, and by their first letters."""
    by_base: dict[str, list[str]] = {}
    by_start: dict[str, list[str]] = {}
    for name in names:
        by_base.setdefault(name.partition(".")[0], []).append(name)
        by_start.setdefault(name[:_START], []).append(name)
    return by_base, by_start


@cache
def default_registry() -> OperatorRegistry:
    """Return the registry that is used wherever none is given."""
    return OperatorRegistry()
