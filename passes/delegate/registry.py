"""Which backends there are."""

from __future__ import annotations

from difflib import get_close_matches

from exirkit.ir import Diagnostic, UsageError, load_plugins

from .backend_details import BackendDetails

ENTRY_POINTS = "exirkit.backends"
"""Group of entry points under which packages name their backends."""


def find_backend(backend_id: str) -> type[BackendDetails]:
    """Return a backend by its name.

    Args:
        backend_id: Name of a subclass of `BackendDetails` that has been imported, or of an entry point in the group
            `exirkit.backends`.

    Raises:
        UsageError: EK490, there is none.
    """
    if backend_id not in BackendDetails.defined:
        for plugin in load_plugins(ENTRY_POINTS)[0].values():
            if isinstance(plugin, type) and issubclass(plugin, BackendDetails):
                BackendDetails.defined.setdefault(plugin.__name__, plugin)
    found = BackendDetails.defined.get(backend_id)
    if found is None:
        known = sorted(BackendDetails.defined)
        close = get_close_matches(backend_id, known, n=1)
        raise UsageError(
            Diagnostic(
                code="EK490",
                message=f"there is no backend {backend_id!r}",
                expected=f"one of {', '.join(known)}" if known else "a backend; none has been imported",
                hint=f"did you mean {close[0]!r}?" if close else "import the module that defines it",
            )
        )
    return found
