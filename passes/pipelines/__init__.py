"""Pipelines as data: files that say which passes and rules run in which order, checked before they run."""

from exirkit.passes.registry import PassOptions, RegisteredPass

from .pipeline import Pipeline, shipped_pipelines, shipped_text
from .running import PipelineResult, StageEvent, StageReport, Watcher, watching
from .settings import edge_settings, executorch_settings

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
