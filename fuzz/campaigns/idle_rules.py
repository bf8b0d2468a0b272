"""Why a rule under test never fired: its pattern in a program, and how far the match gets there."""

from __future__ import annotations

from exirkit.fuzz.compilers import asked_attributes
from exirkit.fuzz.generation import RulePatterns, SeededChoices, program_with_pattern
from exirkit.fuzz.programs import build
from exirkit.ir import DiagnosticError, GraphEditor, called_graphs, copy_program
from exirkit.patterns import CompiledRule, explain_rule, name_of, put_attributes
from exirkit.program import to_edge

_MOST = 2
_SHOWN = 6


def why_idle(rule: CompiledRule) -> list[str]:
    """Return what is known of why a rule of Edge programs does not fire where its pattern is.

    Args:
        rule: A rule that fired in no program.
    """
    made = program_with_pattern(SeededChoices(0), RulePatterns(rule), "match", 0)
    if made.source is None:
        return [
            "no program has its pattern: no values were found that its types and conditions admit and programs have"
        ]
    try:
        edge = to_edge(dict(build(made.program))).exported_program("forward")
        editor = GraphEditor(copy_program(edge))
        put_attributes(editor, asked_attributes([rule]))
        found = explain_rule(rule, editor, most=_MOST)
    except DiagnosticError as error:
        return [error.diagnostics[0].headline()]
    if not found.tried:
        graphs = called_graphs(edge.graph_module)
        calls = [name_of(node.target) for one in graphs for node in one.graph.nodes if hasattr(node.target, "_schema")]
        shown = ", ".join(list(dict.fromkeys(reversed(calls)))[:_SHOWN])
        return [
            f"no call of the Edge program has an operator at which the pattern starts: {', '.join(found.operators)}",
            f"after lowering to Edge the program calls {shown}",
        ]
    reasons = [
        f"{one.mismatch.message} at {one.place.text or one.node}; expected {one.mismatch.expected}"
        for one in found.nodes
        if one.mismatch is not None
    ]
    return list(dict.fromkeys(reasons))[:_MOST] or ["it fires in a program that has nothing but its pattern"]
