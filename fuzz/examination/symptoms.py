"""From exceptions to failures: symptoms that stay the same while a program is made smaller."""

from __future__ import annotations

import traceback
from pathlib import Path

from exirkit.fuzz.compilers.official_compiler import OfficialExportError
from exirkit.ir import DiagnosticError

from .graph_runs import GraphFailedError
from .verdict import Failure

_OWN = "exirkit"
_DEPTH = 3


def failure_of_error(error: BaseException, oracle: str, stage: str | None) -> Failure:
    """Return what an exception says as a failure.

    Args:
        error: What was raised.
        oracle: Name of the oracle that met it.
        stage: The part or pass that raised it.
    """
    node = None
    if isinstance(error, DiagnosticError):
        symptom = f"{type(error).__name__} {error.code}"
        node = error.diagnostics[0].location.node
        cause = error.__cause__
        if cause is not None and not isinstance(cause, DiagnosticError):
            symptom += f" from {type(cause).__name__} at {own_frames(cause)}"
    elif isinstance(error, GraphFailedError):
        cause = error.__cause__ or error
        symptom, node = f"graph cannot be run: {type(cause).__name__}", error.node.name
    elif isinstance(error, OfficialExportError):
        symptom = f"{error.kind} at {error.where}" if error.where else error.kind
    else:
        symptom = f"{type(error).__name__} at {own_frames(error)}"
    message = str(error)
    return Failure(oracle, f"raised {symptom}", message[:4000], stage, node)


def part_at_work(error: BaseException, current: str | None) -> str | None:
    """Return the part that raised: planning and emission are one call, so that only frames tell them apart.

    A check that does not say what is wrong, but raises something else, is wrong itself, whatever it was asked about.

    Args:
        error: What was raised.
        current: The part or pass that was begun last.
    """
    paths = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    own = [path.parts for path in paths if _OWN in path.parts]
    if own and "verifiers" in own[-1] and not isinstance(error, DiagnosticError):
        return "verifier"
    return "emitter" if current == "planner" and any(path.parent.name == "emit" for path in paths) else current


def was_met_before(error: BaseException) -> bool:
    """Return whether an exception comes from where one did that was caught before, and answered by another way.

    That is so if a call of exirkit that raised it was at work, at the same line, when the earlier one was raised: what
    stands between this call and torch may differ from way to way.
    """
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or at.__context__
    raised = [one for one in chain if not isinstance(one, DiagnosticError)]
    if not raised:
        return False
    innermost = _own_places(raised[0])[-1:]
    return any(type(one) is type(raised[0]) and set(innermost) & set(_own_places(one)) for one in raised[1:])


def _own_places(error: BaseException) -> list[tuple[str, int | None]]:
    frames = traceback.extract_tb(error.__traceback__)
    return [(frame.filename, frame.lineno) for frame in frames if _is_own(frame.filename)]


def own_frames(error: BaseException) -> str:
    """Return the innermost frames of exirkit, without line numbers: the same for all programs that meet one bug."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_own(frame.filename)]
    return " < ".join(f"{Path(frame.filename).stem}:{frame.name}" for frame in frames[-_DEPTH:][::-1]) or "nowhere"


_ROOMS = frozenset({"ir", "patterns", "verifiers", "passes", "emit", "runtime_ref", "program"})


def _is_own(filename: str) -> bool:
    parts = Path(filename).parts
    return (any(part in _ROOMS for part in parts[-3:-1]) and "site-packages" not in parts) or _OWN in parts
