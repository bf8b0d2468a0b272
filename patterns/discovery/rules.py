"""From pairs of graphs to rules: what shipped rules do already is left out, and what trials reject too."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.export import ExportedProgram

from exirkit.ir import GraphEditor
from exirkit.patterns.books.loading import book_from_rules, load_book
from exirkit.patterns.books.model import Equivalence, Rule, RuleBook, write_book
from exirkit.patterns.checking.checks import TRIALS, check_rule
from exirkit.patterns.discovery.enumeration import LEAST_GAIN, Candidate, Enumeration
from exirkit.patterns.discovery.terms import Term, matches
from exirkit.patterns.discovery.vocabulary import Vocabulary, samples
from exirkit.patterns.engine.rewriting import RewriteOptions, RuleEngine
from exirkit.patterns.operators.targets import Target
from exirkit.patterns.proving.campaign import certificate_of
from exirkit.patterns.proving.certificates import Certificate

SHIPPED = ("canonicalize", "algebra", "fold", "copies", "finite", "ranges", "host")
"""Books of `-O2`: what they do needs no new rule."""

_SEEDS = 3
_WHY = "found by enumeration, with arithmetic in another order"
# With a tolerance infinities and NaN have to agree as well: a rule that no person wrote gives up nothing.
_TOLERANCES = (Equivalence(), Equivalence(rtol=1e-4, atol=1e-5, values="special", why=_WHY))


@dataclass(frozen=True)
class Discovered:
    """A rule that was found.

    Attributes:
        rule: The rule, which is applied where the target says that it gains.
        candidate: The graphs.
        certificate: What a solver shows of it; None if it was not asked.
    """

    rule: Rule
    candidate: Candidate
    certificate: Certificate | None = None

    @property
    def gain(self) -> float:
        """How many times as long the graph takes that is replaced, by the costs of the target."""
        fast = self.candidate.replacement_ns
        return self.candidate.pattern_ns / fast if fast else math.inf

    @property
    def key(self) -> tuple[str, ...]:
        """What rules have in common that are the same but for the names of variables."""
        texts = (self.rule.match, str(self.rule.replace), *(f"{name}: {text}" for name, text in self.rule.vars.items()))
        words = dict.fromkeys(re.findall(r"\w+", self.rule.match))
        names = {name: f"v{place}" for place, name in enumerate(word for word in words if word in self.rule.vars)}
        return tuple(sorted(re.sub(r"\w+", lambda found: names.get(found[0], found[0]), one) for one in texts))

    def with_doc(self, more: str) -> Discovered:
        """Return the rule with more said of it."""
        return replace(self, rule=self.rule.model_copy(update={"doc": f"{self.rule.doc} {more}"}))


@dataclass
class Tally:
    """What became of pairs.

    Attributes:
        graphs: How many graphs were compared.
        pairs: How many pairs of equal results and different cost, instances of earlier rules aside.
        known: Pairs that shipped rules rewrite to something as cheap.
        undone: Pairs whose cheaper graph a shipped rule makes more expensive, since other targets want that.
        rejected: Pairs that trials tell apart.
    """

    graphs: int = 0
    pairs: int = 0
    known: int = 0
    undone: int = 0
    rejected: int = 0


class Discovery:
    """Looks for rules.

    Args:
        vocabulary: What graphs are made of.
        target: What calls cost.
        seed: Of samples and trials.
        trials: Positive trials per rule.
        proves: Ask the solver of each rule.
        books: Books whose rules are known.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        target: Target,
        *,
        seed: int = 0,
        trials: int = TRIALS,
        proves: bool = False,
        books: Sequence[str] = SHIPPED,
    ) -> None:
        self.vocabulary = vocabulary
        self.target = target
        self.tally = Tally()
        self._seed = seed
        self._trials = trials
        self._proves = proves
        self._engine = RuleEngine([rule for name in books for rule in load_book(name).require_valid().rules])
        self._names: set[str] = set()

    def run(self, calls: int, progress: Callable[[str], None] = lambda _: None) -> Iterator[Discovered]:
        """Yield rules about graphs of up to so many calls, those of fewer first.

        Args:
            calls: How many.
            progress: Called with what is done.

        Raises:
            UsageError: EK280, proofs are asked for and there is no solver.
        """
        enumeration = Enumeration(self.vocabulary, self.target, self._seed)
        reducible: dict[str, list[Term]] = {}

        def is_reducible(term: Term) -> bool:
            assert term.template is not None
            return any(matches(one, term) for one in reducible.get(term.template.text, ()))

        for size in range(1, calls + 1):
            progress(f"enumerating graphs of {size} calls")
            candidates = enumeration.of_size(size, is_reducible)
            self.tally.graphs = enumeration.seen
            for number, one in enumerate(candidates, 1):
                if is_reducible(one.pattern):
                    continue
                progress(f"{size} calls, pair {number} of {len(candidates)}")
                self.tally.pairs += 1
                made = self._judged(one)
                if made is False:
                    continue
                assert one.pattern.template is not None
                reducible.setdefault(one.pattern.template.text, []).append(one.pattern)
                if isinstance(made, Discovered):
                    yield made

    def programs(self, one: Discovered) -> list[tuple[ExportedProgram, tuple[torch.Tensor, ...]]]:
        """Return the graph that a rule replaces, and the one that takes its place, as programs with inputs."""
        return [program_of(self.vocabulary, term) for term in (one.candidate.pattern, one.candidate.replacement)]

    def _judged(self, one: Candidate) -> Discovered | bool:
        """Return the rule of a pair; True if it is known, and False if it is wrong."""
        if self._cost_of_shipped(one.pattern) < LEAST_GAIN * max(one.replacement_ns, 1e-9):
            self.tally.known += 1
            return True
        if one.replacement.size and self._cost_of_shipped(one.replacement) > one.replacement_ns:
            # A shipped rule that is always applied would undo this one.
            self.tally.undone += 1
            return False
        for equiv in _TOLERANCES:
            rule = self._accepted(self._rule(one, equiv))
            if rule is None:
                continue
            rule = self._wider(rule, one)
            certificate = self._proof(rule) if self._proves else None
            if certificate is not None and certificate.status == "refuted":
                break
            self._names.add(rule.id)
            return Discovered(rule, one, certificate)
        self.tally.rejected += 1
        return False

    def _accepted(self, rule: Rule) -> Rule | None:
        """Return a rule that trials accept, and None for others."""
        book = book_from_rules([rule])
        if book.errors:
            return None
        compiled = book.rules[0]
        # What only some draws tell apart is not to be left to those who check the book.
        seeds = range(_SEEDS * self._seed, _SEEDS * (self._seed + 1))
        return rule if all(check_rule(compiled, trials=self._trials, seed=one).is_accepted for one in seeds) else None

    def _proof(self, rule: Rule) -> Certificate:
        book = book_from_rules([rule])
        return certificate_of(book.rules[0], book)

    def _wider(self, rule: Rule, one: Candidate) -> Rule:
        """Return a rule for more shapes, and with variables for numbers, as far as trials accept it."""
        types = {re.sub(r"\[.*\]", "[*S]", text) for text in rule.vars.values()}
        if len(set(rule.vars.values())) == 1:
            rule = self._accepted(rule.model_copy(update={"vars": dict.fromkeys(rule.vars, *types)})) or rule
        shared = sorted(one.pattern.literals & one.replacement.literals)
        for kinds in (
            ({"float": "scalar", "int": "int"}, {"float": "scalar", "int": "int in [-2, 2]"}) if shared else ()
        ):
            names = {literal: f"{literal[0][0]}{place}" for place, literal in enumerate(shared)}
            variables = {name: kinds[literal[0]] for literal, name in names.items()}
            texts = {"match": one.pattern.statements(names), "replace": one.replacement.statements(names)}
            found = self._accepted(rule.model_copy(update={"vars": {**rule.vars, **variables}, **texts}))
            if found is not None:
                return found
        return rule

    def _cost_of_shipped(self, term: Term) -> float:
        """Return what shipped rules make of a graph, in nanoseconds."""
        program, _ = program_of(self.vocabulary, term)
        editor = GraphEditor(program)
        self._engine.run(editor, RewriteOptions(target=self.target))
        return sum(map(self.target.cost_of, editor.graph.nodes))

    def _rule(self, one: Candidate, equiv: Equivalence) -> Rule:
        names = "-".join(
            [*one.pattern.operators(), "to", *(one.replacement.operators() if one.replacement.size else ["nothing"])]
        )
        name = f"{self.vocabulary.name}.{names}"
        number = 1
        while (f"{name}-{number}" if number > 1 else name) in self._names:
            number += 1
        variables = {key: text for key, text in self.vocabulary.variables.items() if key in one.pattern.variables}
        return Rule(
            id=f"{name}-{number}" if number > 1 else name,
            doc=f"Found by enumeration: `{one.pattern.text}` is `{one.replacement.text}`.",
            choose="cost",
            vars=variables,
            match=one.pattern.statements({}),
            replace=one.replacement.statements({}),
            equiv=equiv,
        )


class _Graph(nn.Module):
    def __init__(self, term: Term, names: Sequence[str]) -> None:
        super().__init__()
        self.term = term
        self.names = names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.term.compute(dict(zip(self.names, inputs, strict=True)))


def program_of(vocabulary: Vocabulary, term: Term) -> tuple[ExportedProgram, tuple[torch.Tensor, ...]]:
    """Return a graph as a program, and inputs for it, in the sizes that costs are of."""
    given = samples(vocabulary, 2, 0)
    names = [name for name in vocabulary.variables if name in term.variables]
    inputs = tuple(given[name].float() for name in names)
    return torch.export.export(_Graph(term, names), inputs, strict=False), inputs


def discovered_book_text(vocabularies: Sequence[Vocabulary], found: Sequence[Discovered]) -> str:
    """Return a book of rules that were found, as YAML."""
    rules = tuple(one.rule for one in found)
    return write_book(RuleBook(rulebook=1, doc=" ".join(one.doc for one in vocabularies), rules=rules))
