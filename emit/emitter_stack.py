"""The source lines of an instruction, as frames of the program schema."""

from __future__ import annotations

from .schema import Frame, FrameList


def frames(stack_trace: str | None) -> FrameList:
    """Return the frames of a stack trace as Python prints it, outermost first; none for a node without one."""
    lines = [line.strip() for line in (stack_trace or "").splitlines() if line.strip()]
    found: list[Frame] = []
    for index, line in enumerate(lines):
        place = _place(line)
        if place is not None:
            follower = lines[index + 1] if index + 1 < len(lines) else ""
            context = "" if _place(follower) else follower
            found.append(Frame(filename=place[0], lineno=place[1], name=place[2], context=context))
    return FrameList(items=found)


def _place(line: str) -> tuple[str, int, str] | None:
    """Read `File "model.py", line 3, in forward`."""
    if not line.startswith('File "'):
        return None
    filename, quote, rest = line[len('File "') :].partition('"')
    parts = [part.strip() for part in rest.split(",") if part.strip()]
    if not quote or len(parts) < 2 or not parts[0].startswith("line ") or not parts[1].startswith("in "):
        return None
    number = parts[0].removeprefix("line ")
    return (filename, int(number), ",".join(parts[1:]).removeprefix("in ")) if number.isdigit() else None
