"""What a memory plan looks like: one model of the picture, and the ways to show it."""

from .arena_figures import arena_of_values, live_bytes
from .node_names import MethodNames, method_names
from .page import picture_page
from .picture import MemoryPicture, MethodPicture, PicturedArena, PicturedValue, PictureKind, Step
from .program_picture import picture_file, picture_manager
from .svg import picture_svg
from .trace import generate_memory_trace, picture_trace

__all__ = [
    "MemoryPicture",
    "MethodNames",
    "MethodPicture",
    "PictureKind",
    "PicturedArena",
    "PicturedValue",
    "Step",
    "arena_of_values",
    "generate_memory_trace",
    "live_bytes",
    "method_names",
    "picture_file",
    "picture_manager",
    "picture_page",
    "picture_svg",
    "picture_trace",
]
