"""The old name of `exirkit.visualization`."""

from exirkit.ir import deprecated_names

_NEW_NAMES = {
    "MemoryPicture": "MemoryMap",
    "MethodPicture": "MethodMap",
    "PicturedArena": "ArenaMap",
    "PicturedValue": "MappedValue",
    "picture_file": "memory_map_of_file",
    "picture_manager": "memory_map_of_manager",
    "picture_page": "memory_map_page",
    "picture_svg": "memory_map_svg",
    "picture_trace": "memory_map_trace",
    **{name: name for name in ("Step", "arena_of_values", "generate_memory_trace", "live_bytes")},
}

__getattr__ = deprecated_names(__name__, {old: f"exirkit.visualization:{new}" for old, new in _NEW_NAMES.items()})
