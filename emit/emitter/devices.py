"""Arenas that are not in the memory of the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch.fx import GraphModule

from exirkit.emit.schema import DeviceType, EValue, ExtraTensorInfo, NonConstBufferDevice, Tensor

from .tables import make_table


def arena_devices(graph_module: GraphModule) -> list[NonConstBufferDevice] | None:
    """Return the devices of the arenas of a method that are elsewhere; None if all are in the memory of the CPU.

    Memory planning leaves them in `meta["non_const_buffer_device"]`, by the number of the arena: `cuda:1`.
    """
    said: Mapping[int, str] = graph_module.meta.get("non_const_buffer_device") or {}
    found = []
    for arena, device in sorted(said.items()):
        kind, _, index = device.partition(":")
        found.append(
            make_table(
                NonConstBufferDevice,
                buffer_idx=arena,
                device_type=DeviceType[kind.upper()],
                device_index=int(index or 0),
            )
        )
    return found or None


def mark_devices(values: Sequence[EValue], devices: Sequence[NonConstBufferDevice] | None) -> None:
    """Let every planned tensor say on which device it is, if that is not the CPU."""
    by_arena = {device.buffer_idx: device for device in devices or ()}
    for value in values if by_arena else ():
        tensor = value.val
        if not isinstance(tensor, Tensor) or tensor.allocation_info is None:
            continue
        device = by_arena.get(tensor.allocation_info.memory_id)
        if device is not None:
            extra = tensor.extra_tensor_info or make_table(ExtraTensorInfo)
            where = {"device_type": device.device_type, "device_index": device.device_index}
            tensor.extra_tensor_info = extra.model_copy(update=where)
