"""Programs in one zip file for others to see: without weights unless these are asked for, and nothing is unpickled.

A member `bundle.json` says what is in the file; `programs/NAME.json` are the programs in torch's JSON form, and
`tensors/N.bin` the bytes of tensors that are stored. A tensor that is not stored is described by its statistics, and
drawn from these when the bundle is read.
"""

from __future__ import annotations

import json
import math
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import IO, Any

import torch
from torch.export import ExportedProgram

from exirkit.ir import (
    Diagnostic,
    FakeTensor,
    UsageError,
    called_graphs,
    check_stored_program,
    in_memory,
    program_as_json,
    program_from_json,
    pytree,
)

VERSION = 1
_MEMBER = "bundle.json"
# Numbers that are part of the program rather than trained: indices, scales, epsilons.
_FEW = 64
_MOST_BYTES = 1 << 34
_DATE = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class BundledPrograms:
    """What a bundle has.

    Attributes:
        programs: The programs by method; tensors that are not stored are drawn.
        facts: Options, versions and findings, as JSON takes them.
        files: Further files by name.
    """

    programs: dict[str, ExportedProgram]
    facts: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)


def write_bundle(
    file: str | PathLike[str] | IO[bytes],
    programs: Mapping[str, ExportedProgram],
    *,
    facts: Mapping[str, Any] | None = None,
    files: Mapping[str, bytes] | None = None,
    stores_weights: bool = False,
    seed: int = 0,
) -> None:
    """Write programs to a bundle; equal input gives equal bytes.

    Args:
        file: The zip file: a path, or a binary file to write to.
        programs: Exported programs by method.
        facts: What else to say, as JSON takes it.
        files: Further files by name.
        stores_weights: Store the values of all tensors. Otherwise only constants of at most 64 elements are stored,
            and statistics of all others: dtype, sizes, strides, range, mean and deviation.
        seed: Seed of what is drawn when the bundle is read.

    Raises:
        UsageError: EK771, a tensor or an input is of a kind that cannot be stored, or torch cannot write a program.
        OSError: The file cannot be written.
    """
    writer = _Writer(stores_weights)
    described = {name: writer.program(name, program) for name, program in programs.items()}
    document = {"version": VERSION, "seed": seed, "programs": described, "facts": dict(facts or {})}
    members = {f"tensors/{at}.bin": data for at, data in enumerate(writer.tensors)}
    members |= {f"programs/{name}.json": data for name, data in writer.texts.items()}
    members |= {f"files/{name}": data for name, data in (files or {}).items()}
    members[_MEMBER] = json.dumps(document, indent=1).encode()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(members.items()):
            archive.writestr(zipfile.ZipInfo(name, _DATE), data, zipfile.ZIP_DEFLATED)


def read_bundle(path: str | PathLike[str]) -> BundledPrograms:
    """Read a bundle. It may come from anyone: nothing in it is unpickled or run.

    Raises:
        UsageError: EK772, it is not a bundle, it is damaged, or something in it is not allowed.
        OSError: It cannot be read.
    """
    with open(path, "rb") as file:
        try:
            members = _members(file)
            document = json.loads(members[_MEMBER])
            _require(document["version"] == VERSION, f"its version is {document['version']}, not {VERSION}")
            reader = _Reader(members, int(document["seed"]))
            programs = {name: reader.program(name, one) for name, one in document["programs"].items()}
            _require(isinstance(facts := document["facts"], dict), "its facts have no names")
        except Exception as error:
            what = f"{path} is not a bundle of programs, or is damaged: {type(error).__name__}: {error}"
            raise UsageError(Diagnostic.of("EK772", what[:400])) from error
    files = {name.removeprefix("files/"): data for name, data in members.items() if name.startswith("files/")}
    return BundledPrograms(programs, facts, files)


def _members(file: IO[bytes]) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        _require(sum(one.file_size for one in archive.infolist()) <= _MOST_BYTES, "it unpacks to more than 16 GiB")
        return {one.filename: archive.read(one) for one in archive.infolist()}


def _require(holds: bool, message: str) -> None:
    """Raise ValueError with a message unless something holds."""
    if not holds:
        raise ValueError(message)


class _Writer:
    """Describes programs and collects their bytes."""

    def __init__(self, stores_weights: bool) -> None:
        self.tensors: list[bytes] = []
        self.texts: dict[str, bytes] = {}
        self._places: dict[Any, str] = {}
        self._stores_weights = stores_weights

    def program(self, name: str, program: ExportedProgram) -> dict[str, Any]:
        """Return the description of a program."""
        if not re.fullmatch(r"\w+", name):
            raise _unstorable(f"the name of method {name!r} is not a plain word")
        try:
            text = json.loads(program_as_json(program))
        except Exception as error:
            raise _unstorable(f"torch cannot write method {name}: {type(error).__name__}: {error}"[:300]) from error
        # Conditions as Python code: they guard calls of the module, and are not needed to lower it.
        text["guards_code"] = []
        self.texts[name] = json.dumps(text).encode()
        leaves = None if program.example_inputs is None else pytree.tree_leaves(program.example_inputs)
        return {
            "state": {
                key: self._value(f"{name}.{key}", one, is_weight=True) for key, one in program.state_dict.items()
            },
            "constants": {key: self._value(f"{name}.{key}", one) for key, one in program.constants.items()},
            "inputs": None
            if leaves is None
            else [self._value(f"{name} input {at}", one, is_weight=True) for at, one in enumerate(leaves)],
        }

    def _value(self, what: str, value: Any, *, is_weight: bool = False) -> Any:
        if not isinstance(value, torch.Tensor):
            if value is None or isinstance(value, bool | int | str):
                return {"value": value}
            if isinstance(value, float):
                return {"float": value.hex() if math.isfinite(value) else str(value)}
            raise _unstorable(f"{what} is a {type(value).__name__}")
        value = in_memory(value)
        if isinstance(value, FakeTensor) or type(value) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
            raise _unstorable(f"{what} is a {type(value).__name__}")
        if value.layout is not torch.strided or value.is_quantized or value.device.type != "cpu":
            raise _unstorable(f"{what} is a tensor of layout {value.layout} on {value.device}")
        plain = value.detach()
        place = (value.data_ptr(), value.shape, value.stride(), value.dtype)
        if value.numel() and self._places.setdefault(place, what) != what:
            return {"same": self._places[place]}
        found: dict[str, Any] = {
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "stride": list(value.stride()),
            "gradient": value.requires_grad,
            "parameter": isinstance(value, torch.nn.Parameter),
        }
        if self._stores_weights or (not is_weight and value.numel() <= _FEW):
            data = plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
            self.tensors.append(data)
            return {**found, "stored": len(self.tensors) - 1}
        return {**found, "statistics": _statistics(plain)}


def _statistics(tensor: torch.Tensor) -> dict[str, Any]:
    """Return what random values are drawn from."""
    if not tensor.numel() or tensor.is_complex():
        return {}
    values = tensor.to(torch.float64)
    finite = values[values.isfinite()]
    if not finite.numel():
        return {"nan": int(values.isnan().sum()), "infinite": int(values.isinf().sum())}
    return {
        "least": float(finite.min()).hex(),
        "most": float(finite.max()).hex(),
        "mean": float(finite.mean()).hex(),
        "deviation": float(finite.std(correction=0)).hex(),
        "zeros": int((finite == 0).sum()),
        "nan": int(values.isnan().sum()),
        "infinite": int(values.isinf().sum()),
    }


class _Reader:
    """Makes programs of their descriptions."""

    def __init__(self, members: Mapping[str, bytes], seed: int) -> None:
        self._members = members
        self._seed = seed
        self._made: dict[str, torch.Tensor] = {}

    def program(self, name: str, described: Mapping[str, Any]) -> ExportedProgram:
        """Return a program."""
        text = self._members[f"programs/{name}.json"]
        document = json.loads(text)
        check_stored_program(document)
        _check_sizes(document["graph_module"], described)
        state = {key: self._value(f"{name}.{key}", one) for key, one in described["state"].items()}
        constants = {key: self._value(f"{name}.{key}", one) for key, one in described["constants"].items()}
        program = program_from_json(text, state, constants, None)
        for module in called_graphs(program.graph_module):
            for node in module.graph.nodes:
                if isinstance(node.target, str) and node.op == "call_function":
                    raise ValueError(f"there is no operator {node.target}")
        if described["inputs"] is not None:
            leaves = [self._value(f"{name} input {at}", one) for at, one in enumerate(described["inputs"])]
            program._example_inputs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
        return program

    def _value(self, what: str, described: Mapping[str, Any]) -> Any:
        if "value" in described:
            return described["value"]
        if "float" in described:
            text = described["float"]
            return float.fromhex(text) if "x" in text else float(text)
        if "same" not in described:
            self._made[what] = self._tensor(what, described)
        return self._made[described.get("same", what)]

    def _tensor(self, what: str, described: Mapping[str, Any]) -> torch.Tensor:
        dtype = getattr(torch, described["dtype"])
        shape, stride = described["shape"], described["stride"]
        if not isinstance(dtype, torch.dtype) or len(shape) != len(stride):
            raise ValueError(f"{what} has no type")
        count = math.prod(shape)
        if not 0 <= count * dtype.itemsize <= _MOST_BYTES or min([*shape, *stride], default=0) < 0:
            raise ValueError(f"{what} is too large")
        if "stored" in described:
            data = bytearray(self._members[f"tensors/{int(described['stored'])}.bin"])
            if len(data) != count * dtype.itemsize:
                raise ValueError(f"{what} has {len(data)} bytes")
            flat = torch.frombuffer(data, dtype=torch.uint8).view(dtype) if count else torch.empty(0, dtype=dtype)
        else:
            flat = _drawn(count, dtype, described["statistics"], self._seed + zlib.crc32(what.encode()))
        if count and 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True)) > 4 * count:
            raise ValueError(f"{what} has the strides {stride}")
        made = torch.empty_strided(shape, stride, dtype=dtype).copy_(flat.reshape(shape))
        if described["parameter"]:
            return torch.nn.Parameter(made, requires_grad=bool(described["gradient"]))
        return made.requires_grad_(bool(described["gradient"])) if dtype.is_floating_point else made


_STORED_NAMES = ("parameter_name", "buffer_name", "tensor_constant_name")


def _check_sizes(graph_module: Mapping[str, Any], described: Mapping[str, Any]) -> None:
    """Raise ValueError unless tensors are described with the sizes that the program has, before any is drawn."""
    values = graph_module["graph"]["tensor_values"]
    stored = {**described["state"], **described["constants"]}
    given = iter(described["inputs"] or ())
    for (kind, entry), *_ in (list(spec.items()) for spec in graph_module["signature"]["input_specs"]):
        key = next((entry[name] for name in _STORED_NAMES if name in entry), None)
        one = next(given, None) if kind in ("user_input", "constant_input") else stored.get(key)
        argument = entry.get("arg", {})
        value = values.get(argument.get("name", argument.get("as_tensor", {}).get("name")))
        if one is None or value is None or "shape" not in one:
            continue
        sizes = [_traced_size(size) for size in value["sizes"]]
        agrees = len(sizes) == len(one["shape"]) and all(
            wanted is None or wanted == size for wanted, size in zip(sizes, one["shape"], strict=True)
        )
        _require(agrees, f"{key or kind} has the sizes {one['shape']}, and {sizes} in the program"[:200])


def _traced_size(size: Mapping[str, Any]) -> int | None:
    """Return a size with which a program was traced; None if it does not say that."""
    if "as_int" in size:
        return int(size["as_int"])
    return ((size.get("as_expr") or {}).get("hint") or {}).get("as_int")


def _drawn(count: int, dtype: torch.dtype, statistics: Mapping[str, Any], seed: int) -> torch.Tensor:
    """Return random values of the same range, mean and deviation, and with as many zeros, NaN and infinities."""
    generator = torch.Generator().manual_seed(seed % (1 << 63))
    if "least" not in statistics:
        values = torch.zeros(count, dtype=torch.float64)
    else:
        least, most, mean, deviation = (
            float.fromhex(statistics[key]) for key in ("least", "most", "mean", "deviation")
        )
        values = torch.randn(count, generator=generator, dtype=torch.float64) * deviation + mean
        if not dtype.is_floating_point:
            values = values.round()
        values = values.clamp(least, most)
    order = torch.randperm(count, generator=generator)
    for key, value in (("zeros", 0.0), ("nan", math.nan), ("infinite", math.inf)):
        number = int(statistics.get(key, 0))
        values[order[:number]] = value
        order = order[number:]
    # Both ends of the range occur, so that what depends on the range stays as it was.
    if "least" in statistics and len(order) >= 2:
        values[order[0]], values[order[1]] = least, most
    return values.to(dtype)


def _unstorable(what: str) -> UsageError:
    return UsageError(Diagnostic.of("EK771", f"a bundle cannot have this program: {what}"))
