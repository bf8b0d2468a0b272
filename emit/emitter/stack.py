"""The source lines of an instruction, as frames of the program schema."""

from __future__ import annotations

from exirkit.emit.schema import Frame, FrameList
from exirkit.ir import stack_frames


def frames(stack_trace: str | None) -> FrameList:
    """Return the frames of a stack trace as Python prints it, outermost first; none for a node without one."""
    return FrameList(
        items=[
            Frame(filename=file, lineno=line, name=function, context=code)
            for file, line, function, code in stack_frames(stack_trace)
        ]
    )
