"""What the bench finds out about a mutant, and how it is shown."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict


class MutantResult(BaseModel):
    """How far a mutant got before it was found, if it was.

    Attributes:
        id: The mutant.
        part: Kind of the part that has it.
        is_reached: Some generated program executed the changed statement.
        is_infected: Some generated program was compiled, or ran, in another way than without it.
        killed_by: The oracle that found it, None if none did.
        symptom: What the oracle saw.
        seed: Of the program with which it was found.
        programs: Programs that were tried, the last one included.
        seconds: Time for that.
        blamed: The culprit that fault localization found.
        is_blame_right: Whether that is the culprit.
        witness_killed_by: The oracle that finds the bug in the program written for it, None if none does. If that is
            found and generated programs are not, the generator has a gap; otherwise the oracles have.
        note: What went wrong with the bench itself.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    part: str
    is_reached: bool = False
    is_infected: bool = False
    killed_by: str | None = None
    symptom: str | None = None
    seed: int | None = None
    programs: int = 0
    seconds: float = 0.0
    blamed: str | None = None
    is_blame_right: bool | None = None
    witness_killed_by: str | None = None
    note: str = ""


_COLUMNS = ("mutant", "part", "reached", "infected", "killed", "programs", "seconds", "blamed", "right", "witness")


def mutant_table(results: Sequence[MutantResult]) -> str:
    """Return the results as a table of text, with a line of totals."""
    rows = [_COLUMNS, *map(_row, results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = [" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    killed = [one for one in results if one.killed_by]
    right = sum(bool(one.is_blame_right) for one in killed)
    lines += ["", f"{len(killed)} of {len(results)} killed, the right part blamed for {right} of them"]
    return "\n".join(lines)


def _row(one: MutantResult) -> tuple[str, ...]:
    is_right = "-" if one.is_blame_right is None else _yes(one.is_blame_right)
    return (
        one.id,
        one.part,
        _yes(one.is_reached),
        _yes(one.is_infected),
        one.killed_by or "-",
        str(one.programs),
        f"{one.seconds:.1f}",
        one.blamed or "-",
        is_right,
        one.witness_killed_by or one.note[:40] or "-",
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"
