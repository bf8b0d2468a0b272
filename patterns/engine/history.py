"""What rules did to a program, while it can still be undone."""

from __future__ import annotations

from collections.abc import Callable

from exirkit.ir import Checkpoint, Diagnostic, GraphEditor, UsageError

from .report import Application, RewriteReport


class RewriteHistory:
    """Applications on a program, the last of which can be undone; see `RuleEngine.reversible`.

    After `undo` and `undo_to` the program is what a run with that limit of applications would have made of it.

    Args:
        editor: Editor of the program, inside a transaction.

    Attributes:
        report: What the engine did; its journal is that of the applications that stand.
    """

    def __init__(self, editor: GraphEditor) -> None:
        self.report = RewriteReport()
        self._editor = editor
        self._marks: list[Checkpoint] = []
        self._tidying: list[tuple[int, Callable[[], None]]] = []

    @property
    def journal(self) -> list[Application]:
        """The applications that stand, in their order."""
        return self.report.journal

    def undo(self) -> Application:
        """Undo the last application and return it.

        Raises:
            UsageError: EK253, nothing is left to undo; EK121, the rewriting is over.
        """
        if not self.journal:
            raise UsageError(Diagnostic(code="EK253", message="no application is left to undo"))
        last = self.journal[-1]
        self.undo_to(last.number - 1)
        return last

    def undo_to(self, count: int) -> None:
        """Undo all but the first `count` applications.

        Raises:
            UsageError: EK253, there were not that many; EK121, the rewriting is over.
        """
        if not 0 <= count <= len(self.journal):
            message = f"{count} of {len(self.journal)} applications cannot be kept"
            raise UsageError(Diagnostic(code="EK253", message=message))
        if count == len(self.journal):
            return
        self._marks[count].restore()
        for one in self.journal[count:]:
            self.report.statistics[one.rule].applied -= 1
        del self.journal[count:], self._marks[count:]
        self.report.is_limited = True
        self._tidying = [(start, tidy) for start, tidy in self._tidying if start <= count]
        for _, tidy in self._tidying:
            tidy()
        self._editor.agree()

    def mark(self) -> Checkpoint:
        """Return the present state, for `push`."""
        return self._editor.checkpoint()

    def push(self, mark: Checkpoint) -> None:
        """Note the state before an application that was made."""
        self._marks.append(mark)

    def tidied(self, start: int, tidy: Callable[[], None]) -> None:
        """Note how a graph is tidied up after its last application; `start` were made before its first."""
        self._tidying.append((start, tidy))
