"""Of all lines that led to an operator, the one that a reader of the model wants to see."""

from __future__ import annotations

from collections.abc import Iterable

# In these the user's model is carried out, not written.
_TORCH = ("/torch/nn/", "/torch/_", "/torch/functional.py", "/torch/utils/")


def line_of_frames(frames: Iterable[tuple[str, int, str, str]]) -> str | None:
    """Return the innermost frame outside of torch as `file.py:12 in forward:  code`; None if there are no frames.

    Args:
        frames: File, line, function and code of each frame, outermost first.
    """
    listed = [frame for frame in frames if frame[0]]
    own = [frame for frame in listed if not any(part in frame[0].replace("\\", "/") for part in _TORCH)]
    if not listed:
        return None
    filename, line, function, code = (own or listed)[-1]
    return f"{filename}:{line} in {function}" + (f":  {code}" if code else "")
