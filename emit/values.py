"""Values of a program: what methods share, the value table of each plan, arguments of calls as indices into it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from hashlib import blake2b, sha256
from typing import Any, TypeVar, cast

import torch
from torch.fx import Node

from exirkit.ir import (
    DeferredTensor,
    Delegate,
    Diagnostic,
    FakeTensor,
    Location,
    ModelError,
    TensorSpec,
    bytes_of,
    element_blocks,
    end_bytes,
    locate,
    memory_key,
    pytree,
)

from .flatbuffer import Content, StreamedBytes, Table
from .schema import (
    FORCE_ALIGN_BYTES,
    AllocationDetails,
    BackendDelegate,
    BackendDelegateDataReference,
    BackendDelegateInlineData,
    Bool,
    BoolList,
    Buffer,
    CompileSpec,
    Double,
    DoubleList,
    EValue,
    ExtraTensorInfo,
    Int,
    IntList,
    Null,
    OptionalTensorList,
    ScalarType,
    String,
    Tensor,
    TensorList,
)
from .segments import NamedBlob, TensorLayout

# Bytes at the start and end of a constant that are compared before anything is hashed.
_SAMPLE_NBYTES = 256
# Contents that lie otherwise in memory are copied at once if they have fewer bytes.
_STREAMED_NBYTES = 1 << 18


class ConstantPool:
    """Buffers with contents of their own; entry 0 is reserved for "no data".

    Equal contents are stored once, also across methods. Tensors that share memory are recognised by their address;
    others are hashed only when size, start and end agree with those of a constant that is there already.

    Attributes:
        buffers: The contents, in the order in which they were added.
    """

    def __init__(self) -> None:
        self.buffers: list[Buffer] = [Buffer()]
        self._by_place: dict[tuple[Any, ...], int] = {}
        self._by_sample: dict[tuple[int, bytes], list[int]] = {}
        self._digests: dict[int, bytes] = {}
        # Addresses are unique only as long as the memory behind them is there.
        self._kept: list[torch.Tensor] = []

    def add(self, tensor: torch.Tensor, dim_order: Sequence[int], name: str) -> int:
        """Return the index of the buffer that holds a tensor.

        Args:
            tensor: Real tensor of any strides; copied only if it is not dense in `dim_order`.
            dim_order: Order of dims in which its elements are stored.
            name: What the tensor is called, for messages.

        Raises:
            ModelError: EK554, the tensor has no data.
        """
        _check_real(tensor, name)
        where = (memory_key(tensor), tensor.storage_offset())
        place = (*where, tensor.dtype, tuple(tensor.shape), tensor.stride(), tuple(dim_order))
        if tensor.numel() and place in self._by_place:
            return self._by_place[place]
        index = self._of_contents(streamed_contents(tensor, dim_order))
        self._by_place[place] = index
        self._kept.append(tensor)
        return index

    def append(self, data: Content) -> int:
        """Store contents without looking for equal ones, and return their index."""
        # Readers of files see bytes in memory; only what is emitted may be streamed.
        self.buffers.append(Buffer(storage=cast(bytes, data)))
        return len(self.buffers) - 1

    def _of_contents(self, data: Content) -> int:
        sample = (len(data), bytes(data[:_SAMPLE_NBYTES]) + bytes(data[-_SAMPLE_NBYTES:]))
        alike = self._by_sample.setdefault(sample, [])
        if alike and len(data) <= 2 * _SAMPLE_NBYTES:
            return alike[0]
        for index in alike:
            if self._digest(index) == _hashed(data):
                return index
        alike.append(self.append(data))
        return alike[-1]

    def _digest(self, index: int) -> bytes:
        if index not in self._digests:
            self._digests[index] = _hashed(self.buffers[index].storage)
        return self._digests[index]


def contents(tensor: torch.Tensor, dim_order: Sequence[int]) -> memoryview:
    """Return the bytes of a tensor's elements in the given order of dims: a view of its memory where they lie so."""
    ordered = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dim() != 0:
        ordered = ordered.permute(tuple(dim_order))
    flat = ordered.contiguous().reshape(-1)
    if flat.numel() < 2:
        # One element or none is contiguous with any stride, but seen as bytes only with stride 1.
        flat = flat.as_strided((flat.numel(),), (1,))
    data: Any = flat.view(torch.uint8).numpy()
    return memoryview(data)


class StreamedContents(StreamedBytes):
    """The bytes of a tensor's elements in an order of dims in which they do not lie in memory.

    Args:
        tensor: The tensor, in memory or deferred.
        dim_order: The order, from the outermost dim to the innermost.
    """

    def __init__(self, tensor: torch.Tensor, dim_order: Sequence[int]) -> None:
        self._tensor = tensor.detach()
        self._order = tuple(dim_order)
        self._nbytes = tensor.numel() * tensor.element_size()

    def __len__(self) -> int:
        """Return the number of bytes."""
        return self._nbytes

    def __getitem__(self, index: Any) -> Any:
        """Return a byte, or a range of bytes; those at both ends are had without computing the others."""
        if not isinstance(index, slice):
            at = range(len(self))[index]
            return self[at : at + 1][0]
        start, stop, step = index.indices(len(self))
        first, last = self._ends
        if stop <= len(first):
            return first[start:stop:step]
        if start >= len(self) - len(last):
            return last[start - len(self) + len(last) : stop - len(self) + len(last) : step]
        size = self._tensor.element_size()
        elements = element_blocks(self._tensor, self._order, start // size, -(-stop // size))
        found = b"".join(bytes(bytes_of(one)) for one in elements)
        return found[start % size : start % size + max(0, stop - start)][::step]

    def blocks(self) -> Iterator[memoryview]:
        """Yield all bytes in order."""
        yield from map(bytes_of, element_blocks(self._tensor, self._order))

    @cached_property
    def _ends(self) -> tuple[bytes, bytes]:
        return end_bytes(self._tensor, self._order)


def streamed_contents(tensor: torch.Tensor, dim_order: Sequence[int]) -> Content:
    """Return the bytes of a tensor's elements: a view of its memory where they lie so, or made when they are read."""
    if not isinstance(tensor, DeferredTensor):
        small = tensor.numel() * tensor.element_size() < _STREAMED_NBYTES
        if small or tensor.is_conj() or tensor.is_neg() or tensor.device.type != "cpu":
            return contents(tensor, dim_order)
        if tensor.dim() == 0 or tensor.permute(tuple(dim_order)).is_contiguous():
            return contents(tensor, dim_order)
    return StreamedContents(tensor, dim_order)


def is_all_zero(data: Content) -> bool:
    """Return whether contents are nothing but zero bytes; minus zero is not."""
    blocks = data.blocks() if isinstance(data, StreamedBytes) else (data,)
    return not any(bool(torch.frombuffer(one, dtype=torch.uint8).any()) for one in blocks if len(one))


def _hashed(data: Content) -> bytes:
    found = blake2b(digest_size=32)
    for one in data.blocks() if isinstance(data, StreamedBytes) else (data,):
        found.update(one)
    return found.digest()


def _check_real(tensor: torch.Tensor, name: str) -> None:
    if isinstance(tensor, FakeTensor) or tensor.is_meta:
        raise ModelError(
            Diagnostic.of(
                "EK554",
                f"{name} has no data",
                location=Location(text=f"{name}: {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"),
                expected="a tensor in memory; this one is fake or on the meta device",
                hint="load the weights before exporting",
            )
        )


@dataclass
class DelegatePool:
    """What the delegates of all methods share.

    Attributes:
        payloads: What backends have made, each content once.
        named_data: Data that delegates find by a key.
        external_data: The same, in data files beside the program, by the name of the file.
    """

    payloads: list[BackendDelegateInlineData] = field(default_factory=list)
    named_data: dict[str, NamedBlob] = field(default_factory=dict)
    external_data: dict[str, dict[str, NamedBlob]] = field(default_factory=dict)
    _numbers: dict[bytes, int] = field(default_factory=dict)

    def entry(self, delegate: Delegate) -> BackendDelegate:
        """Return the entry of a call, and store what it needs.

        Raises:
            ModelError: EK561, another delegate has other data under the same key.
        """
        data = delegate.processed_bytes
        key = sha256(data).digest()
        if key not in self._numbers:
            self._numbers[key] = len(self.payloads)
            self.payloads.append(BackendDelegateInlineData(data=data))
        self._store(delegate.backend_id, delegate.named_data, self.named_data)
        for file, named in delegate.external_data.items():
            self._store(delegate.backend_id, named, self.external_data.setdefault(file, {}))
        return BackendDelegate(
            id=delegate.backend_id,
            processed=BackendDelegateDataReference(index=self._numbers[key]),
            compile_specs=[CompileSpec(key=spec.key, value=spec.value) for spec in delegate.compile_specs],
        )

    @staticmethod
    def _store(backend: str, named: Mapping[str, bytes], stored: dict[str, NamedBlob]) -> None:
        for key, data in named.items():
            known = stored.setdefault(key, NamedBlob(data))
            if known.data != data:
                raise ModelError(
                    Diagnostic.of(
                        "EK561",
                        f"two delegates have different data under the key {key!r}",
                        notes=(f"the second is of backend {backend}",),
                    )
                )


class ExternalConstants:
    """Constants that lie in data files, by their names; equal contents are stored once in a file.

    Attributes:
        files: Entries by key, by the name of the file, without the suffix.
    """

    def __init__(self) -> None:
        self.files: dict[str, dict[str, NamedBlob]] = {}

    def add(self, file: str, name: str, tensor: torch.Tensor, spec: TensorSpec) -> None:
        """Store a constant.

        Raises:
            ModelError: EK533, another constant has the same name; EK554, the tensor has no data.
        """
        _check_real(tensor, name)
        layout = TensorLayout(
            scalar_type=ScalarType.from_dtype(spec.dtype),
            sizes=[int(size) for size in spec.shape],
            dim_order=list(spec.dim_order),
        )
        blob = NamedBlob(streamed_contents(tensor, spec.dim_order), FORCE_ALIGN_BYTES, layout)
        known = self.files.setdefault(file.removesuffix(".ptd"), {}).setdefault(name, blob)
        if known is not blob and (known.layout != layout or known.data != blob.data):
            raise ModelError(
                Diagnostic.of("EK533", f"two different constants are called {name!r}", notes=(f"data file {file}",))
            )


@dataclass
class ProgramState:
    """What all methods of a program share.

    Attributes:
        emit_mutable_buffer_names: Store the names of mutable buffers.
        constants: Contents of constants.
        initial_values: Initial contents of mutable buffers.
        delegates: What backends have made.
        file_of_constant: Returns the name of the data file for the constant behind a placeholder, None for the program.
        external: Constants in data files.
    """

    emit_mutable_buffer_names: bool = False
    constants: ConstantPool = field(default_factory=ConstantPool)
    initial_values: ConstantPool = field(default_factory=ConstantPool)
    delegates: DelegatePool = field(default_factory=DelegatePool)
    file_of_constant: Callable[[Node], str | None] = lambda _node: None
    external: ExternalConstants = field(default_factory=ExternalConstants)

    def external_data(self) -> dict[str, dict[str, NamedBlob]]:
        """Return the entries of all data files.

        Raises:
            ModelError: EK561, a delegate and a constant have different data under one key.
        """
        files = {file: dict(entries) for file, entries in self.external.files.items()}
        for file, entries in self.delegates.external_data.items():
            stored = files.setdefault(file.removesuffix(".ptd"), {})
            for key, blob in entries.items():
                if stored.setdefault(key, blob).data != blob.data:
                    message = f"a delegate and a constant have different data under the key {key!r}"
                    raise ModelError(Diagnostic.of("EK561", message, notes=(f"data file {file}",)))
        return files


TableT = TypeVar("TableT", bound=Table)

_set = object.__setattr__
_MEMORY_FORMATS = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}


def make_table(kind: type[TableT], **fields: Any) -> TableT:
    """Return a table that is equal to `kind(**fields)`; fields without a value get their default."""
    made = kind.__new__(kind)
    _set(made, "__dict__", {**_defaults(kind), **fields})
    _set(made, "__pydantic_fields_set__", set(fields))
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made


@cache
def _defaults(kind: type[Table]) -> dict[str, Any]:
    """Return the defaults of the fields that have one that is shared: all but lists and tables."""
    fields = kind.model_fields.items()
    return {name: field.default for name, field in fields if not field.is_required() and field.default_factory is None}


class ValueTable:
    """Values in the order in which they were added.

    Constants (numbers, texts, `None`, and lists of them) are stored once each, since no instruction changes them.
    Values that are inputs, or that instructions write, have entries of their own.

    Attributes:
        values: The table.
    """

    def __init__(self) -> None:
        self.values: list[EValue] = []
        self._constants: dict[Any, int] = {}
        self._empty_tensor: int | None = None

    def new(self, member: Any) -> int:
        """Add a value that nothing else shares and return its index."""
        self.values.append(make_table(EValue, val=member))
        return len(self.values) - 1

    def constant(self, value: Any) -> int | None:
        """Return the index of a constant: a number, a text, None, a dtype, a layout or a memory format.

        Returns:
            The index, or None if the format has no such value.
        """
        key = (type(value), value.hex() if isinstance(value, float) else value)
        known = self._constants.get(key)
        if known is None:
            member = constant_member(value)
            if member is None:
                return None
            if type(member) is Int and type(value) is not int:
                known = self.constant(member.int_val)
            else:
                known = self.new(member)
            assert known is not None
            self._constants[key] = known
        return known

    def integers(self, items: Sequence[int]) -> int:
        """Return the index of the list of the `Int` values with these indices."""
        return self._list(IntList, items)

    def floats(self, items: Sequence[float]) -> int:
        """Return the index of a list of floats."""
        return self._list(DoubleList, items, [item.hex() for item in items])

    def flags(self, items: Sequence[bool]) -> int:
        """Return the index of a list of bools."""
        return self._list(BoolList, items)

    def tensors(self, items: Sequence[int]) -> int:
        """Return the index of the list of the `Tensor` values with these indices."""
        return self._list(TensorList, items)

    def optional_tensors(self, items: Sequence[int]) -> int:
        """Return the index of the list of the `Tensor` values with these indices, -1 for none."""
        return self._list(OptionalTensorList, items)

    def empty_tensor(self) -> int:
        """Return the index of the tensor that stands for None where an operator wants a tensor."""
        if self._empty_tensor is None:
            self._empty_tensor = self.new(Tensor(scalar_type=ScalarType.BYTE, sizes=[0], dim_order=[0]))
        return self._empty_tensor

    def _list(self, kind: Any, items: Sequence[Any], identity: Sequence[Any] | None = None) -> int:
        key = (kind, tuple(items if identity is None else identity))
        known = self._constants.get(key)
        if known is None:
            known = self._constants[key] = self.new(kind(items=list(items)))
        return known


def constant_member(value: Any) -> Any:
    """Return the schema's form of a constant, or None if it has none."""
    match value:
        case None:
            return Null()
        case bool():
            return Bool(bool_val=value)
        case int():
            return Int(int_val=value) if -(2**63) <= value < 2**63 else None
        case float():
            return Double(double_val=value)
        case str():
            return String(string_val=value)
        case torch.dtype():
            return Int(int_val=ScalarType.from_dtype(value))
        case torch.layout():
            return Int(int_val=0) if value is torch.strided else None
        case torch.memory_format():
            return Int(int_val=_MEMORY_FORMATS[value])
        case torch.device():
            return Int(int_val=0) if value.type == "cpu" else None
    return None


def tensor_value(
    spec: TensorSpec, *, data_buffer_idx: int = 0, is_planned: bool = True, extra: ExtraTensorInfo | None = None
) -> Tensor:
    """Return the schema's form of a tensor.

    Args:
        spec: Type, layout and place.
        data_buffer_idx: Index of its (initial) contents, 0 for none.
        is_planned: Whether the place counts; constants have none.
        extra: What only few tensors need.

    Raises:
        ModelError: EK501, no such element type; EK557, not a dense tensor.
    """
    if spec.layout is not torch.strided:
        raise ModelError(Diagnostic.of("EK557", f"a tensor of layout {spec.layout} cannot be stored"))
    place = None
    if is_planned and spec.mem_id is not None and spec.mem_offset is not None:
        low, high = spec.mem_offset & 0xFFFFFFFF, spec.mem_offset >> 32
        place = make_table(AllocationDetails, memory_id=spec.mem_id, memory_offset_low=low, memory_offset_high=high)
    return make_table(
        Tensor,
        scalar_type=ScalarType.from_dtype(spec.dtype),
        sizes=[int(size) for size in spec.shape],
        dim_order=list(spec.dim_order),
        requires_grad=bool(spec.requires_grad),
        data_buffer_idx=data_buffer_idx,
        allocation_info=place,
        shape_dynamism=spec.shape_dynamism,
        extra_tensor_info=extra,
    )


_PROTOCOL = 1


def container_text(spec: pytree.TreeSpec | None) -> str:
    """Return a pytree spec as JSON: `[1, {"type": ..., "context": ..., "children_spec": [...]}]`.

    Source: the text that `torch.utils._pytree.treespec_dumps` writes; a container type that is not registered for
        that is
    written under its own name.
    """
    return "" if spec is None else json.dumps([_PROTOCOL, _tree(spec)])


def _tree(spec: pytree.TreeSpec) -> dict[str, Any]:
    if spec.is_leaf():
        return {"type": None, "context": None, "children_spec": []}
    return {
        "type": f"{spec.type.__module__}.{spec.type.__qualname__}",
        "context": json.dumps(_context(spec.context)),
        "children_spec": [_tree(child) for child in spec.children()],
    }


def _context(context: Any) -> Any:
    """Return what of a context can be written: keys of mappings, or null."""
    if context is None or isinstance(context, bool | int | float | str):
        return context
    if isinstance(context, list | tuple):
        return [_context(item) for item in context]
    return None


Ids = int | Sequence[int | None]
"""Where the value of a node is: one index, or one for each element of a sequence."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a schema.

    Attributes:
        name: Its name.
        kind: `tensor`, `int`, `float`, `bool`, `number` or another type's name; the type of elements for a list.
        is_list: Whether a list is wanted.
        length: Number of elements to which a single one is repeated, None if a single one makes a list of one.
        allows_none: Whether an element (of a list) or the argument may be None.
        is_keyword: Whether it goes by name only.
        is_out: Whether the operator writes its result there.
        default: Value where the call leaves it out.
    """

    name: str
    kind: str
    is_list: bool
    length: int | None
    allows_none: bool
    is_keyword: bool
    is_out: bool
    default: Any


_KINDS = {
    "TensorType": "tensor",
    "IntType": "int",
    "SymIntType": "int",
    "FloatType": "float",
    "BoolType": "bool",
    "NumberType": "number",
}


@cache
def parameters(op: Any) -> tuple[Parameter, ...]:
    """Return the arguments that an operator takes, in the order in which a kernel gets them."""
    return tuple(_parameter(argument) for argument in op._schema.arguments)


def _parameter(argument: Any) -> Parameter:
    kind, allows_none = argument.type, False
    if isinstance(kind, torch.OptionalType):
        kind, allows_none = kind.getElementType(), True
    is_list = isinstance(kind, torch.ListType)
    if is_list:
        kind, allows_none = kind.getElementType(), False
        if isinstance(kind, torch.OptionalType):
            kind, allows_none = kind.getElementType(), True
    return Parameter(
        name=argument.name,
        kind=_KINDS.get(type(kind).__name__, str(kind)),
        is_list=is_list,
        length=argument.N,
        allows_none=allows_none,
        is_keyword=argument.kwarg_only,
        is_out=argument.is_out,
        default=argument.default_value if argument.has_default_value() else None,
    )


def call_values(node: Node, op: Any) -> list[tuple[Parameter, Any]]:
    """Return each parameter of an operator with what a call gives for it."""
    given, named = node.args, node.kwargs
    result: list[tuple[Parameter, Any]] = []
    for position, parameter in enumerate(parameters(op)):
        if not parameter.is_keyword and position < len(given):
            result.append((parameter, given[position]))
        else:
            result.append((parameter, named.get(parameter.name, parameter.default)))
    return result


class ArgumentWriter:
    """Turns arguments into indices of values.

    Args:
        values: Table to which constants and lists are added.
        ids: Where the value of each node is.
    """

    def __init__(self, values: ValueTable, ids: Mapping[Node, Ids]) -> None:
        self._values = values
        self._ids = ids

    def write(self, node: Node, parameter: Parameter, value: Any) -> int:
        """Return the index of one argument.

        Args:
            node: The call, for messages.
            parameter: What the schema wants.
            value: A node, a constant, or a list of them.

        Raises:
            ModelError: EK552, the value has no place in the format.
        """
        found = self._list(node, parameter, value) if parameter.is_list else self._single(parameter, value)
        if found is None:
            raise ModelError(_no_such_value(node, parameter, value))
        return found

    def _single(self, parameter: Parameter, value: Any) -> int | None:
        if isinstance(value, Node):
            found = self._ids[value]
            return found if isinstance(found, int) else None
        if parameter.kind == "tensor" and value is not None:
            return None
        if parameter.kind == "tensor" and not parameter.allows_none:
            return self._values.empty_tensor()
        if parameter.kind == "float" and isinstance(value, int):
            value = float(value)
        return self._values.constant(value)

    def _list(self, node: Node, parameter: Parameter, value: Any) -> int | None:
        if value is None:
            return self._values.constant(None)
        if isinstance(value, Node):
            found = self._ids[value]
            if isinstance(found, int):
                items: Sequence[Any] = [value]
            else:
                return self._values.tensors([one for one in found if one is not None])
        elif isinstance(value, list | tuple):
            items = value
        else:
            items = [value] * (parameter.length or 1)
        return self._items(parameter, items)

    def _items(self, parameter: Parameter, items: Sequence[Any]) -> int | None:
        if parameter.kind == "tensor":
            ids = [-1 if item is None else self._single(parameter, item) for item in items]
            if any(one is None for one in ids):
                return None
            known = [one for one in ids if one is not None]
            return self._values.optional_tensors(known) if parameter.allows_none else self._values.tensors(known)
        if parameter.kind == "int":
            numbers = [self._single(parameter, item) for item in items]
            known = [one for one in numbers if one is not None]
            return self._values.integers(known) if len(known) == len(numbers) else None
        # Floats and bools are stored in the list itself, so none of them can be computed at run time.
        if any(not isinstance(item, bool | int | float) for item in items):
            return None
        if parameter.kind == "bool":
            return self._values.flags([bool(item) for item in items])
        return self._values.floats([float(item) for item in items]) if parameter.kind == "float" else None


def _no_such_value(node: Node, parameter: Parameter, value: Any) -> Diagnostic:
    what = f"%{value.name}" if isinstance(value, Node) else repr(value)
    wanted = f"a list of {parameter.kind}" if parameter.is_list else parameter.kind
    return Diagnostic.of(
        "EK552",
        f"{what} cannot be stored as argument `{parameter.name}` of {node.target}",
        location=locate(node),
        expected=wanted,
    )
