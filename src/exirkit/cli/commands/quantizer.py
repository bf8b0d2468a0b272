"""`exirkit quantizer ...`: checking quantizers, and what they say of the calls of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.console import Steps, counted, print_json, print_line, print_table, print_text, source_text
from exirkit.cli.errors import WRONG_USAGE, CommandError, unknown_name
from exirkit.cli.files import check_writable, write_text
from exirkit.cli.model import export_target, parse_source
from exirkit.cli.options import Json, Libraries, MethodName, ModelTarget, Strict
from exirkit.cli.root import app

if TYPE_CHECKING:
    from exirkit.passes import CallAccount

quantizer_app = typer.Typer(
    rich_markup_mode=None, help="Check quantizers, and see what they annotate.", no_args_is_help=True
)
app.add_typer(quantizer_app, name="quantizer")


@dataclass(frozen=True)
class QuantizerReport:
    """A quantizer that is right.

    Attributes:
        id: What it is called.
        rules: Names of its rules.
        specs: Names of the ways to quantize.
        settings: Its settings, with what they are unless they are chosen.
    """

    id: str
    rules: Sequence[str]
    specs: Sequence[str]
    settings: dict[str, bool]


@dataclass(frozen=True)
class QuantizerCheckReport:
    """The document of `exirkit quantizer check`."""

    quantizers: list[QuantizerReport]
    ok: bool = True


@quantizer_app.command()
def check(
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE.yaml|NAME]...", show_default=False)] = None,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Read quantizers and find all that is wrong with them; without a file, those that come with exirkit."""
    with Steps() as steps:
        with steps.phase("load", "loading torch"):
            from exirkit.passes import load_quantizer, shipped_quantizers

        read = [load_quantizer(name) for name in files or shipped_quantizers()]
    made = [
        QuantizerReport(one.id, [rule.name for rule in one.rules], list(one.specs), dict(one.settings)) for one in read
    ]
    report = QuantizerCheckReport(made)
    if json:
        print_json(report)
    else:
        for one in report.quantizers:
            settings = ", ".join(one.settings) or "none"
            print_line(f"{one.id}: accepted; {counted(len(one.rules), 'rule')}, settings: {settings}")


@dataclass(frozen=True)
class MethodAccount:
    """What a quantizer says of one method.

    Attributes:
        name: Its name.
        calls: Its calls, each with `rule`, `values` and `reasons`; see `exirkit.passes.CallAccount`.
    """

    name: str
    calls: list[CallAccount]


@dataclass(frozen=True)
class QuantizerExplainReport:
    """The document of `exirkit quantizer explain`."""

    target: str
    quantizer: str
    settings: dict[str, bool]
    methods: list[MethodAccount]
    ok: bool = True


@quantizer_app.command()
def explain(
    target: ModelTarget,
    quantizer: Annotated[
        str, typer.Option("--quantizer", metavar="FILE.yaml|NAME", help="The quantizer.", show_default=False)
    ],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=true|false", help="A setting.", show_default=False)
    ] = None,
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Report everything about one call.", show_default=False)
    ] = None,
    why_not: Annotated[
        bool, typer.Option("--why-not", help="Say why rules that name its operator do not have a call.")
    ] = False,
    method: MethodName = None,
    strict: Strict = False,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Show which values of an exported model a quantizer quantizes, and why not the others.

    Nothing is quantized: this is what `prepare_pt2e` of torchao would be told.
    """
    source = parse_source(target)
    with Steps() as steps:
        with steps.phase("load", "loading torch"):
            from exirkit.passes import Annotator, account_of_model, load_quantizer, with_numbers_as_tensors

        # Read before the model is exported, which may take long.
        annotator = Annotator(load_quantizer(quantizer), dict(map(parse_setting, settings or ())))
        exported = export_target(source, steps, strict=strict)
        steps("annotating")
        programs = {name: exported.only(method).programs[name] for name in sorted(exported.only(method).programs)}
        methods = []
        for name, program in programs.items():
            module = with_numbers_as_tensors(program.module(), annotator.policy.numbers)
            methods.append(MethodAccount(name, account_of_model(annotator, module)))
    calls = [call for one in methods for call in one.calls]
    asked = [call for call in calls if node is None or call.node == node.removeprefix("%")]
    if node is not None and not asked:
        raise unknown_name("the model has no call", node.removeprefix("%"), [call.node for call in calls])
    if json:
        print_json(QuantizerExplainReport(target, annotator.policy.id, annotator.settings, methods))
    elif node is not None or why_not:
        for call in asked:
            if node is not None or call.rule is None:
                print_text(f"{call.diagnostic(why_not=why_not).render()}\n")
    else:
        for one in methods:
            _print_method(one)


def parse_setting(text: str) -> tuple[str, bool]:
    """Return name and value of a setting.

    Raises:
        CommandError: EK711, it is neither true nor false.
    """
    name, equals, value = text.partition("=")
    if not equals:
        return name, True
    if value not in ("true", "false"):
        message = f"--set {text}: a setting is true or false"
        raise CommandError(code="EK711", message=message, hint=f"--set {name}=true", exit_code=WRONG_USAGE)
    return name, value == "true"


def _print_method(one: MethodAccount) -> None:
    quantized = [call for call in one.calls if call.rule is not None]
    print_line(f"{one.name}: {len(quantized)} of {len(one.calls)} calls")
    print_table(
        ["call", "operator", "rule", "reads", "gives", "source"],
        [
            [call.node, call.operator, call.rule or "", _values(call, "reads"), _values(call, "gives"),
             source_text(call.place.source, None)]
            for call in one.calls
        ],
    )  # fmt: skip


def _values(call: CallAccount, role: str) -> str:
    return ", ".join(one.value for one in call.values if one.role == role)


@quantizer_app.command()
def schema(
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE.json")] = None,
) -> None:
    """Print the JSON Schema of quantizers, with which editors complete and check them."""
    from exirkit.passes import quantizer_schema_text

    text = quantizer_schema_text()
    if output is None:
        typer.echo(text, nl=False)
    else:
        check_writable(output, ".json")
        write_text(output, text)
