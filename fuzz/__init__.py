"""Searching for miscompilations: generated programs, oracles, fault localization, reduction and campaigns.

Names are fetched on first use: pytest loads the plug-in of this room for every test suite, and must not wait for torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .campaigns import Analysis as Analysis
    from .campaigns import Attachment as Attachment
    from .campaigns import Bucket as Bucket
    from .campaigns import Campaign as Campaign
    from .campaigns import CampaignConfig as CampaignConfig
    from .campaigns import CampaignSummary as CampaignSummary
    from .campaigns import Case as Case
    from .campaigns import Checked as Checked
    from .campaigns import FeatureCount as FeatureCount
    from .campaigns import Found as Found
    from .campaigns import PairCoverage as PairCoverage
    from .campaigns import ProcessPool as ProcessPool
    from .campaigns import Progress as Progress
    from .campaigns import Regression as Regression
    from .campaigns import Regressions as Regressions
    from .campaigns import Shown as Shown
    from .campaigns import Store as Store
    from .campaigns import TestedPart as TestedPart
    from .campaigns import WorkerDiedError as WorkerDiedError
    from .campaigns import attached_path as attached_path
    from .campaigns import changed_since as changed_since
    from .campaigns import dask_executor as dask_executor
    from .campaigns import find_campaign as find_campaign
    from .campaigns import html_page as html_page
    from .campaigns import idle_passes as idle_passes
    from .campaigns import left_out as left_out
    from .campaigns import load_bench as load_bench
    from .campaigns import load_object as load_object
    from .campaigns import load_parts as load_parts
    from .campaigns import load_quotas as load_quotas
    from .campaigns import load_reasons as load_reasons
    from .campaigns import pair_coverage as pair_coverage
    from .campaigns import parse_seeds as parse_seeds
    from .campaigns import pattern_features as pattern_features
    from .campaigns import policy_of as policy_of
    from .campaigns import regressions as regressions
    from .campaigns import show as show
    from .campaigns import summarise as summarise
    from .campaigns import thin_pairs as thin_pairs
    from .campaigns import untested as untested
    from .campaigns import why_idle as why_idle
    from .campaigns.user_tests import fuzz_programs as fuzz_programs
    from .comparison import ComparedFile as ComparedFile
    from .comparison import LoweringChoices as LoweringChoices
    from .comparison import LoweringSteps as LoweringSteps
    from .comparison import MeasuredReport as MeasuredReport
    from .comparison import MethodComparison as MethodComparison
    from .comparison import MethodGap as MethodGap
    from .comparison import MethodJudge as MethodJudge
    from .comparison import NodePlace as NodePlace
    from .comparison import NotTracedError as NotTracedError
    from .comparison import Official as Official
    from .comparison import RuntimeDifference as RuntimeDifference
    from .comparison import Tolerances as Tolerances
    from .comparison import Traced as Traced
    from .comparison import TracedRuntime as TracedRuntime
    from .comparison import ValueGap as ValueGap
    from .comparison import WrongStep as WrongStep
    from .comparison import compare_method as compare_method
    from .comparison import drawn_inputs as drawn_inputs
    from .comparison import eager_outputs as eager_outputs
    from .comparison import first_false_step as first_false_step
    from .comparison import first_wrong_step as first_wrong_step
    from .comparison import gap_of as gap_of
    from .comparison import gap_to_eager as gap_to_eager
    from .comparison import is_own_file as is_own_file
    from .comparison import lower_in_steps as lower_in_steps
    from .comparison import lower_recorded as lower_recorded
    from .comparison import measured_gaps as measured_gaps
    from .comparison import measured_times as measured_times
    from .comparison import profile_eagerly as profile_eagerly
    from .comparison import record_of as record_of
    from .comparison import results_of as results_of
    from .comparison import trace_runs as trace_runs
    from .comparison import with_debug_handles as with_debug_handles
    from .comparison import write_measured_report as write_measured_report
    from .compilers import ExirkitCompiler as ExirkitCompiler
    from .compilers import place_pipelines as place_pipelines
    from .compilers import require_official as require_official
    from .compilers import rules_of_book as rules_of_book
    from .compilers import rules_of_pipeline as rules_of_pipeline
    from .examination import Examination as Examination
    from .examination import GraphFailedError as GraphFailedError
    from .examination import GraphResult as GraphResult
    from .examination import GraphSession as GraphSession
    from .examination import ResultComparison as ResultComparison
    from .examination import expectations_of as expectations_of
    from .generation import PatternSource as PatternSource
    from .generation import Policy as Policy
    from .generation import RulePatterns as RulePatterns
    from .generation import features_of as features_of
    from .generation import generate as generate
    from .generation import generate_with_pattern as generate_with_pattern
    from .generation import program_strategy as program_strategy
    from .generation import shipped_operators as shipped_operators
    from .generation import shipped_policies as shipped_policies
    from .mutants import MutantResult as MutantResult
    from .mutants import MutationBenchOptions as MutationBenchOptions
    from .mutants import mutant as mutant
    from .mutants import mutant_table as mutant_table
    from .mutants import run_mutation_bench as run_mutation_bench
    from .official import OfficialRuntime as OfficialRuntime
    from .official import official_missing_reason as official_missing_reason
    from .oracles import Failure as Failure
    from .oracles import Verdict as Verdict
    from .oracles import check as check
    from .programs import Call as Call
    from .programs import Program as Program
    from .programs import build as build
    from .programs import check_program as check_program
    from .programs import inputs_of as inputs_of
    from .programs import module_source as module_source
    from .programs import parse_program as parse_program
    from .programs import program_text as program_text
    from .programs import tensor_source as tensor_source
    from .triage import plain_line as plain_line
    from .triage import reduce as reduce
    from .triage import skeleton as skeleton
    from .unchecked_books import rejected_rules as rejected_rules
    from .unchecked_books import unchecked_book as unchecked_book

# Public names by the subpackage that has them.
_EXPORTS = {
    "campaigns": "Analysis Attachment Bucket Campaign CampaignConfig CampaignSummary Case Checked FeatureCount Found "
    "PairCoverage ProcessPool Progress Regression Regressions Shown Store TestedPart WorkerDiedError attached_path "
    "changed_since dask_executor find_campaign html_page idle_passes load_bench load_object load_parts load_quotas "
    "load_reasons pair_coverage parse_seeds pattern_features policy_of regressions show summarise left_out "
    "thin_pairs untested why_idle",
    "campaigns.user_tests": "fuzz_programs",
    "comparison": "ComparedFile LoweringChoices LoweringSteps MeasuredReport MethodComparison MethodGap MethodJudge "
    "NodePlace NotTracedError Official RuntimeDifference Tolerances Traced TracedRuntime ValueGap WrongStep "
    "compare_method drawn_inputs eager_outputs first_false_step first_wrong_step gap_of gap_to_eager "
    "is_own_file lower_in_steps lower_recorded measured_gaps measured_times profile_eagerly record_of results_of "
    "trace_runs with_debug_handles write_measured_report",
    "compilers": "ExirkitCompiler place_pipelines require_official rules_of_book rules_of_pipeline",
    "examination": "Examination GraphFailedError GraphResult GraphSession ResultComparison expectations_of",
    "generation": "PatternSource Policy RulePatterns features_of generate generate_with_pattern program_strategy "
    "shipped_operators shipped_policies",
    "mutants": "MutantResult MutationBenchOptions mutant mutant_table run_mutation_bench",
    "official": "OfficialRuntime official_missing_reason",
    "oracles": "Failure Verdict check",
    "programs": "Call Program build check_program inputs_of module_source parse_program program_text tensor_source",
    "triage": "plain_line reduce skeleton",
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
