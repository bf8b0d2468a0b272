"""The blocks of a guide: files that it tells the reader to write, commands, and what these print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_BLOCK = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"^# (?P<name>[\w.]+\.(py|yaml))$")


@dataclass
class Step:
    """A command of a guide, or a file.

    Attributes:
        command: The command; empty for a file.
        file: Name of the file.
        text: What is in the file.
        output: What the guide shows of what this command and those in its block print, in order.
        is_last: Whether the command is the last one of its block.
    """

    command: str = ""
    file: str = ""
    text: str = ""
    output: list[str] = field(default_factory=list)
    is_last: bool = True


def steps_of(guide: str) -> Iterator[Step]:
    """Yield what a reader does, in order.

    Raises:
        ValueError: A block is of another kind, or names no file, or shows the output of nothing.
    """
    steps: list[Step] = []
    for block in _BLOCK.finditer(guide):
        kind, text = block["kind"], block["text"]
        if kind == "sh":
            commands = text.splitlines()
            steps += [Step(command, is_last=command is commands[-1]) for command in commands]
        elif kind == "text":
            last = next((one for one in reversed(steps) if one.command), None)
            if last is None:
                raise ValueError(f"nothing prints {text!r}")
            last.output += text.splitlines()
        else:
            named = _NAME.match(text.partition("\n")[0])
            if named is None or kind not in ("python", "yaml"):
                raise ValueError(f"a block of {kind} without the name of a file: {text[:60]!r}")
            steps.append(Step(file=named["name"], text=text))
    yield from steps
