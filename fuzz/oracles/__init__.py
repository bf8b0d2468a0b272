"""What must hold for every program: one class in one file for each property, in the folder of what it is about."""

from exirkit.fuzz.compilers import ExirkitCompiler, FunctionCompiler, OfficialCompiler
from exirkit.fuzz.examination import Failure, Verdict

from .chain.operand_layouts import calls_of_several_orders
from .oracle import Oracle
from .suite import DEFAULT_ORACLES, FORMER_NAMES, ORACLES, check, examine, oracles_named

__all__ = [
    "DEFAULT_ORACLES",
    "FORMER_NAMES",
    "ORACLES",
    "ExirkitCompiler",
    "Failure",
    "FunctionCompiler",
    "OfficialCompiler",
    "Oracle",
    "Verdict",
    "calls_of_several_orders",
    "check",
    "examine",
    "oracles_named",
]
