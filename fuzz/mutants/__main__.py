"""One planted bug in a process of its own, for `exirkit fuzz mutants`: id and options as JSON, result as JSON."""

from __future__ import annotations

import json
import sys

from .bench import MutationBenchOptions, run_mutant
from .model import mutant

if __name__ == "__main__":
    name, given = sys.argv[1:]
    options = json.loads(given)
    found = run_mutant(mutant(name), MutationBenchOptions(**{**options, "oracles": tuple(options["oracles"])}))
    sys.stdout.write(found.model_dump_json() + "\n")
