"""What a child has done so far, in a file that both processes map: it is complete however the child ends."""

from __future__ import annotations

import mmap
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Final, Self

MAX_INPUT_NBYTES: Final = 1 << 16

# Words of 8 bytes: executions, time of the longest in nanoseconds, growth of the process, size of the input that is
# being executed, age of the process in nanoseconds; then one for each outcome.
_EXECUTIONS, _SLOWEST, _GROWTH, _INPUT, _AGE = range(5)
_FIRST_OUTCOME: Final = 16
_OUTCOMES: Final = 1008
_INPUT_AT: Final = 8 * (_FIRST_OUTCOME + _OUTCOMES)
_NBYTES: Final = _INPUT_AT + MAX_INPUT_NBYTES

# Outcomes that are not codes: a program, a listing that was printed, and anything that breaks the contract.
LOADED: Final = "loaded"
PRINTED: Final = "printed"
BROKEN: Final = "broken"
_NAMED: Final = (LOADED, PRINTED, BROKEN)


def slot_of(outcome: str) -> int:
    """Return the number of an outcome: `loaded`, `printed`, `broken`, or a code such as `EK506`."""
    return _NAMED.index(outcome) if outcome in _NAMED else int(outcome[2:])


class Ledger:
    """Counters, and the input that is being executed.

    Args:
        path: The file, which has to exist; `create` makes it.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _NBYTES)
        self._words = memoryview(self._map)[:_INPUT_AT].cast("Q")

    @classmethod
    def create(cls, path: Path) -> Self:
        """Make an empty ledger."""
        path.write_bytes(bytes(_NBYTES))
        return cls(path)

    def begin(self, data: bytes) -> None:
        """Note what is executed now."""
        data = data[:MAX_INPUT_NBYTES]
        self._map[_INPUT_AT : _INPUT_AT + len(data)] = data
        self._words[_INPUT] = len(data)

    def end(self, slot: int, nanoseconds: int) -> int:
        """Note the outcome; return the number of executions with this one."""
        words = self._words
        words[_FIRST_OUTCOME + slot] += 1
        words[_INPUT] = 0
        if nanoseconds > words[_SLOWEST]:
            words[_SLOWEST] = nanoseconds
        words[_EXECUTIONS] += 1
        return words[_EXECUTIONS]

    def count(self, slot: int) -> None:
        """Count something that does not end an execution."""
        self._words[_FIRST_OUTCOME + slot] += 1

    def look(self, grown_nbytes: int, nanoseconds: int) -> None:
        """Note by how much the process has grown, and how long it has been at work."""
        self._words[_GROWTH] = grown_nbytes
        self._words[_AGE] = nanoseconds

    @property
    def executions(self) -> int:
        """How many executions have ended."""
        return self._words[_EXECUTIONS]

    @property
    def slowest_s(self) -> float:
        """The longest execution, in seconds."""
        return self._words[_SLOWEST] / 1e9

    @property
    def growth_nbytes(self) -> int:
        """By how much the process has grown since it was warm, in bytes."""
        return self._words[_GROWTH]

    @property
    def seconds(self) -> float:
        """How long the process had been at work when it looked last."""
        return self._words[_AGE] / 1e9

    @property
    def pending(self) -> bytes | None:
        """The input whose execution has begun and not ended."""
        nbytes = self._words[_INPUT]
        return bytes(self._map[_INPUT_AT : _INPUT_AT + nbytes]) if nbytes else None

    @property
    def outcomes(self) -> Counter[str]:
        """How often executions ended with what."""
        words = self._words[_FIRST_OUTCOME:].tolist()
        names = {**{number: f"EK{number}" for number in range(100, _OUTCOMES)}, **dict(enumerate(_NAMED))}
        return Counter({names[slot]: count for slot, count in enumerate(words) if count})

    def close(self) -> None:
        """Let go of the file."""
        self._words.release()
        self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()
