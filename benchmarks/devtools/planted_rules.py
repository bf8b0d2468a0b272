"""Wrong rules planted one by one in the lowering of real models: does `exirkit gap` name the stage and the rule?

    python -m benchmarks.devtools.planted_rules [--only ID] [--results FILE.jsonl] [--runtime official]

The rules are listed in `planted_rules.yaml`. Each is added to the right rules of one stage of a pipeline; the model is
lowered with that, and the numeric gap against eager PyTorch is computed. A line for each rule: how often it was
applied, how many instructions are off, what the gap blames. The exit code is 0 if the stage is named for all of them
and the rule for 95 % of them. With `--results` a run that was interrupted goes on.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.export import ExportedProgram

from benchmarks.models import build
from exirkit.fuzz import LoweringChoices, TracedRuntime, gap_to_eager, lower_in_steps, with_debug_handles
from exirkit.ir import pytree
from exirkit.passes import Pipeline, shipped_text

LIST = Path(__file__).with_suffix(".yaml")
LEAST_RULES = 0.95
STAGE = "planted"
_BESIDE = ["canonicalize", "algebra"]
_KEYS = ("id", "vars", "match", "replace", "where", "keep", "dialect")


def planted_rules() -> list[dict[str, Any]]:
    """Return the list."""
    listed: list[dict[str, Any]] = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    return listed


def planted_book(entry: Mapping[str, Any]) -> str:
    """Return the text of a book with the rule alone."""
    rule = {key: entry[key] for key in _KEYS if key in entry} | {"doc": entry["mistake"], "measure": "once"}
    return yaml.safe_dump({"rulebook": 1, "namespace": "planted", "rules": [rule]}, sort_keys=False, width=1000)


def planted_pipeline(entry: Mapping[str, Any]) -> str:
    """Return the text of a pipeline with the stage that applies the rule among others."""
    stage = {"rules": [*(_BESIDE if entry["place"] == "edge" else []), "wrong.yaml"], "name": STAGE}
    if entry["place"] == "edge":
        return yaml.safe_dump(
            {
                "pipeline": 1,
                "name": "ours",
                "dialect": {"from": "edge", "to": "edge"},
                "stages": [{"pass": "merge-equal-nodes"}, stage, {"rules": ["fold", "copies"], "name": "tidy"}],
            },
            sort_keys=False,
        )
    name = entry["place"].replace("-", "_")
    document = yaml.safe_load(shipped_text(name))
    # Behind decomposing, or before everything.
    at = 1 if entry["place"] == "to-edge" else 0
    document["stages"].insert(at, stage)
    return yaml.safe_dump(document, sort_keys=False)


@lru_cache(maxsize=1)
def exported(model: str) -> ExportedProgram:
    """Return a model with debug handles; neighbours in the list share it."""
    return with_debug_handles(build(model).export())


def examined(entry: Mapping[str, Any], runtime: TracedRuntime) -> dict[str, Any]:
    """Plant a rule, and return what the numeric gap says."""
    program = exported(entry["model"])
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "wrong.yaml").write_text(planted_book(entry), encoding="utf-8")
        file = Path(folder) / "ours.yaml"
        file.write_text(planted_pipeline(entry), encoding="utf-8")
        pipeline = Pipeline.from_file(file)
        place = entry["place"]
        choices = LoweringChoices(
            to_edge=pipeline if place == "to-edge" else None,
            on_edge=(pipeline,) if place == "edge" else (),
            to_executorch=pipeline if place == "to-executorch" else None,
        )
        start = time.process_time()
        steps = lower_in_steps({"forward": program}, choices)
        if steps.failure is not None:
            # What a rule makes has to be in the dialect: such an entry would not be a wrong value.
            return {"id": entry["id"], "model": entry["model"], "failure": steps.failure.diagnostics[0].headline()}
        lowered = time.process_time()
        found = gap_to_eager("forward", steps, pytree.tree_leaves(program.example_inputs), runtime=runtime)
    step = found.step
    return {
        "id": entry["id"],
        "model": entry["model"],
        "place": place,
        "applied": steps.applied.get(entry["id"], 0),
        "wrong": len(found.wrong),
        "outputs": max(one.relative for one in found.outputs),
        "followed": found.followed,
        "stage": None if step is None else step.stage,
        "rule": None if step is None or step.application is None else step.application.rule,
        "seconds": [round(lowered - start, 1), round(time.process_time() - lowered, 1)],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Plant all rules, print one line for each, and how many are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="ID")
    parser.add_argument("--results", type=Path, metavar="FILE.jsonl")
    parser.add_argument("--runtime", type=TracedRuntime, default=TracedRuntime.REFERENCE)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    done: dict[str, dict[str, Any]] = {}
    if options.results is not None and options.results.is_file():
        done = {one["id"]: one for one in map(json.loads, options.results.read_text().splitlines())}
    chosen = [one for one in planted_rules() if not options.only or one["id"] in options.only]
    results = []
    for entry in sorted(chosen, key=lambda one: str(one["model"])):
        result = done.get(entry["id"]) or examined(entry, options.runtime)
        if "failure" in result:
            print(f"{entry['id']:30} {entry['model']:18} NOT LOWERED: {result['failure']}", flush=True)
            result |= {"applied": 0, "stage": None, "rule": None}
            results.append(result)
            continue
        results.append(result)
        if entry["id"] not in done and options.results is not None:
            with options.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result) + "\n")
        print(
            f"{result['id']:30} {result['model']:18} applied {result['applied']:3} wrong {result['wrong']:4} "
            f"outputs {result['outputs']:8.2g}  {result['stage']} / {result['rule']}"
            f"{' by ' + result['followed'] if result['followed'] else ''}  {result['seconds']} s",
            flush=True,
        )
    fired = sum(one["applied"] > 0 for one in results)
    stages = sum(one["stage"] == STAGE for one in results)
    rules = sum(one["rule"] == one["id"] for one in results)
    print(f"{len(results)} rules: {fired} applied, the stage named {stages}, the rule named {rules}")
    return 0 if fired == stages == len(results) and rules >= LEAST_RULES * len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
