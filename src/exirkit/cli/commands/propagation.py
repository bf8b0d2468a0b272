"""`exirkit propagation ...`: trying analyses of a whole graph, and why a tensor of a model has its value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exirkit.cli.console import Steps, counted, print_json, print_line, print_table, print_text, source_text
from exirkit.cli.errors import unknown_name
from exirkit.cli.files import check_writable, write_text
from exirkit.cli.model import export_target, parse_source
from exirkit.cli.options import Json, Libraries, MethodName, ModelTarget, Strict
from exirkit.cli.root import app

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from exirkit.ir import Diagnostic
    from exirkit.patterns import (
        Conversion,
        Demands,
        Inference,
        InferredValues,
        NeededRanges,
        NodeAccount,
        Propagation,
        PropagationVerdict,
        Solution,
    )

propagation_app = typer.Typer(
    rich_markup_mode=None, help="Try analyses of a whole graph, and examine them.", no_args_is_help=True
)
app.add_typer(propagation_app, name="propagation")


@dataclass(frozen=True)
class RowReport:
    """What trials say of one row.

    Attributes:
        row: Its place in the file, from 1.
        place: Where it stands: `FILE:LINE`.
        operators: How many operators it names.
        trials: Squares that commuted.
    """

    row: int
    place: str
    operators: int
    trials: int


@dataclass(frozen=True)
class CheckedPropagation:
    """The verdict on a propagation."""

    ok: bool
    file: str
    id: str
    rows: list[RowReport]
    diagnostics: Sequence[Diagnostic]

    @classmethod
    def of(cls, verdict: PropagationVerdict) -> CheckedPropagation:
        """Return the document of a verdict."""
        rows = [RowReport(one.number, one.place, one.operators, one.trials) for one in verdict.rows]
        return cls(verdict.is_accepted, verdict.file, verdict.id, rows, verdict.found)


@dataclass(frozen=True)
class PropagationCheckReport:
    """The document of `exirkit propagation check`."""

    ok: bool
    seed: int
    propagations: list[CheckedPropagation]


@propagation_app.command()
def check(
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILE.yaml|NAME]...", show_default=False)] = None,
    trials: Annotated[int, typer.Option(min=1, max=10_000, help="Calls of each operator at each value.")] = 24,
    seed: Annotated[int, typer.Option(min=0, help="Of the calls.")] = 0,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Try every row of propagations: exit code 0 if all are accepted, 1 otherwise.

    A row is right if calling with converted arguments gives the converted results. Without a file, all that come with
    exirkit are tried.
    """
    with Steps() as steps:
        steps("loading torch")
        import torch

        from exirkit.patterns import check_propagation, load_analysis, shipped_propagations

        # Trials are small: what a second thread would gain is lost in waking it.
        torch.set_num_threads(1)
        verdicts = []
        for name in files or shipped_propagations():
            steps(f"trying {name}")
            verdicts.append(check_propagation(load_analysis(name), seed=seed, trials=trials))
    checked = [CheckedPropagation.of(one) for one in verdicts]
    report = PropagationCheckReport(all(one.ok for one in checked), seed, checked)
    if json:
        print_json(report)
    else:
        for one in checked:
            _print_checked(one, seed)
    raise typer.Exit(0 if report.ok else 1)


def _print_checked(one: CheckedPropagation, seed: int) -> None:
    if one.rows:
        rows = [[each.row, each.place, each.operators, each.trials] for each in one.rows]
        print_table([">row", "place", ">operators", ">trials"], rows)
        print_line()
    for found in one.diagnostics:
        print_text(f"{found.render()}\n", err=True)
    print_line(f"{one.id}: {'accepted' if one.ok else 'REJECTED'} (seed {seed})")


@dataclass(frozen=True)
class ConversionReport:
    """A conversion that the program makes.

    Attributes:
        tensor: Name of the node that is converted.
        given: Value that it has.
        wanted: Value that is needed.
        cost: What it costs.
        users: Names of the nodes that need it.
        source: The line of the model that the tensor comes from.
        module: Path of the module that it comes from.
    """

    tensor: str
    given: str
    wanted: str
    cost: int
    users: Sequence[str]
    source: str | None
    module: str | None

    @classmethod
    def of(cls, one: Conversion) -> ConversionReport:
        """Return the document of a conversion."""
        from exirkit.ir import locate

        place = locate(one.tensor)
        users = [use.user.name for use in one.uses]
        return cls(one.tensor.name, one.given, one.wanted, one.cost, users, place.source, place.module)


@dataclass(frozen=True)
class MethodValues:
    """What is chosen in one method.

    Attributes:
        name: Its name.
        values: How many tensors have each value.
        cost: What everything costs.
        around_every_call: What it would cost with conversions around every call.
        stored: Stored tensors that are converted while the program is lowered.
        conversions: Conversions that the program makes.
        nodes: The nodes that were asked about.
    """

    name: str
    values: Mapping[str, int]
    cost: int
    around_every_call: int
    stored: int
    conversions: list[ConversionReport]
    nodes: Sequence[Diagnostic]


@dataclass(frozen=True)
class FactReport:
    """What is known of a tensor.

    Attributes:
        tensor: Name of the node.
        operator: Its operator, or what else the node is.
        fact: What is known.
        is_known: Whether that is more than its dtype says.
        row: The row that says it: `FILE:LINE`.
        source: The line of the model that the tensor comes from.
        module: Path of the module that it comes from.
    """

    tensor: str
    operator: str
    fact: str
    is_known: bool
    row: str | None
    source: str | None
    module: str | None


@dataclass(frozen=True)
class MethodFacts:
    """What is inferred in one method.

    Attributes:
        name: Its name.
        tensors: What is known of its tensors.
        nodes: The nodes that were asked about.
    """

    name: str
    tensors: Sequence[FactReport]
    nodes: Sequence[Diagnostic]


@dataclass(frozen=True)
class PropagationExplainReport:
    """The document of `exirkit propagation explain`."""

    target: str
    propagation: str
    methods: Sequence[MethodValues | MethodFacts]
    ok: bool = True


@propagation_app.command()
def explain(
    target: ModelTarget,
    propagation: Annotated[
        str, typer.Option("--propagation", metavar="FILE.yaml|NAME", help="The analysis.", show_default=False)
    ],
    node: Annotated[
        str | None, typer.Option(metavar="NAME", help="Say why one tensor has its value.", show_default=False)
    ] = None,
    method: MethodName = None,
    strict: Strict = False,
    libraries: Libraries = None,
    json: Json = False,
) -> None:
    """Show what a propagation chooses in the Edge program of a model, or why for one node.

    Branches and bodies of control flow are chosen for on their own, and shown behind the method that calls them.

    Of an analysis that infers it shows what is known of the tensors, of one that demands what is needed of them.

    For a node: the row that speaks of it, what its neighbours want, what is converted for it, and what everything would
    cost if its value were another one.
    """
    source = parse_source(target)
    with Steps() as steps:
        with steps.phase("load", "loading torch"):
            from exirkit.patterns import Demands, Notes, Propagation, load_analysis
            from exirkit.program import to_edge

        made = load_analysis(propagation).require_valid()
        exported = export_target(source, steps, strict=strict)
        names = sorted(exported.only(method).programs)
        edge = to_edge(exported.programs, progress=steps)
        steps("solving")
        programs = {name: edge.exported_program(name) for name in names}
        if isinstance(made, Propagation):
            report, known = _chosen(target, made, programs, node)
        elif isinstance(made, Demands):
            report, known = _needed(target, made, programs, node)
        elif isinstance(made, Notes):
            assert made.uses is not None
            report, known = _inferred(target, made.uses, programs, node)
        else:
            report, known = _inferred(target, made, programs, node)
    accounts = [one for each in report.methods for one in each.nodes]
    if node is not None and not accounts:
        raise unknown_name("the model has no node", node.removeprefix("%"), known)
    if json:
        print_json(report)
    elif accounts:
        for one in accounts:
            print_text(one.render())
    else:
        for each in report.methods:
            _print_facts(each) if isinstance(each, MethodFacts) else _print_values(each)


def _chosen(
    target: str, made: Propagation, programs: Mapping[str, ExportedProgram], node: str | None
) -> tuple[PropagationExplainReport, list[str]]:
    """Return what is chosen, and the names of all nodes."""
    from exirkit.ir import called_graphs
    from exirkit.passes import convertible_inputs
    from exirkit.patterns import account_of_node, problem_of, solve

    methods: list[MethodValues | MethodFacts] = []
    known: list[str] = []
    for name, program in programs.items():
        paths = {id(module): path for path, module in program.graph_module.named_modules()}
        for module in called_graphs(program.graph_module):
            is_body = module is not program.graph_module
            problem = problem_of(made, module.graph, {} if is_body else convertible_inputs(program))
            solution, around = solve(problem), solve(problem, "local")
            nodes = {one.name: one for one in module.graph.nodes}
            known += list(nodes)
            found = nodes.get((node or "").removeprefix("%"))
            asked = [] if found is None else [account_of_node(solution, found)]
            shown = f"{name}.{paths[id(module)]}" if is_body else name
            methods.append(_values(shown, solution, around, asked))
    return PropagationExplainReport(target, made.model.id, methods), known


def _inferred(
    target: str, made: Inference, programs: Mapping[str, ExportedProgram], node: str | None
) -> tuple[PropagationExplainReport, list[str]]:
    """Return what is inferred, and the names of all nodes."""
    from exirkit.ir import control_flow_call
    from exirkit.passes import convertible_inputs
    from exirkit.patterns import InferredValues, account_of_fact

    methods: list[MethodValues | MethodFacts] = []
    known: list[str] = []
    for name, program in programs.items():
        pending = [(name, InferredValues(made, stored=convertible_inputs(program).get, graph=program.graph))]
        for shown, values in pending:
            assert values.graph is not None
            nodes = {one.name: one for one in values.graph.nodes}
            known += list(nodes)
            found = nodes.get((node or "").removeprefix("%"))
            asked = [] if found is None else [account_of_fact(values, found)]
            methods.append(MethodFacts(shown, _facts(values), asked))
            for one in nodes.values():
                call = control_flow_call(one)
                if call is not None:
                    names = [str(each.target) for each in one.all_input_nodes if each.op == "get_attr"]
                    pending += [
                        (f"{shown}.{path}", body) for path, body in zip(names, values.bodies(one), strict=False)
                    ]
    return PropagationExplainReport(target, made.model.id, methods), known


def _needed(
    target: str, made: Demands, programs: Mapping[str, ExportedProgram], node: str | None
) -> tuple[PropagationExplainReport, list[str]]:
    """Return what is needed, and the names of all nodes."""
    from exirkit.ir import control_flow_call
    from exirkit.patterns import NeededRanges, account_of_need

    methods: list[MethodValues | MethodFacts] = []
    known: list[str] = []
    for name, program in programs.items():
        pending = [(name, NeededRanges(made, program.graph))]
        for shown, needed in pending:
            nodes = {one.name: one for one in needed.graph.nodes}
            known += list(nodes)
            found = nodes.get((node or "").removeprefix("%"))
            asked = [] if found is None else [account_of_need(needed, found)]
            methods.append(MethodFacts(shown, _needs(needed), asked))
            for one in nodes.values():
                if control_flow_call(one) is not None:
                    names = [str(each.target) for each in one.all_input_nodes if each.op == "get_attr"]
                    pairs = zip(names, needed.bodies(one), strict=False)
                    pending += [(f"{shown}.{path}", body) for path, body in pairs]
    return PropagationExplainReport(target, made.model.id, methods), known


def _needs(needed: NeededRanges) -> list[FactReport]:
    from exirkit.ir import locate, operator_name
    from exirkit.patterns import widest

    found = []
    shorter = dict(needed.shorter())
    for node in needed.graph.nodes:
        need = needed.of(node)
        if need is None:
            continue
        place, row = locate(node), shorter.get(node)
        called = operator_name(node.target) or node.op if node.op == "call_function" else node.op
        is_known = (need.lo, need.hi) != ((whole := widest(node.meta["val"].dtype)).lo, whole.hi)
        text = f"[{need.lo:g}, {need.hi:g}] needed{', replaced' if row is not None else ''}"
        at = None if row is None else row.place()
        found.append(FactReport(node.name, called, text, is_known, at, place.source, place.module))
    return found


def _facts(values: InferredValues) -> list[FactReport]:
    from exirkit.ir import locate, operator_name
    from exirkit.patterns import facts_of

    assert values.graph is not None
    domain = values.inference.domain
    found = []
    for node, fact in facts_of(values, values.graph):
        row, place = values.row(node), locate(node)
        is_known = fact != domain.unknown(node.meta["val"])
        called = operator_name(node.target) or node.op if node.op == "call_function" else node.op
        at = None if row is None else row.place()
        found.append(FactReport(node.name, called, domain.text(fact), is_known, at, place.source, place.module))
    return found


def _print_facts(one: MethodFacts) -> None:
    known = [each for each in one.tensors if each.is_known]
    print_line(f"{one.name}: more than the dtype is known of {len(known)} of {counted(len(one.tensors), 'tensor')}")
    if known:
        rows = [
            [each.tensor, each.operator, each.fact, source_text(each.source, None), each.module or ""] for each in known
        ]
        print_table(["tensor", "operator", "known", "source", "module"], rows)


def _values(name: str, solution: Solution, around: Solution, asked: Sequence[NodeAccount]) -> MethodValues:
    values = dict.fromkeys(solution.problem.made.names, 0)
    for tensor in solution.problem.gives:
        values[solution.value_of(tensor) or ""] += 1
    stored = len(solution.conversions) - len(solution.paid)
    return MethodValues(
        name, values, solution.cost, around.cost, stored, [ConversionReport.of(one) for one in solution.paid],
        [one.diagnostic() for one in asked],
    )  # fmt: skip


def _print_values(one: MethodValues) -> None:
    values = ", ".join(f"{count} {value}" for value, count in one.values.items())
    stored = f", {counted(one.stored, 'stored tensor')} converted while lowering" if one.stored else ""
    count = counted(len(one.conversions), "conversion")
    print_line(f"{one.name}: {values}; {count}{stored}")
    print_line(f"  cost {one.cost:,}; with conversions around every call {one.around_every_call:,}")
    if one.conversions:
        rows = [
            [each.tensor, f"{each.given} -> {each.wanted}", f"{each.cost:,}", ", ".join(each.users),
             source_text(each.source, None), each.module or ""]
            for each in one.conversions
        ]  # fmt: skip
        print_table(["tensor", "conversion", ">cost", "users", "source", "module"], rows)


@propagation_app.command()
def schema(
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE.json")] = None,
) -> None:
    """Print the JSON Schema of propagations, with which editors complete and check them."""
    from exirkit.patterns import propagation_schema_text

    text = propagation_schema_text()
    if output is None:
        typer.echo(text, nl=False)
    else:
        check_writable(output, ".json")
        write_text(output, text)
