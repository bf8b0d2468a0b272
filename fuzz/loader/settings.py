"""What a batch is to do, as the parent tells its child."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict


class BatchSettings(BaseModel):
    """One batch of executions in one child.

    Attributes:
        ledger: Where the child counts.
        corpus: Directory of interesting files; grows.
        findings: Directory of files that break the contract.
        executions: How many.
        seed: Decides all damage, given the same corpus.
        instrumented: Whether branches of the reader and of the loader guide the search, which makes an execution three
            times as long, or only the kinds of errors.
        seconds: Time that one execution may take.
        warm: Executions after which the process counts as warm, so that it must not grow any more.
        patch: `module:function`, called before the first execution: for tests, to install a bug.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    ledger: Path
    corpus: Path
    findings: Path
    executions: int
    seed: int
    instrumented: bool = False
    seconds: float = 2.0
    warm: int = 20_000
    patch: str | None = None
