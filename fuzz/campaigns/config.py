"""What a campaign is asked to do, as a value that travels to workers as JSON."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from exirkit.ir import Diagnostic, UsageError

MAX_SEED = 2**63 - 1
_TARGET = re.compile(r"exirkit|official|[\w./\\ -]+:\w+")
_SEEDS = re.compile(r"(?:(?P<first>\d+):)?(?P<last>\d+)")


class Attachment(BaseModel):
    """A file that a campaign needs, with its text: workers may be on another machine.

    Attributes:
        name: Path of the file, or the name of something that comes with exirkit.
        text: Absent for what comes with exirkit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    text: str | None = None

    @classmethod
    def of(cls, file: str) -> Attachment:
        """Read a file; a name that is not a file is taken for something that comes with exirkit.

        A file that is not text has none here: its parser reports what is wrong with it.

        Raises:
            OSError: The file cannot be read.
        """
        path = Path(file)
        try:
            return cls(name=file, text=path.read_text(encoding="utf-8") if path.is_file() else None)
        except UnicodeDecodeError:
            return cls(name=file)


class CampaignConfig(BaseModel):
    """What is tested, with what, and how.

    Attributes:
        target: The compiler: `exirkit`, `official` (the executorch package; `official:VARIANT` with one of
            `exirkit.fuzz.official.VARIANTS`), or `MODULE:LOWER`, a function from
            exported programs by method name to the bytes of a program file.
        pipelines: Pipeline files instead of the shipped ones, or between them.
        rules: Rule books, applied to the Edge program.
        libraries: Python modules to import before, which register what rules and pipelines name.
        oracles: Oracles to ask; all that apply if absent.
        focus: Parts of the compiler that programs are to reach, as `exirkit.fuzz.generation.Focus` has them; not
            together with rules, a policy or another compiler.
        policy: What generated programs are to be like: fields of `exirkit.fuzz.generation.Policy`.
        optimization_levels: Each program is compiled with one of them; which one, its seed says.
        choices: `drawn`: likewise one of the planners, inputs and outputs that are planned or not, results in place ...
            of our chain. `usual`: what users get who choose nothing.
        first_seed: The first seed ...
        seeds: ... and how many; without, all that there is time for.
        batch: Seeds for one unit of work; without, as many as take about a second.
        seed_seconds: A seed that takes longer is ended, and has the verdict `timed_out`.
        analyses: Of failures with the same first bucket, so many are blamed on a pass and reduced.
        growth_megabytes: A worker whose memory has grown by more is replaced.
        bench: `MODULE:CLASS` of what makes and checks programs, see `Bench`.
        against: Passes that are compared with rules, `MODULE:CLASS`, or the name of a backend's book; for a bench that
            compares.
        models: `MODULE:FUNCTION` of models that are compared on, besides generated programs.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    target: str = "exirkit"
    pipelines: tuple[Attachment, ...] = ()
    rules: tuple[Attachment, ...] = ()
    libraries: tuple[str, ...] = ()
    oracles: tuple[str, ...] | None = None
    focus: tuple[str, ...] = ()
    policy: dict[str, Any] | None = None
    optimization_levels: tuple[int, ...] = Field(default=(1,), min_length=1)
    choices: Literal["drawn", "usual"] = "drawn"
    first_seed: int = Field(default=0, ge=0, le=MAX_SEED)
    seeds: int | None = Field(default=None, ge=1)
    batch: int | None = Field(default=None, ge=1)
    seed_seconds: float = Field(default=60.0, gt=0)
    analyses: int = Field(default=2, ge=0)
    growth_megabytes: int = Field(default=512, ge=1)
    bench: str = "exirkit.fuzz.campaigns.standard:StandardBench"
    against: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _read_former_names(cls, given: Any) -> Any:
        """Accept what databases of older versions hold."""
        if isinstance(given, dict) and "rungs" in given:
            given = {**given, "oracles": given["rungs"]}
            del given["rungs"]
        return given

    @model_validator(mode="after")
    def _has_programs_of_one_kind(self) -> CampaignConfig:
        others = (self.policy, self.rules, self.pipelines, self.against, self.target != "exirkit")
        if self.focus and any(others):
            raise ValueError(
                "a focus is for our own chain, without a policy, rules, pipelines or passes to compare with"
            )
        return self

    @field_validator("target")
    @classmethod
    def _is_a_target(cls, target: str) -> str:
        if not _TARGET.fullmatch(target):
            raise ValueError(f"{target!r} is not exirkit, official or MODULE:LOWER")
        return target

    @field_validator("optimization_levels")
    @classmethod
    def _are_levels(cls, levels: tuple[int, ...]) -> tuple[int, ...]:
        if not set(levels) <= {0, 1, 2}:
            raise ValueError("levels of optimization are 0, 1 and 2")
        return levels

    def identity(self, engine: str) -> str:
        """Return 16 digits: two campaigns that have the same ones get the same result for every seed.

        How many seeds there are, and how they are spread over workers, does not matter.
        """
        free = {"first_seed", "seeds", "batch", "analyses", "growth_megabytes"}
        # Databases of versions that did not know these go on.
        free |= {name for name in ("libraries", "focus", "against", "models") if not getattr(self, name)}
        text = json.dumps([engine, self.model_dump(mode="json", exclude=free)], sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def level_of(self, seed: int) -> int:
        """Return the level of optimization with which the program of a seed is compiled."""
        return self.optimization_levels[seed % len(self.optimization_levels)]

    def seed_range(self) -> range:
        """Return all seeds that are asked for."""
        last = MAX_SEED if self.seeds is None else min(self.first_seed + self.seeds, MAX_SEED)
        return range(self.first_seed, last)


def parse_seeds(text: str) -> tuple[int, int]:
    """Return the first seed and the number of seeds of `N` or `A:B` (B is not one of them).

    Raises:
        UsageError: EK860, it is neither.
    """
    found = _SEEDS.fullmatch(text.strip())
    first = int(found["first"] or 0) if found else 0
    last = int(found["last"]) if found else 0
    if found is None or not first < last <= MAX_SEED:
        raise UsageError(
            Diagnostic(
                code="EK860",
                message=f"{text!r} names no seeds",
                expected="a number of seeds such as 1000, or the first and the one behind the last such as 1000:2000",
                hint=_seeds_hint(found is not None, first, last),
            )
        )
    return first, last - first


def _seeds_hint(is_read: bool, first: int, last: int) -> str:
    """Say what is wrong with seeds."""
    if not is_read:
        return "write a number of seeds such as 1000, or the first and the one behind the last such as 1000:2000"
    if last > MAX_SEED:
        return f"seeds are numbers up to {MAX_SEED}"
    if first >= last > 0:
        return f"the second number is the one behind the last seed: {first}:{first + last} are {last} seeds"
    return "ask for at least one seed"
