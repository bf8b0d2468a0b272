"""What campaigns find: one result for each seed, one analysis for some failures; as JSON they cross processes."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

# `unsupported`: the compiler says that it does not take such programs. `invalid`: the generator made a wrong program.
# `crashed`, `timed_out`: the process that worked on the seed died, or was ended. `broken`: the bench itself raised.
Verdict: TypeAlias = Literal["passed", "failed", "unsupported", "invalid", "crashed", "timed_out", "broken"]

VERDICTS: tuple[Verdict, ...] = ("passed", "failed", "unsupported", "invalid", "crashed", "timed_out", "broken")
BAD_VERDICTS: tuple[Verdict, ...] = ("failed", "invalid", "crashed", "timed_out", "broken")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Found(_Record):
    """Something that an oracle finds wrong.

    Attributes:
        oracle: Name of the oracle: `poisoned-run`.
        symptom: What kind of wrong: `values`, `shape`, `EK341`, the type of an exception ...
        message: What a person reads.
        stage: Where in the compiler, as far as the oracle knows.
        node: At which value.
        bucket: Failures of one cause should have one bucket; this one is made without reducing the program.
    """

    oracle: str
    symptom: str
    message: str
    stage: str | None = None
    node: str | None = None
    bucket: str


class Result(_Record):
    """The result of one seed.

    Attributes:
        seed: The program, and all that is chosen at random about it, follows from it.
        verdict: In one word.
        program: Text of the program; empty if the generator did not get that far.
        steps: How many operators it calls.
        features: What is in it, sorted.
        level: Level of optimisation that it was compiled with.
        failures: In the order of the oracles.
        seconds: Wall time for each oracle, and for `generate`.
        compared: How many values were compared with what they should be ...
        bitwise: ... and how many of these bit for bit.
        not_run: Oracles that could not be asked, and why.
        counts: Numbers of the bench, which are added up over all seeds.
    """

    seed: int
    verdict: Verdict
    program: str = ""
    steps: int = 0
    features: tuple[str, ...] = ()
    level: int = 1
    failures: tuple[Found, ...] = ()
    seconds: dict[str, float] = Field(default_factory=dict)
    compared: int = 0
    bitwise: int = 0
    not_run: dict[str, str] = Field(default_factory=dict)
    counts: dict[str, int] = Field(default_factory=dict)


class Analysis(_Record):
    """What was found out about one failure.

    Attributes:
        seed: Of the program.
        number: Which failure of the program, from 0.
        bucket: With the culprit and the operators of the smallest program.
        culprit: The pass, or `planner`, `emitter`, `interpreter`.
        rule: The rule, if the culprit applies rules.
        application: Number of the application of that rule.
        reduced: Text of the smallest program that fails alike.
        repro: A Python script that fails in a process of its own.
        note: Why something of this is missing.
        seconds: Wall time.
    """

    seed: int
    number: int
    bucket: str
    culprit: str | None = None
    rule: str | None = None
    application: int | None = None
    reduced: str | None = None
    repro: str | None = None
    note: str | None = None
    seconds: float = 0.0
