"""Element types of the `.pte` format and the torch dtypes they stand for."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import torch

from exirkit.ir import Diagnostic, ModelError


class ScalarType(IntEnum):
    """Element type of a tensor; the numbers are those of the format (and of torch's C++ `ScalarType`)."""

    BYTE = 0
    CHAR = 1
    SHORT = 2
    INT = 3
    LONG = 4
    HALF = 5
    FLOAT = 6
    DOUBLE = 7
    BOOL = 11
    QINT8 = 12
    QUINT8 = 13
    QINT32 = 14
    BFLOAT16 = 15
    QUINT4X2 = 16
    QUINT2X4 = 17
    BITS16 = 22
    FLOAT8E5M2 = 23
    FLOAT8E4M3FN = 24
    FLOAT8E5M2FNUZ = 25
    FLOAT8E4M3FNUZ = 26
    UINT16 = 27
    UINT32 = 28
    UINT64 = 29

    @classmethod
    def from_dtype(cls, dtype: torch.dtype) -> ScalarType:
        """Return the element type that stands for `dtype`.

        Raises:
            ModelError: EK501 if the format has no such element type.
        """
        found = _FROM_DTYPE.get(dtype)
        if found is None:
            raise ModelError(
                Diagnostic(
                    code="EK501",
                    message=f"the .pte format has no element type for {dtype}",
                    expected=", ".join(str(known).removeprefix("torch.") for known in _FROM_DTYPE),
                    hint="cast the tensor to a supported dtype before lowering",
                )
            )
        return found

    @property
    def dtype(self) -> torch.dtype:
        """The torch dtype."""
        return _DTYPES[self]

    @property
    def itemsize(self) -> int:
        """Size of one element in bytes."""
        return _DTYPES[self].itemsize


_DTYPES: Final[dict[ScalarType, torch.dtype]] = {
    ScalarType.BYTE: torch.uint8,
    ScalarType.CHAR: torch.int8,
    ScalarType.SHORT: torch.int16,
    ScalarType.INT: torch.int32,
    ScalarType.LONG: torch.int64,
    ScalarType.HALF: torch.float16,
    ScalarType.FLOAT: torch.float32,
    ScalarType.DOUBLE: torch.float64,
    ScalarType.BOOL: torch.bool,
    ScalarType.QINT8: torch.qint8,
    ScalarType.QUINT8: torch.quint8,
    ScalarType.QINT32: torch.qint32,
    ScalarType.BFLOAT16: torch.bfloat16,
    ScalarType.QUINT4X2: torch.quint4x2,
    ScalarType.QUINT2X4: torch.quint2x4,
    ScalarType.BITS16: torch.bits16,
    ScalarType.FLOAT8E5M2: torch.float8_e5m2,
    ScalarType.FLOAT8E4M3FN: torch.float8_e4m3fn,
    ScalarType.FLOAT8E5M2FNUZ: torch.float8_e5m2fnuz,
    ScalarType.FLOAT8E4M3FNUZ: torch.float8_e4m3fnuz,
    ScalarType.UINT16: torch.uint16,
    ScalarType.UINT32: torch.uint32,
    ScalarType.UINT64: torch.uint64,
}
_FROM_DTYPE: Final[dict[torch.dtype, ScalarType]] = {dtype: scalar for scalar, dtype in _DTYPES.items()}
