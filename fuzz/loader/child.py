"""`python -m exirkit.fuzz.loader.child SETTINGS`: one batch under libFuzzer, which ends the process when it is done."""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from importlib import import_module
from itertools import islice
from typing import Any, Final

from .findings import Finding, TooMuchMemoryError
from .ledger import Ledger, slot_of
from .settings import BatchSettings

MAX_NBYTES: Final = 4096
# Kinds of ends of executions that libFuzzer tells apart, by their hash.
_FEATURES: Final = 4096
# Files that are read to the end and that one batch damages: so many that their fields are remembered.
_WHOLE: Final = 300
# Executions between two checks of the process.
_LOOK_EVERY: Final = 1000
_PARENT_DIED: Final = 3


def main() -> None:
    """Run the batch."""
    settings = BatchSettings.model_validate_json(sys.argv[1])
    import atheris

    if settings.instrumented:
        with atheris.instrument_imports(include=["exirkit.emit", "exirkit.runtime_ref"]):
            import_module("exirkit.runtime_ref")
    _Batch(settings, atheris).run()


class _Batch:
    """One batch; everything that knows the loader is imported here, after it may have been instrumented."""

    def __init__(self, settings: BatchSettings, atheris: Any) -> None:
        import torch

        from .contract import Bounds, Watch, is_readable
        from .mutator import Mutator

        torch.set_num_threads(1)
        if settings.patch is not None:
            module, _, name = settings.patch.partition(":")
            getattr(import_module(module), name)()
        self._settings = settings
        self._atheris = atheris
        self._ledger = Ledger(settings.ledger)
        self._bounds = Bounds(seconds=settings.seconds)
        others = [path.read_bytes() for path in sorted(settings.corpus.iterdir())]
        random.Random(settings.seed).shuffle(others)
        whole = list(islice(filter(is_readable, others), _WHOLE))
        self._mutator = Mutator(settings.seed, others, whole, self._mutate_bytes)
        self._counters = [atheris._reserve_counter() for _ in range(_FEATURES)]
        self._parent = os.getppid()
        self._warm_nbytes = 0
        self._started = time.monotonic_ns()
        # What the imports have made stays; what executions make is mostly free of cycles.
        gc.freeze()
        gc.set_threshold(20_000)
        self._watch = Watch(self._bounds)

    def run(self) -> None:
        """Hand over to libFuzzer, which does not come back."""
        settings = self._settings
        options = [
            f"-runs={settings.executions}",
            f"-seed={settings.seed + 1}",
            f"-max_len={MAX_NBYTES}",
            "-mutate_depth=1",
            "-rss_limit_mb=0",
            "-print_final_stats=1",
        ]
        self._atheris.Setup([sys.argv[0], *options, str(settings.corpus)], self._execute, custom_mutator=self._mutated)
        self._atheris.Fuzz()

    def _mutated(self, data: bytes, max_nbytes: int, _seed: int) -> bytes:
        return self._mutator(data, max_nbytes)

    def _mutate_bytes(self, data: bytes, max_nbytes: int) -> bytes:
        # Looked up late: atheris puts the function that works there when it begins to fuzz.
        return bytes(self._atheris.Mutate(data, max_nbytes))

    def _execute(self, data: bytes) -> None:
        ledger = self._ledger
        ledger.begin(data)
        outcome = self._watch.load(data, lambda name: ledger.count(slot_of(name)))
        if outcome.error is not None:
            Finding.of(outcome.error).save(self._settings.findings, data)
        executions = ledger.end(slot_of(outcome.name), self._watch.nanoseconds)
        self._atheris._trace_branch(self._counters[outcome.feature % _FEATURES])
        if executions % _LOOK_EVERY == 0:
            self._look_around(executions)

    def _look_around(self, executions: int) -> None:
        """Check what is not caused by a single execution: a process that grows, a parent that died."""
        from .contract import resident_nbytes

        if os.getppid() != self._parent:
            os._exit(_PARENT_DIED)
        now = resident_nbytes()
        if executions <= self._settings.warm:
            self._warm_nbytes = now
        grown = max(0, now - self._warm_nbytes)
        self._ledger.look(grown, time.monotonic_ns() - self._started)
        if grown > self._bounds.growth_nbytes:
            error = TooMuchMemoryError(f"the process has grown by {grown >> 20} MiB over {executions} executions")
            Finding.of(error).save(self._settings.findings, b"")


if __name__ == "__main__":
    main()
