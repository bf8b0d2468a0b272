"""The old place of the documents that `--json` prints; each now lies beside its command."""

from exirkit.ir import deprecated_names

_HOMES = {
    "commands.demo": ("DemoReport",),
    "commands.explain": ("ExplainReport",),
    "commands.run": ("OutputReport", "RunReport"),
    "commands.verify": ("VerifyReport",),
    "errors": ("FailureReport", "Finding"),
    "lowering": ("LowerReport", "LoweredMethod"),
    "program_file": ("BytesByKind", "ConstantReport", "InspectReport", "MethodReport", "ValueReport"),
}
_RENAMED = {
    "BookOperatorReport": "exirkit.cli.program_file:BookOperator",
    "CodeReport": "exirkit.cli.commands.explain:CodeText",
    "OperatorReport": "exirkit.cli.program_file:OperatorCount",
}

__getattr__ = deprecated_names(
    __name__, _RENAMED | {name: f"exirkit.cli.{home}:{name}" for home, names in _HOMES.items() for name in names}
)
