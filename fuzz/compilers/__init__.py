"""What is tested: our chain with its options, black boxes that return bytes, and the official exporter."""

from .attribute_passes import asked_attributes
from .compilers import Compiler, ExirkitCompiler, FunctionCompiler, Lowering, compiler_of, every_choice
from .drawn_choices import drawn_choices, simpler_choices, unusual_choices
from .lowering_trace import LoweringTrace, Snapshot, name_of_pass
from .named_parts import place_pipelines, rules_of_book, rules_of_pipeline
from .official_compiler import OfficialCompiler, OfficialExportError, require_official

__all__ = [
    "Compiler",
    "ExirkitCompiler",
    "FunctionCompiler",
    "Lowering",
    "LoweringTrace",
    "OfficialCompiler",
    "OfficialExportError",
    "Snapshot",
    "asked_attributes",
    "compiler_of",
    "drawn_choices",
    "every_choice",
    "name_of_pass",
    "place_pipelines",
    "require_official",
    "rules_of_book",
    "rules_of_pipeline",
    "simpler_choices",
    "unusual_choices",
]
