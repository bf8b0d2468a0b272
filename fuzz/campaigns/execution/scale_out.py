"""Workers on other machines: the executor of a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from exirkit.ir import Diagnostic, ModelError


@contextmanager
def dask_executor(address: str) -> Iterator[tuple[Executor, int]]:
    """Give the executor of a Dask cluster, and the number of its threads, for the time of the block.

    Each of its machines needs exirkit; workers should have one thread (`dask worker --nthreads 1 --nworkers auto`).

    Args:
        address: Of the scheduler, such as `tcp://10.0.0.7:8786`.

    Raises:
        ModelError: EK866, Dask is not installed, or the scheduler does not answer, or has no workers.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise _unusable("Dask is not installed", "pip install 'exirkit[dask]'") from error
    try:
        client = Client(address, timeout=20, set_as_default=False)
    except (OSError, ValueError) as error:
        raise _unusable(f"no answer from {address}: {error}", "start one with `dask scheduler`") from error
    with client:
        threads = sum(client.nthreads().values())
        if not threads:
            raise _unusable(f"{address} has no workers", f"start some with `dask worker {address} --nthreads 1`")
        # A batch does not depend on where, or how often, it is run.
        with client.get_executor(pure=False) as executor:
            yield executor, threads


def _unusable(what: str, hint: str) -> ModelError:
    return ModelError(Diagnostic(code="EK866", message=what, hint=hint))
