"""Many programs, on many processes, with results that are kept."""

from .bench import Bench, Case, Checked, load_bench, load_object, load_parts, load_quotas, load_reasons
from .campaign import Campaign, Progress, run_here
from .changed_code import changed_since, functions_of
from .config import Attachment, CampaignConfig, parse_seeds
from .default_passes import default_passes, idle_passes
from .engine import engine_text
from .execution.pool import ProcessPool, WorkerDiedError
from .execution.scale_out import dask_executor
from .execution.work import analyse_failure, run_batch, run_seed, watchdog
from .idle_rules import why_idle
from .report.baseline import Regression, Regressions, regressions
from .report.page import html_page
from .report.pairs import PairCount, PairCoverage, pair_coverage, thin_pairs
from .report.showing import Shown, show
from .report.summary import Bucket, CampaignSummary, FeatureCount, OracleTime, find_campaign, summarise
from .results import BAD_VERDICTS, VERDICTS, Analysis, Found, Result
from .standard import attached_path, policy_of
from .store import Store
from .tested_parts import TestedPart, left_out, pattern_features, untested

__all__ = [
    "BAD_VERDICTS",
    "VERDICTS",
    "Analysis",
    "Attachment",
    "Bench",
    "Bucket",
    "Campaign",
    "CampaignConfig",
    "CampaignSummary",
    "Case",
    "Checked",
    "FeatureCount",
    "Found",
    "OracleTime",
    "PairCount",
    "PairCoverage",
    "ProcessPool",
    "Progress",
    "Regression",
    "Regressions",
    "Result",
    "Shown",
    "Store",
    "TestedPart",
    "WorkerDiedError",
    "analyse_failure",
    "attached_path",
    "changed_since",
    "dask_executor",
    "default_passes",
    "engine_text",
    "find_campaign",
    "functions_of",
    "html_page",
    "idle_passes",
    "left_out",
    "load_bench",
    "load_object",
    "load_parts",
    "load_quotas",
    "load_reasons",
    "pair_coverage",
    "parse_seeds",
    "pattern_features",
    "policy_of",
    "regressions",
    "run_batch",
    "run_here",
    "run_seed",
    "show",
    "summarise",
    "thin_pairs",
    "untested",
    "watchdog",
    "why_idle",
]
