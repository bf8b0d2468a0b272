"""Pipelines as data: files that say which passes and rules run in which order, checked before they run."""

from exirkit.passes.registry import PassOptions, RegisteredPass

from .pipeline import Pipeline, shipped_pipelines, shipped_text
from .reports import PipelineResult, StageReport
from .settings import edge_settings, executorch_settings
from .watching import StageEvent, Watcher, watching

__all__ = [
    "PassOptions",
    "Pipeline",
    "PipelineResult",
    "RegisteredPass",
    "StageEvent",
    "StageReport",
    "Watcher",
    "edge_settings",
    "executorch_settings",
    "shipped_pipelines",
    "shipped_text",
    "watching",
]
