"""Which application of a rule breaks a program? Found in as many trials as the number of applications has bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torch.export import ExportedProgram

from exirkit.ir import Diagnostic, GraphEditor, UsageError, copy_program
from exirkit.patterns.engine.report import Application
from exirkit.patterns.matching.compiled_rule import CompiledRule

from .rewriting import RewriteOptions, RuleEngine

IsGood = Callable[[ExportedProgram], bool]


@dataclass(frozen=True)
class Bisection:
    """What a search found.

    Attributes:
        culprit: The application after which the program is bad for the first time; None if it is good to the end.
        good: The program before it, or the whole result.
        bad: The program after it, if there is a culprit.
        trials: How many programs were examined.
    """

    culprit: Application | None
    good: ExportedProgram
    bad: ExportedProgram | None
    trials: int


def bisect_rewrites(
    program: ExportedProgram,
    rules: Sequence[CompiledRule],
    is_good: IsGood,
    options: RewriteOptions | None = None,
) -> Bisection:
    """Find the first application of a rule after which a program is not good any more.

    The engine does the same in every run, so a run with a limit of applications is the beginning of one without. Should
    programs be bad in between and good again later, one of the applications that make a good program bad is found.

    Args:
        program: The program before rewriting; it is not changed.
        rules: The rules that are applied to it.
        is_good: Judges a program, which it may run but not change.
        options: How rules are applied; `limit` bounds the search.

    Raises:
        UsageError: EK252, the program is bad before any rule is applied.
        ContractError: EK250, the rules rewrite in a cycle; a limit helps.
    """
    search = _Search(program, RuleEngine(rules), is_good, options or RewriteOptions())
    if not search.is_good_after(0):
        raise UsageError(Diagnostic(code="EK252", message="the program is bad before any rule is applied"))
    whole, journal = search.made(search.options.limit)
    if not journal or search.judged(whole):
        return Bisection(None, whole, None, search.trials)
    good, bad = 0, len(journal)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if search.is_good_after(middle) else (good, middle)
    return Bisection(journal[bad - 1], search.made(good)[0], search.made(bad)[0], search.trials)


class _Search:
    """Programs after so many applications, and whether they are good."""

    def __init__(self, program: ExportedProgram, engine: RuleEngine, is_good: IsGood, options: RewriteOptions) -> None:
        self.program = program
        self.engine = engine
        self.is_good = is_good
        self.options = options
        self.trials = 0

    def made(self, limit: int | None) -> tuple[ExportedProgram, list[Application]]:
        if limit == 0:
            return self.program, []
        copied = copy_program(self.program)
        report = self.engine.run(GraphEditor(copied), replace(self.options, limit=limit))
        return copied, report.journal

    def judged(self, program: ExportedProgram) -> bool:
        self.trials += 1
        return bool(self.is_good(program))

    def is_good_after(self, count: int) -> bool:
        return self.judged(self.made(count)[0])
