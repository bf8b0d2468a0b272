"""Searching for miscompilations: generated programs, oracles, fault localization, reduction and campaigns.

Names are fetched on first use: pytest loads the plug-in of this room for every test suite, and must not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .campaigns import Attachment as Attachment
    from .campaigns import Bucket as Bucket
    from .campaigns import Campaign as Campaign
    from .campaigns import CampaignConfig as CampaignConfig
    from .campaigns import CampaignSummary as CampaignSummary
    from .campaigns import FeatureCount as FeatureCount
    from .campaigns import ProcessPool as ProcessPool
    from .campaigns import Progress as Progress
    from .campaigns import Shown as Shown
    from .campaigns import Store as Store
    from .campaigns import TestedPart as TestedPart
    from .campaigns import dask_executor as dask_executor
    from .campaigns import find_campaign as find_campaign
    from .campaigns import html_page as html_page
    from .campaigns import load_bench as load_bench
    from .campaigns import load_parts as load_parts
    from .campaigns import load_quotas as load_quotas
    from .campaigns import load_reasons as load_reasons
    from .campaigns import parse_seeds as parse_seeds
    from .campaigns import show as show
    from .campaigns import summarise as summarise
    from .campaigns import untested as untested
    from .campaigns.user_tests import fuzz_programs as fuzz_programs
    from .comparison import ComparedFile as ComparedFile
    from .comparison import LoweringChoices as LoweringChoices
    from .comparison import LoweringSteps as LoweringSteps
    from .comparison import MethodComparison as MethodComparison
    from .comparison import MethodJudge as MethodJudge
    from .comparison import NodePlace as NodePlace
    from .comparison import Official as Official
    from .comparison import RuntimeDifference as RuntimeDifference
    from .comparison import Tolerances as Tolerances
    from .comparison import ValueGap as ValueGap
    from .comparison import WrongStep as WrongStep
    from .comparison import compare_method as compare_method
    from .comparison import drawn_inputs as drawn_inputs
    from .comparison import eager_outputs as eager_outputs
    from .comparison import first_false_step as first_false_step
    from .comparison import first_wrong_step as first_wrong_step
    from .comparison import is_own_file as is_own_file
    from .comparison import lower_in_steps as lower_in_steps
    from .comparison import results_of as results_of
    from .generation import Policy as Policy
    from .generation import features_of as features_of
    from .generation import generate as generate
    from .generation import program_strategy as program_strategy
    from .mutants import MutantResult as MutantResult
    from .mutants import MutationBenchOptions as MutationBenchOptions
    from .mutants import mutant as mutant
    from .mutants import mutant_table as mutant_table
    from .mutants import run_mutation_bench as run_mutation_bench
    from .official import OfficialRuntime as OfficialRuntime
    from .oracles import Failure as Failure
    from .oracles import Verdict as Verdict
    from .oracles import check as check
    from .programs import Program as Program
    from .programs import build as build
    from .programs import parse_program as parse_program
    from .programs import program_text as program_text
    from .unchecked_books import rejected_rules as rejected_rules
    from .unchecked_books import unchecked_book as unchecked_book

# Public names by the subpackage that has them.
_EXPORTS = {
    "campaigns": "Attachment Bucket Campaign CampaignConfig CampaignSummary FeatureCount ProcessPool Progress Shown "
    "Store TestedPart dask_executor find_campaign html_page load_bench load_parts load_quotas "
    "load_reasons parse_seeds show summarise untested",
    "campaigns.user_tests": "fuzz_programs",
    "comparison": "ComparedFile LoweringChoices LoweringSteps MethodComparison MethodJudge NodePlace Official "
    "RuntimeDifference Tolerances ValueGap WrongStep compare_method drawn_inputs eager_outputs "
    "first_false_step first_wrong_step is_own_file lower_in_steps results_of",
    "generation": "Policy features_of generate program_strategy",
    "mutants": "MutantResult MutationBenchOptions mutant mutant_table run_mutation_bench",
    "official": "OfficialRuntime",
    "oracles": "Failure Verdict check",
    "programs": "Program build parse_program program_text",
    "unchecked_books": "rejected_rules unchecked_book",
}
_HOMES = {name: home for home, names in _EXPORTS.items() for name in names.split()}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    """Import a public name from its subpackage."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"exirkit.fuzz.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
