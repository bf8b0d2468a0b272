"""What a memory plan looks like: one model of the picture, and the ways to show it."""

from .page import picture_page
from .picture import MemoryPicture, MethodPicture, PicturedArena, PicturedValue, Step
from .program_picture import picture_file, picture_manager
from .svg import picture_svg
from .trace import generate_memory_trace, picture_trace

__all__ = [
    "MemoryPicture",
    "MethodPicture",
    "PicturedArena",
    "PicturedValue",
    "Step",
    "generate_memory_trace",
    "picture_file",
    "picture_manager",
    "picture_page",
    "picture_svg",
    "picture_trace",
]
