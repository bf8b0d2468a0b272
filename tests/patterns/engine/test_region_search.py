"""Sequences of rewrites that gain more than the best one at each node, with a budget of attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from exirkit import ApplyRules, ExecutorchBackendConfig, UsageError, to_edge
from exirkit.ir import underlying
from exirkit.patterns import (
    Application,
    CompiledRule,
    KernelCost,
    RewriteOptions,
    Target,
    chosen_by_cost,
    load_book,
    parse_book,
    read_target,
)

X = torch.rand(2, 3, 4, 5)
HEAD = "rulebook: 1\nnamespace: t\nrules:\n"
COSTS = {"sin": 10, "cos": 10, "tan": 12, "exp": 1, "neg": 1, "abs": 1, "sqrt": 8}


def target(**costs: float) -> Target:
    kernels = {f"aten.{name}.default": KernelCost(call_ns=cost) for name, cost in {**COSTS, **costs}.items()}
    return Target(target=1, name="t", kernels=kernels)


def rule(name: str, match: str, replace: str, choose: str = "cost") -> str:
    """Write a rule of calls of one operand; what it computes does not matter here."""

    def calls(text: str) -> str:
        made = "x"
        for one in reversed(text.split()):
            made = f"aten.{one}.default({made})"
        return made

    lines = [f"id: t.{name}", 'vars: {x: "f32 [*S]"}', f"choose: {choose}", f"match: return {calls(match)}"]
    lines += [f"replace: return {calls(replace)}", "equiv: {rtol: 1, atol: 9}"]
    return "- " + "\n  ".join(lines) + "\n"


class Called(torch.nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def rewritten(
    function: Callable[[torch.Tensor], torch.Tensor], rules: Sequence[CompiledRule], described: Target, search: int
) -> tuple[list[str], list[str]]:
    """Return the calls of the program, and the rules that were applied."""
    applied: list[Application] = []
    options = RewriteOptions(target=described, search=search, on_application=applied.append)
    edge = to_edge(torch.export.export(Called(function), (X,)))
    program = edge.transform([ApplyRules(list(rules), options)]).exported_program()
    calls = [underlying(node.target)._schema.name for node in program.graph.nodes if node.op == "call_function"]
    return [one.partition("::")[2] for one in calls], [one.rule for one in applied]


# A step that costs more by itself lets one match that gains.
ENABLING = rule("open", "sin", "tan") + rule("close", "tan cos", "exp")
# What gains most at one node takes what a better one needs.
BLOCKING = rule("near", "neg sin", "sqrt") + rule("far", "sin cos", "exp")
# What gains at once gains less than what needs a second step.
DECOY = ENABLING + rule("decoy", "sin", "abs neg")
# A rule without a choice comes in between.
BETWEEN = rule("open", "sin", "tan") + rule("then", "tan cos", "abs abs", "always")


def sine_of_cosine(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(torch.cos(x))


@pytest.mark.parametrize(
    ("book", "function", "greedy", "found"),
    [
        (ENABLING, sine_of_cosine, ["cos", "sin"], ["exp"]),
        (BLOCKING, lambda x: torch.neg(torch.sin(torch.cos(x))), ["cos", "sqrt"], ["exp", "neg"]),
        (DECOY, sine_of_cosine, ["cos", "neg", "abs"], ["exp"]),
        (BETWEEN, sine_of_cosine, ["cos", "sin"], ["abs", "abs"]),
    ],
    ids=["enabling", "blocking", "decoy", "between"],
)
def test_sequences_are_found(
    book: str, function: Callable[[torch.Tensor], torch.Tensor], greedy: list[str], found: list[str]
) -> None:
    rules = parse_book(HEAD + book).rules
    assert rewritten(function, rules, target(), 0)[0] == greedy
    assert rewritten(function, rules, target(), 100)[0] == found


def test_a_sequence_that_does_not_gain_is_not_made() -> None:
    # 12 and then 19 instead of 20: less than a twentieth of what goes, 20 and 12.
    calls, applied = rewritten(sine_of_cosine, parse_book(HEAD + ENABLING).rules, target(exp=19.5), 100)
    assert calls == ["cos", "sin"]
    assert not applied
    assert rewritten(sine_of_cosine, parse_book(HEAD + ENABLING).rules, target(exp=17), 100)[0] == ["exp"]


def test_what_others_gain_anyway_is_not_counted() -> None:
    # The rule about `abs` applies by itself: it pays for no detour of its neighbour.
    book = HEAD + rule("detour", "sin", "tan") + rule("own", "sqrt", "exp")
    calls, applied = rewritten(lambda x: torch.sin(torch.sqrt(x)), parse_book(book).rules, target(), 100)
    assert calls == ["exp", "sin"]
    assert applied == ["t.own"]


def test_a_target_without_the_calls_in_between_ends_a_sequence() -> None:
    lacking = target().model_copy(update={"kernels": {k: v for k, v in target().kernels.items() if "tan" not in k}})
    assert rewritten(sine_of_cosine, parse_book(HEAD + ENABLING).rules, lacking, 100)[0] == ["cos", "sin"]


def test_the_budget_ends_the_search() -> None:
    rules = parse_book(HEAD + ENABLING).rules

    def two(x: torch.Tensor) -> torch.Tensor:
        return sine_of_cosine(torch.neg(sine_of_cosine(x)))

    assert rewritten(two, rules, target(), 100)[0] == ["exp", "neg", "exp"]
    # The second of them is visited first.
    assert rewritten(two, rules, target(), 2)[0] == ["cos", "sin", "neg", "exp"]
    assert rewritten(two, rules, target(), 1)[0] == ["cos", "sin", "neg", "cos", "sin"]


def turned(x: torch.Tensor) -> torch.Tensor:
    """Channels last and back, around what does not mind."""
    y = x.permute(0, 2, 3, 1)
    return torch.relu(torch.sigmoid(torch.exp(y))).permute(0, 3, 1, 2)


def test_permutations_that_meet_cancel() -> None:
    host = read_target("official_host")
    rules = [*load_book("canonicalize").rules, *map(chosen_by_cost, load_book("layout").rules)]
    before = ["permute_copy", "exp", "sigmoid", "relu", "permute_copy"]
    assert rewritten(turned, rules, host, 0)[0] == before
    assert rewritten(turned, rules, host, 200)[0] == ["exp", "sigmoid", "relu"]


def test_programs_are_searched_when_asked_to() -> None:
    exported = torch.export.export(Called(turned), (torch.rand(1, 16, 32, 32),))
    names = []
    for search in (0, 200):
        made = to_edge(exported).to_executorch(ExecutorchBackendConfig(optimization_level=2, search=search))
        names.append({one.name for one in made.executorch_program.execution_plan[0].operators})
    assert "aten::permute_copy" not in names[1]
    assert names[0] != names[1]
    with pytest.raises(UsageError, match="EK706"):
        to_edge(exported).to_executorch(ExecutorchBackendConfig(optimization_level=2, search=-1))
