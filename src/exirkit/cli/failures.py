"""What goes wrong when programs are lowered with some options: errors of the lowering, and wrong results."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from .console import output_to_stderr

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from exirkit.fuzz import LoweringChoices


@dataclass(frozen=True)
class Failure:
    """Something that went wrong.

    Attributes:
        kind: `lowering` for a diagnostic, `crash` for any other exception, `results` for wrong results.
        stage: The pass at which it went wrong, if that is known.
        codes: Codes of the diagnostics, or the type of the exception.
        rule: Id of the rule whose application makes results wrong.
        method: The method with wrong results.
        messages: What is to be read about it.
    """

    kind: Literal["lowering", "crash", "results"]
    stage: str | None
    codes: tuple[str, ...]
    rule: str | None
    method: str | None
    messages: tuple[str, ...]

    def is_like(self, other: Failure | None) -> bool:
        """Whether another failure is the same, as far as that can be said: its messages may differ."""
        mine, theirs = ({**asdict(one), "messages": ()} if one is not None else None for one in (self, other))
        return mine == theirs

    def headline(self) -> str:
        """Return it in one line."""
        what = {"lowering": "the lowering fails", "crash": "the lowering crashes", "results": "results are wrong"}
        parts = [what[self.kind], *([f"in {self.stage}"] if self.stage else [])]
        parts += [f"by rule {self.rule}"] if self.rule else []
        return " ".join(parts) + (f": {', '.join(self.codes)}" if self.codes else "")


def find_failure(
    programs: dict[str, ExportedProgram], choices: LoweringChoices, *, runs: int, seed: int
) -> Failure | None:
    """Lower programs, run every step of it, and return what goes wrong, or None.

    Args:
        programs: The programs by method.
        choices: What to lower them with.
        runs: Number of runs of each step.
        seed: Seed of the inputs of all runs but the first.
    """
    from exirkit.fuzz import lower_in_steps

    with output_to_stderr():
        try:
            lowered = lower_in_steps(programs, choices)
        except Exception as error:
            return Failure("crash", None, (type(error).__name__,), None, None, (str(error),))
        if lowered.failure is not None:
            found = lowered.failure.diagnostics
            return Failure(
                "lowering",
                lowered.stage,
                tuple(dict.fromkeys(one.code for one in found)),
                None,
                None,
                tuple(one.render() for one in found),
            )
        for name in sorted(programs):
            wrong = _wrong_results(name, programs[name], lowered.snapshots(name), runs, seed)
            if wrong is not None:
                return wrong
    return None


def _wrong_results(name: str, program: ExportedProgram, path: Any, runs: int, seed: int) -> Failure | None:
    from exirkit.cli.commands.compare import calls_of, describe_step
    from exirkit.fuzz import MethodJudge, Tolerances, first_wrong_step, results_of

    if program.example_inputs is None:
        return None
    calls = calls_of(program, name, runs, seed)
    step = first_wrong_step(path, MethodJudge(results_of(program, calls), calls, Tolerances(None, None)))
    if step is None:
        return None
    finding = describe_step(step)
    rule = None if step.application is None else step.application.rule
    return Failure("results", step.stage, (finding.code,), rule, name, (finding.render(),))
