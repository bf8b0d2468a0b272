"""Makes `benchmarks` importable without the repository's root on the path, where rooms would be seen a second time."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"

if "benchmarks" not in sys.modules:
    spec = spec_from_file_location("benchmarks", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)])
    assert spec is not None
    assert spec.loader is not None
    sys.modules["benchmarks"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["benchmarks"])
