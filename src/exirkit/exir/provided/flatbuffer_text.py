"""Data classes as JSON, and JSON as flatbuffers of any schema, through the compiler `flatc`."""

from __future__ import annotations

import enum
import json
import os
import re
import shutil
import subprocess
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from exirkit.emit import read_program, restore
from exirkit.ir import UsageError

_UNIONS = (Union, types.UnionType)


class _DataclassEncoder(json.JSONEncoder):
    """Writes data classes as objects, and bytes as lists of numbers.

    A field whose value is one of several data classes gets a companion with the suffix `_type`, which names the class,
    as flatbuffers wants for unions.
    """

    def default(self, o: Any) -> Any:
        """Return what JSON has for an object."""
        if isinstance(o, bytes | bytearray | memoryview):
            return list(bytes(o))
        if not is_dataclass(o):
            return super().default(o)
        written: dict[str, Any] = {}
        kind: Any = type(o)
        for name, (_, is_union) in _fields(kind).items():
            value = getattr(o, name)
            written[name] = value
            if is_union:
                written[f"{name}_type"] = type(value).__name__
        return written


@cache
def _fields(cls: type) -> dict[str, tuple[Any, bool]]:
    """Return the types of the fields of a data class, and whether flatbuffers has a union there.

    Only annotations that are strings are unions of the schema: in others, `Union` is a list of forms of one value.
    """
    hints = get_type_hints(cls)
    return {
        field.name: (hints[field.name], isinstance(field.type, str) and _is_union(hints[field.name]))
        for field in fields(cls)
    }


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in _UNIONS and type(None) not in get_args(hint)


def _json_to_dataclass(json_dict: Any, cls: Any = None) -> Any:
    """Make an object of a data class of the dictionary that `_DataclassEncoder` wrote for it.

    Args:
        json_dict: The dictionary; what is not a dictionary is returned as it is.
        cls: The class.

    Raises:
        TypeError: A field is missing that is not optional.
    """
    if not isinstance(cls, type) or not is_dataclass(cls) or not isinstance(json_dict, Mapping):
        return json_dict
    made = {name: _field_of(json_dict, name, *about) for name, about in _fields(cls).items()}
    return cls(**made)


def _field_of(found: Mapping[str, Any], name: str, hint: Any, is_union: bool) -> Any:
    if is_union:
        kind = next(one for one in get_args(hint) if one.__name__ == found[f"{name}_type"])
        return _json_to_dataclass(found[name], kind)
    if get_origin(hint) in _UNIONS and type(None) in get_args(hint):
        value = found.get(name)
        return None if value is None else _converted(value, get_args(hint)[0])
    if name not in found:
        raise TypeError(f"no value for the field {name}, which is not optional")
    return _converted(found[name], hint)


def _converted(value: Any, hint: Any) -> Any:
    if value is None or is_dataclass(hint):
        return _json_to_dataclass(value, hint)
    if get_origin(hint) is list:
        return [_converted(one, get_args(hint)[0]) for one in value]
    if get_origin(hint) in _UNIONS:
        return value
    if isinstance(hint, enum.EnumMeta):
        return hint[value] if isinstance(value, str) else hint(value)
    return hint(value) if isinstance(hint, type) else value


# Strings are matched to be left alone.
_NOT_FINITE = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN')
_AS_FLATC = {"Infinity": "inf", "-Infinity": "-inf", "NaN": "nan"}


def _flatc_compile(output_dir: str, schema_path: str, json_path: str) -> None:
    """Write a flatbuffer; its name is that of the JSON file with the suffix of the schema.

    Args:
        output_dir: Directory to write to.
        schema_path: Schema; schemas that it includes are beside it.
        json_path: The data, as JSON.

    Raises:
        UsageError: EK762, there is no `flatc`, or it rejects the schema or the data.
    """
    path = Path(json_path)
    text = path.read_text(encoding="utf-8")
    finite = _NOT_FINITE.sub(lambda match: _AS_FLATC.get(match[0], match[0]), text)
    if finite != text:
        path.write_text(finite, encoding="utf-8")
    _run(["--binary", "-o", output_dir, schema_path, json_path])


def _flatc_decompile(
    output_dir: str, schema_path: str, bin_path: str, flatc_additional_args: Sequence[str] | None = None
) -> None:
    """Write a flatbuffer as JSON.

    Args:
        output_dir: Directory to write to.
        schema_path: Schema; schemas that it includes are beside it.
        bin_path: The flatbuffer.
        flatc_additional_args: Options for `flatc`.

    Raises:
        UsageError: EK762, there is no `flatc`, or it rejects the schema or the data.
    """
    options = [*(flatc_additional_args or ()), "--json", "--defaults-json", "--strict-json", "-o", output_dir]
    _run([*options, schema_path, "--", bin_path])


def _run(arguments: list[str]) -> None:
    done = subprocess.run([_flatc(), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise UsageError(code="EK762", message=f"flatc ended with {done.returncode}: {said}")


@cache
def _flatc() -> str:
    """Return the path of the compiler: what `FLATC_EXECUTABLE` says, or the one on the path, or that of the wheel."""
    named = os.environ.get("FLATC_EXECUTABLE") or shutil.which("flatc")
    if named:
        return named
    # The package is only looked for, not imported.
    wheel = find_spec("executorch")
    for folder in (wheel.submodule_search_locations or ()) if wheel else ():
        found = Path(folder, "data", "bin", "flatc")
        if found.is_file():
            return str(found)
    raise UsageError(code="EK762", message="there is no flatc")


def _program_flatbuffer_to_json(program_flatbuffer: bytes) -> bytes:
    """Return the program of a file as JSON, as the data classes of `exirkit.exir.schema` have it."""
    program = restore(read_program(bytes(program_flatbuffer)))
    return program.model_dump_json().encode()
