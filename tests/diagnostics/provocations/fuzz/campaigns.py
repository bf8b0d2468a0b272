"""Campaigns that cannot be run, and files that hold none."""

from __future__ import annotations

import sys
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.diagnostics.provocation import provokes
from tests.fuzz.campaigns.stand_in import config

from exirkit.cli.choices import require_checked
from exirkit.cli.commands.fuzz.results import find_shown
from exirkit.cli.console import Steps
from exirkit.fuzz import unchecked_book
from exirkit.fuzz.campaigns import (
    Attachment,
    Campaign,
    CampaignConfig,
    PairCount,
    PairCoverage,
    Result,
    Store,
    TestedPart,
    changed_code,
    dask_executor,
    default_passes,
    find_campaign,
    idle_passes,
    left_out,
    load_object,
    parse_seeds,
    regressions,
    show,
    thin_pairs,
    untested,
)
from exirkit.fuzz.campaigns.execution.isolation import run_isolated
from exirkit.fuzz.campaigns.standard import StandardBench, policy_of
from exirkit.fuzz.compilers import place_pipelines
from exirkit.fuzz.generation import ModelPatterns, sources_of
from exirkit.passes import Pipeline


def store_of(path: Path, verdict: Any = "passed", program: str = "program(1)") -> Path:
    """A file with one program."""
    with Store(path) as store:
        campaign = store.open_campaign(config(bench="some.module:Bench"), "engine")
        result = Result(seed=1, verdict=verdict, program=program, steps=1)
        store.begin_session(campaign, 0.0, "host", 1, 1)
        store.add(campaign, [result], (0.0, "host", 1), 0.0)
    return path


class Deadly(Executor):
    """An executor whose every worker dies."""

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(OSError("the worker died"))
        return future


@provokes("EK860")
def no_seeds(scratch: Path) -> object:
    return parse_seeds("20:10")


@provokes("EK861")
def no_database(scratch: Path) -> object:
    path = scratch / "notes.db"
    path.write_text("not a database, but as long as the header of one would have to be, and a little longer than that")
    return Store(path)


@provokes("EK862")
def workers_do_not_start(scratch: Path) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", "/bin/false")
        return run_isolated(config().model_dump_json(), [1])


@provokes("EK863")
def no_bench(scratch: Path) -> object:
    return load_object("json:lower")


@provokes("EK864")
def workers_die(scratch: Path) -> object:
    return Campaign(config(seeds=2), scratch / "c.db").run(Deadly())


@provokes("EK865")
def shards_disagree(scratch: Path) -> object:
    ours, theirs = store_of(scratch / "ours.db"), store_of(scratch / "theirs.db", "timed_out")
    with Store(ours) as store:
        return store.merge(theirs)


@provokes("EK866")
def no_dask(scratch: Path) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "distributed", None)
        with dask_executor("tcp://127.0.0.1:1"):
            return None


@provokes("EK867")
def no_such_program(scratch: Path) -> object:
    with Store(store_of(scratch / "c.db")) as store:
        return show(store, "7")


@provokes("EK868")
def no_such_campaign(scratch: Path) -> object:
    with Store(store_of(scratch / "c.db")) as store:
        return find_campaign(store, "xyz")


@provokes("EK877")
def nothing_in_common(scratch: Path) -> object:
    with (
        Store(store_of(scratch / "c.db")) as store,
        Store(store_of(scratch / "d.db", program="program(2)")) as baseline,
    ):
        return regressions(store, find_campaign(store), baseline, find_campaign(baseline))


@provokes("EK869")
def locked(scratch: Path) -> object:
    path = store_of(scratch / "c.db")
    with Store(path) as writer, writer.transaction(), Store(path, patience=0) as store:
        return store.open_campaign(config(bench="other.module:Bench"), "engine")


@provokes("EK870")
def no_policy(scratch: Path) -> object:
    return policy_of({"operators": "aten.mul.Tensor"})


@provokes("EK871")
def two_pipelines_for_one_step(scratch: Path) -> object:
    return place_pipelines([Pipeline.shipped("to_edge"), Pipeline.shipped("to_edge")])


@provokes("EK872")
def rule_that_never_fired(scratch: Path) -> object:
    return untested([TestedPart(kind="rule", name="fuse.silu", with_pattern=3, instead={"fuse.glu": 2})], 8, {})


@provokes("EK873")
def pipeline_that_changed_nothing(scratch: Path) -> object:
    return untested([TestedPart(kind="pipeline", name="my-pipeline")], 8, {})


@provokes("EK874")
def rules_for_a_black_box(scratch: Path) -> object:
    return StandardBench(CampaignConfig(target="json:dumps", rules=(Attachment(name="algebra"),)))


@provokes("EK875")
def example_that_writes_to_buffers(scratch: Path) -> object:
    return ModelPatterns(torch.nn.BatchNorm1d(2), (torch.ones(3, 2),))


@provokes("EK876")
def pattern_without_match(scratch: Path) -> object:
    return sources_of({"vars": {"x": "f32 [N]"}, "pattern": "return aten.relu.default(x)"})


@provokes("EK878")
def pass_with_nothing_to_do(scratch: Path) -> object:
    shares = dict.fromkeys(default_passes(), 0.5) | {"functionalize": 0.004}
    return idle_passes(shares, 1000)


@provokes("EK846")
def features_that_never_meet(scratch: Path) -> object:
    pair = PairCount(first="cond", second="quantized", programs=0, expected=20.0)
    return thin_pairs([PairCoverage(kind="features", pairs=9, seen=8, expected=9, thin=(pair,))])


@provokes("EK847")
def function_that_no_program_reaches(scratch: Path) -> object:
    return StandardBench(CampaignConfig(focus=("passes.optimize.fold_constants:is_smal",)))


@provokes("EK848")
def revision_that_differs_in_nothing(scratch: Path) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            changed_code, "_git", lambda message, *arguments: str(scratch) if "rev-parse" in arguments else ""
        )
        return changed_code.changed_since("main")


@provokes("EK885")
def rule_about_inputs(scratch: Path) -> object:
    return left_out([TestedPart(kind="interface rule", name="inputs.bytes"), TestedPart(kind="rule", name="fuse.silu")])


@provokes("EK814")
def rules_that_were_never_checked(scratch: Path) -> object:
    return unchecked_book("book.yaml", ["a.one", "a.two", "b.three", "b.four"], 5)


@provokes("EK815")
def rule_that_is_rejected_before_lowering(scratch: Path) -> object:
    (scratch / "book.yaml").write_text(
        "rulebook: 1\nrules:\n"
        "- {id: wrong, vars: {x: 'f32 [N]'}, match: return aten.neg.default(x), replace: return x}\n"
    )
    with Steps() as steps:
        return require_checked(["book.yaml"], [], steps, checks=True)


@provokes("EK724")
def no_script(scratch: Path) -> object:
    return find_shown(store_of(scratch / "c.db"), "1", None, needs_script=True)
