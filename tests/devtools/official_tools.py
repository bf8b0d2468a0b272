"""The official developer tools, in a process of their own: `python -m tests.devtools.official_tools FOLDER TASK...`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def run_official(folder: Path, *tasks: str) -> dict[str, Any]:
    """Do tasks in a process of their own; return what each left, by its name."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.devtools.official_tools", str(folder), *tasks],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads((folder / "official.json").read_text())
    return found


def read_bundle(folder: Path) -> list[str]:
    """Return the kinds of the inputs of the first case of `ours.bpte`."""
    from executorch.devtools.bundled_program import serialize

    read = serialize.deserialize_from_flatbuffer_to_bundled_program((folder / "ours.bpte").read_bytes())
    return [type(one.val).__name__ for one in read.method_test_suites[0].test_cases[0].inputs]


def write_bundle(folder: Path) -> None:
    """Write `official.bpte`: a program of the official exporter with a test case."""
    import torch
    from executorch import devtools, exir
    from executorch.devtools.bundled_program import config, serialize
    from tests.devtools.test_bundled_programs import MODELS

    model, inputs, _, _ = MODELS["numbers"]
    program = exir.to_edge(torch.export.export(model, inputs)).to_executorch()
    case = config.MethodTestCase(inputs, model(*inputs))
    bundle = devtools.BundledProgram(program, [config.MethodTestSuite("forward", [case])])
    (folder / "official.bpte").write_bytes(bytes(serialize.serialize_from_bundled_program_to_flatbuffer(bundle)))


def write_record(folder: Path) -> None:
    """Write `official.etrecord` and a trace; records of the official exporter take branches without numbers at most."""
    import torch
    from executorch import exir
    from executorch.runtime import Runtime
    from tests.devtools.test_etrecord import Bodies, X

    exported = torch.export.export(Bodies(loops=False), (X[0],))
    made = exir.to_edge(exported, generate_etrecord=True).to_executorch()
    made.get_etrecord().save(str(folder / "official.etrecord"))
    made.save(str(folder / "official.pte"))
    program = Runtime.get().load_program(str(folder / "official.pte"), enable_etdump=True, debug_buffer_size=1 << 20)
    program.load_method("forward").execute([X[0]])
    program.write_etdump_result_to_file(str(folder / "official.etdp"), str(folder / "official.bin"))


def inspect(folder: Path) -> dict[str, list[tuple[list[str], bool, bool]]]:
    """Return operators, and whether source and module are known, of the calls in each trace with its record."""
    from executorch.devtools import Inspector

    found = {}
    for trace in sorted(folder.glob("*.etdp")):
        inspector = Inspector(etdump_path=str(trace), etrecord=str(trace.with_suffix(".etrecord")))
        events = [one for block in inspector.event_blocks if block.name == "Execute" for one in block.events]
        calls = [one for one in events if one.name in ("OPERATOR_CALL", "DELEGATE_CALL")]
        found[trace.stem] = [
            (one.op_types, any(one.stack_traces.values()), any(one.module_hierarchy.values())) for one in calls
        ]
    return found


TASKS = {"inspect": inspect, "read_bundle": read_bundle, "write_bundle": write_bundle, "write_record": write_record}


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    results = {name: TASKS[name](directory) for name in sys.argv[2:]}
    (directory / "official.json").write_text(json.dumps(results))
