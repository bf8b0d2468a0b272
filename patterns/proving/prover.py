"""Proving a rule: pattern and replacement are run on symbols, on every path, and a solver compares the results."""

from __future__ import annotations

import ast
import hashlib
import itertools
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import torch
import z3

from exirkit.ir import operators_with
from exirkit.patterns.checking.pattern_execution import CannotRunError, PatternRun, Shape, shapes_of
from exirkit.patterns.checking.trials.open_arguments import least_values, open_arguments
from exirkit.patterns.checking.trials.trial_facts import TrialFacts
from exirkit.patterns.matching.compiled_rule import CompiledRule
from exirkit.patterns.proving import (
    distances,
    functions,
    indexing,
    movement,
    planes,
    pointwise,
    quantizers,
    sums,
    windows,
)
from exirkit.patterns.proving.assignments import Assigner, Scope
from exirkit.patterns.proving.elements import BITS, FLOATS, Elements, sizes_equal
from exirkit.patterns.proving.meanings import MOVERS, POINTWISE, SymbolicBuilder, plain_name
from exirkit.patterns.proving.paths import (
    TOO_MANY_PATHS,
    InfeasibleError,
    Path,
    UnprovedError,
    UnsupportedError,
    explore,
    integer,
    new_solver,
)
from exirkit.patterns.proving.real_terms import expanded
from exirkit.patterns.proving.tensors import SymbolicTensor
from exirkit.patterns.syntax.constant_names import FACTS
from exirkit.patterns.syntax.expressions import ExpressionError, TooLargeError, UndecidedError, truth
from exirkit.patterns.types.lists import AxesVariable, FactorsVariable, PermutationVariable, ShapeVariable
from exirkit.patterns.types.quantized import ParameterTensor
from exirkit.patterns.types.scalars import DtypeVariable, OperatorVariable
from exirkit.patterns.types.sizes import BroadcastDim, SequenceDim
from exirkit.patterns.types.tensors import TensorVariable

__all__ = [
    "Proof",
    "distances",
    "functions",
    "indexing",
    "movement",
    "planes",
    "pointwise",
    "prove",
    "quantizers",
    "sums",
    "windows",
]

_RAISED = (RuntimeError, TypeError, ValueError, LookupError, ArithmeticError, AssertionError, AttributeError)
_EFFORT = {"free": 3_000_000, "bits": 8_000_000, "reals": 8_000_000, "linear": 8_000_000}
_SECONDS = 60.0
_NO_TIME = "no time is left"
_ABOUT_DTYPES = re.compile(r"^[^=]*(promote|dtype|lossless|is_float|is_integer|is_signed)")
Arithmetic = Literal["free", "bits", "zeros", "reals"]
_COMPARISON = re.compile(r"all_eq\(\w+, *[\w.-]+\)")
_STRENGTH: tuple[Arithmetic, ...] = ("free", "bits", "zeros", "reals")


@dataclass
class Proof:
    """What is shown of a rule.

    Attributes:
        rule: Its id.
        status: `proved`: for all sizes; `bounded`: for all sizes up to a bound; `open`: nothing is shown.
        ranks: `all`: of all ranks that its types admit; otherwise what was enumerated, as text.
        arithmetic: `free`: bit for bit, whatever arithmetic of floats computes; `bits`: bit for bit, as IEEE 754
            and two's complement say; `zeros`: likewise, but for the sign of zeros; `reals`: over real numbers.
        axioms: Laws used beyond those of the solver's theories.
        paths: Paths on which pattern and conditions hold, each of them compared.
        digest: Of the equations that the solver confirmed.
        most_dims: Most dims of sequences, if there are fewer than usual.
        reason: Why it is open.
        model: Values of variables for which the results may differ.
    """

    rule: str
    status: Literal["proved", "bounded", "open"]
    ranks: str = ""
    arithmetic: Arithmetic | Literal[""] = ""
    axioms: tuple[str, ...] = ()
    paths: int = 0
    digest: str = ""
    most_dims: int | None = None
    reason: str | None = None
    model: dict[str, Any] | None = field(default=None, compare=False)


class _DiffersError(Exception):
    """Results may differ; a model says for which values."""

    def __init__(self, text: str, model: Any = None, names: Mapping[str, Any] | None = None, path: Any = None) -> None:
        super().__init__(text)
        self.model = model
        self.names = names or {}
        self.path = path


def prove(
    rule: CompiledRule, *, bound: int | None = None, seconds: float = _SECONDS, most_dims: int | None = None
) -> Proof:
    """Try to prove a rule.

    Where there are too many combinations of ranks, fewer dims are tried, and the proof says so.

    Args:
        rule: A compiled rule.
        bound: Sizes that have to be enumerated go up to it; None: such a rule stays open.
        seconds: Time after which the prover gives up.
        most_dims: Most dims of sequences, as a proof said; None: as many as can be.
    """
    unsupported = _unsupported(rule)
    if unsupported is not None:
        return Proof(rule.id, "open", reason=unsupported)
    usual = _most_dims(rule, lifts_to_all_ranks(rule))
    tried = [usual, *(one for one in (2,) if one < usual)] if most_dims is None else [most_dims]
    for dims in tried:
        found = _proved(rule, bound, seconds, dims)
        if found.status != "open":
            return replace(found, most_dims=None if dims == usual else dims)
        if not any(one in (found.reason or "") for one in (_NO_TIME, TOO_MANY_PATHS)):
            break
    return found


def _proved(rule: CompiledRule, bound: int | None, seconds: float, most_dims: int) -> Proof:
    options: dict[str, Any] = {"bound": bound, "seconds": seconds, "most_dims": most_dims}
    first = _Attempt(rule, is_real=False, **options).proof()
    if first.status != "open" or rule.rule.equiv.mode == "exact" or not _has_floats(rule):
        return first
    if first.reason == _NO_TIME:
        # With fewer dims it may be shown bit for bit.
        return first
    second = _Attempt(rule, is_real=True, **options).proof()
    if second.status != "open":
        return second
    chosen = first if first.model is not None or second.model is None else second
    return replace(chosen, reason=f"{first.reason}; over real numbers {second.reason}")


def _unsupported(rule: CompiledRule) -> str | None:
    if rule.pattern.kind != "calls":
        return "it is about stored values, inputs or outputs of a program"
    if rule.opaque:
        return f"opaque in: {', '.join(rule.opaque)}"
    if rule.rule.equiv.strides:
        return "it makes a claim about layouts in memory, which proofs do not see"
    if rule.rule.equiv.rng is not None:
        return "random numbers"
    if rule.attributes and rule.uses_attributes:
        return "attributes of calls"
    return None


def _has_floats(rule: CompiledRule) -> bool:
    """Whether something in a rule is a float: a variable, or what an integer is dequantized to."""
    if any(plain_name(one) in quantizers.QUANTIZERS for one in rule.operators):
        return True
    return any(one in FLOATS for variable in rule.variables.values() for one in variable.dtype_options())


class _Attempt:
    def __init__(self, rule: CompiledRule, *, is_real: bool, bound: int | None, seconds: float, most_dims: int) -> None:
        self.rule = rule
        self.is_real = is_real
        self.bound = bound
        self.deadline = time.process_time() + seconds
        self.lifts = lifts_to_all_ranks(rule)
        self.scope = Scope(most_dims, is_parametric(rule), is_real, opaque_parameters(rule))
        self.assigner = Assigner(rule, self.scope)
        self.compared = 0
        self.axioms: set[str] = set()
        self.strength = 0
        self.was_bounded = False
        self.last = "free"
        self.has_elements = False
        self.needs_elements = any(op in operators_with("undefined_for_empty") for op in rule.operators)
        self.known_dtypes: dict[Any, bool] = {}
        self.digest = hashlib.sha256()

    def proof(self) -> Proof:
        rule = self.rule
        try:
            for shape in shapes_of(rule.pattern):
                for tuning in rule.tunings:
                    self._explore(shape, tuning)
        except _DiffersError as error:
            return Proof(rule.id, "open", reason=str(error), model=_values_of(error))
        except (UnsupportedError, UnprovedError) as error:
            return Proof(rule.id, "open", reason=str(error))
        except (CannotRunError, UndecidedError, ExpressionError, z3.Z3Exception, *_RAISED) as error:
            text = str(error).splitlines()[0] if str(error) else ""
            return Proof(rule.id, "open", reason=f"{type(error).__name__}: {text}")
        if self.compared and not self.has_elements:
            return Proof(rule.id, "open", reason="its results have no elements, whatever the sizes are")
        if not self.compared:
            return Proof(rule.id, "open", reason="no path on which pattern and conditions hold was found")
        return Proof(
            rule.id, "bounded" if self.was_bounded else "proved", self._ranks(), _STRENGTH[self.strength],
            tuple(sorted(self.axioms)), self.compared, self.digest.hexdigest()[:20],
        )  # fmt: skip

    def _ranks(self) -> str:
        met = self.scope.met
        bound = f"sizes that are enumerated up to {self.bound}; " if self.was_bounded else ""
        if not met or self.lifts:
            return f"{bound}all"
        return bound + "; ".join(f"{name}: {min(found)} to {max(found)}" for name, found in sorted(met.items()))

    def _explore(self, shape: Shape, tuning: Mapping[str, int]) -> None:
        opened = least_values(open_arguments(self.rule.pattern))

        def run(path: Path) -> None:
            if time.process_time() > self.deadline:
                raise UnsupportedError(_NO_TIME)
            self._run(path, Shape(**{**shape.__dict__, "opened": opened}), tuning)

        if any(True for one in open_arguments(self.rule.pattern) if not one.is_required):
            raise UnsupportedError("arguments that the pattern leaves open")
        explore(run, bound=self.bound)

    def _run(self, path: Path, shape: Shape, tuning: Mapping[str, int]) -> None:
        rule = self.rule
        path.is_real = self.is_real
        names = {**self.assigner.values(path, self._may_be), **tuning}
        if self.needs_elements:
            self.axioms.add("tensors have elements: an operator of the rule is not defined for those without")
            for value in names.values():
                for size in value.shape if isinstance(value, SymbolicTensor) else ():
                    path.assume(integer(size) > 0)
        builder = SymbolicBuilder(path)
        try:
            expected = PatternRun(rule.pattern, names, shape, builder).run()
        except _RAISED as error:
            raise UnsupportedError(f"the pattern: {type(error).__name__}: {error}") from error
        names[FACTS] = TrialFacts(rule, names, shape)
        self._assume_guards(path, names)
        path.check()
        path.is_replacement = True
        try:
            found = self._replaced(names, builder)
        except TooLargeError:
            self.axioms.add("tensors that the rule computes have at most 2**32 elements; it is not applied otherwise")
            raise InfeasibleError from None
        except ExpressionError as error:
            raise UnsupportedError(f"the replacement: {error.message}") from error
        except UnprovedError as error:
            raise _DiffersError(str(error), _model(path), names, path) from error
        self._compare(path, names, expected, found)
        self.compared += 1
        self.was_bounded |= path.was_bounded

    def _may_be(self, dtypes: Mapping[str, torch.dtype]) -> bool:
        """Whether conditions about dtypes alone hold for tensors of these dtypes, of some ranks."""
        key = tuple(sorted((name, str(one)) for name, one in dtypes.items()))
        if key not in self.known_dtypes:
            self.known_dtypes[key] = self._dtypes_fit(dtypes)
        return self.known_dtypes[key]

    def _dtypes_fit(self, dtypes: Mapping[str, torch.dtype]) -> bool:
        guards = [
            one
            for one in self.rule.guards
            if one.needs - {FACTS} <= dtypes.keys() and not any(word in one.text for word in _SIZE_WORDS)
        ]
        if not guards:
            return True
        for dims in itertools.product((0, 1), repeat=len(dtypes)):
            names = {
                name: torch.ones((1,) * count, dtype=dtype)
                for (name, dtype), count in zip(dtypes.items(), dims, strict=True)
            }
            try:
                if all(truth(one.compiled(names)) is not False for one in guards if _ABOUT_DTYPES.search(one.text)):
                    return True
            except (ExpressionError, UndecidedError, *_RAISED):
                return True
        return False

    def _replaced(self, names: dict[str, Any], builder: SymbolicBuilder) -> list[Any]:
        return self.rule.replaced(names, builder)

    def _assume_guards(self, path: Path, names: dict[str, Any]) -> None:
        """Restrict the path to matches; a condition that has no meaning here is not assumed, which proves more."""
        for guard in self.rule.guards:
            if "static(" in guard.text or "maybe(" in guard.text:
                continue
            path.is_assuming = bool(_COMPARISON.fullmatch(guard.text.strip()))
            try:
                holds = truth(guard.compiled(names))
            except (UnsupportedError, ExpressionError, UndecidedError, *_RAISED):
                continue
            finally:
                path.is_assuming = False
            if holds is False:
                raise InfeasibleError

    def _compare(self, path: Path, names: Mapping[str, Any], expected: Sequence[Any], found: Sequence[Any]) -> None:
        if len(expected) != len(found):
            raise _DiffersError(f"{len(found)} results in place of {len(expected)}", _model(path), names, path)
        for one, other in zip(expected, found, strict=True):
            if not isinstance(one, SymbolicTensor) or not isinstance(other, SymbolicTensor):
                raise UnsupportedError("a result that is not a tensor")
            self._compare_results(path, names, one, other)

    def _compare_results(self, path: Path, names: Mapping[str, Any], one: Any, other: Any) -> None:
        if one.dtype != other.dtype:
            raise _DiffersError(f"{other.dtype} in place of {one.dtype}", _model(path), names, path)
        if one.dim() != other.dim():
            raise _DiffersError(f"{other.dim()} dims in place of {one.dim()}", _model(path), names, path)
        for at, (size, new) in enumerate(zip(one.shape, other.shape, strict=True)):
            if not sizes_equal(path, size, new):
                different = integer(size) != integer(new)
                raise _DiffersError(f"size {at} is {new} in place of {size}", _model(path, different), names, path)
        if not self.has_elements:
            solver = new_solver(_EFFORT["free"])
            solver.add(*path.conditions, *(integer(size) > 0 for size in one.shape))
            self.has_elements = solver.check() != z3.unsat
        if one is other:
            return
        modes = self._modes(one.dtype)
        failed: tuple[str, Any] = ("", None)
        for mode in modes:
            outcome, model = self._elements_agree(path, one, other, mode)
            if outcome:
                self.last = mode
                return
            failed = model
        text, model = failed
        raise _DiffersError(text, model, names, path)

    def _modes(self, dtype: torch.dtype) -> list[str]:
        """Return in which ways elements are compared, one after the other."""
        equiv = self.rule.rule.equiv
        if self.is_real:
            return ["reals", "linear"] if dtype in FLOATS else ["reals"]
        if dtype in FLOATS and (equiv.rtol is not None or equiv.atol is not None):
            # Results that may differ in their last bits are not compared bit for bit.
            return ["free"]
        return sorted(("free", "bits"), key=lambda mode: mode != self.last)

    def _elements_agree(self, path: Path, one: Any, other: Any, mode: str) -> tuple[bool, tuple[str, Any]]:
        is_linear = mode == "linear"
        elements = Elements(path, "reals" if is_linear else mode, is_linear=is_linear)
        index = tuple(z3.Int(f"i{at}") for at in range(one.dim()))
        inside = [z3.And(at >= 0, at < integer(size)) for at, size in zip(index, one.shape, strict=True)]
        elements.inside = inside
        a, b = one.at(elements, index), other.at(elements, index)
        if path.formulas and self.rule.rule.equiv.mode == "exact":
            raise UnsupportedError(f"bit for bit equality of {', '.join(sorted(path.formulas))}")
        goal = a == b
        if is_linear and z3.is_rational_value(rest := expanded(a - b)) and rest.as_fraction() == 0:
            return self._confirmed(goal, "reals", elements)
        strongest = cast("Arithmetic", "reals" if path.formulas or is_linear else mode)
        goals: list[tuple[Arithmetic, Any]] = [(strongest, goal)]
        if mode == "bits" and one.dtype in FLOATS and self.rule.rule.equiv.mode != "exact":
            goals.append(("zeros", z3.Or(a == b, z3.fpEQ(a, b))))
        unsolved: tuple[str, Any] = ("", None)
        for strength, goal in goals:
            if z3.is_true(z3.simplify(goal)):
                # The same terms: the solver has nothing to find out.
                return self._confirmed(goal, strength, elements)
            solver = new_solver(_EFFORT[mode], is_simple=mode == "free")
            solver.add(*path.conditions, *inside, *elements.facts)
            solver.add(z3.Not(goal))
            known = solver.check()
            if known == z3.unsat:
                return self._confirmed(goal, strength, elements)
            if known == z3.sat:
                unsolved = f"elements may differ ({mode})", solver.model()
            else:
                unsolved = f"the solver does not decide whether elements agree ({mode})", None
        return False, unsolved

    def _confirmed(self, goal: Any, strength: Arithmetic, elements: Elements) -> tuple[bool, tuple[str, Any]]:
        self.digest.update(_equation_text(goal).encode())
        self.strength = max(self.strength, _STRENGTH.index(strength))
        self.axioms |= elements.axioms
        return True, ("", None)


def _equation_text(goal: Any) -> str:
    """Return an equation as text that does not depend on what was proved before.

    The solver orders the parts of conjunctions and disjunctions by when their terms were made first.
    """
    text: str = goal.sexpr()
    if "(or " not in text and "(and " not in text:
        return text
    known: dict[int, str] = {}

    def of(term: Any) -> str:
        if term.get_id() not in known:
            parts = [of(one) for one in term.children()]
            if z3.is_or(term) or z3.is_and(term):
                parts.sort()
            whole = " ".join([term.decl().sexpr() if z3.is_app(term) else term.sexpr(), *parts])
            known[term.get_id()] = hashlib.sha256(whole.encode()).hexdigest()
        return known[term.get_id()]

    return of(goal)


def _model(path: Path, condition: Any = None) -> Any:
    solver = new_solver(_EFFORT["bits"], is_simple=False)
    solver.add(*path.conditions)
    if condition is not None:
        solver.add(condition)
    return solver.model() if solver.check() == z3.sat else None


def _values_of(error: _DiffersError) -> dict[str, Any] | None:
    """Return what a refutation starts from."""
    return None if error.model is None else {"model": error.model, "names": error.names}


# What a proof is about


def _dims(rule: CompiledRule) -> list[Any]:
    return [
        dim
        for variable in rule.variables.values()
        if isinstance(variable, TensorVariable)
        for dim in (variable.dims if variable.dims is not None else (SequenceDim(),))
    ]


def _most_dims(rule: CompiledRule, lifts: bool) -> int:
    """Return how many dims sequences have in proofs: fewer where there are many combinations."""
    if lifts:
        return 1
    kinds = list(rule.variables.values())
    permutations = sum(isinstance(one, PermutationVariable | AxesVariable) for one in kinds)
    lists = sum(isinstance(one, FactorsVariable | ShapeVariable) for one in kinds)
    sequences = len({str(one) for one in _dims(rule) if isinstance(one, SequenceDim)})
    spread = sum(isinstance(one, BroadcastDim) for one in _dims(rule))
    if permutations > 2 or sequences + lists > 3 or spread > 2:
        return 2
    if permutations > 1 or sequences + lists > 1 or spread > 1:
        return 3
    return 4


_SIZE_WORDS = ("shape", "rank", "numel", "ndim", "size(", "iota", "len(", "norm(", "dim_order", "numel")


def lifts_to_all_ranks(rule: CompiledRule) -> bool:  # noqa: C901 - what excludes it, one after the other
    """Whether what holds for tensors of no and of one dim holds for those of any rank.

    In pointwise operators each dim, counted from the back, is on its own: the size of a result there, and the index
    that an operand is read at, depend on the sizes of the operands there, of which a missing one is 1. And the rank of
    a result is the largest of the ranks of its operands. So a rule of pointwise operators is right for all ranks, if it
    is right where every tensor has one dim or none, provided that what it says of sizes speaks of each dim alone: that
    shapes to which operands broadcast are equal.
    """
    operators = [plain_name(one) for one in rule.operators]
    for variable in rule.variables.values():
        if isinstance(variable, OperatorVariable):
            operators += [plain_name(one) for one in variable.operators()]
    for name, op in zip(operators, rule.operators, strict=False):
        if name not in POINTWISE and name not in _LIFTED and torch.Tag.pointwise not in getattr(op, "tags", ()):
            return False
    for variable in rule.variables.values():
        if isinstance(variable, TensorVariable):
            dims = variable.dims if variable.dims is not None else (SequenceDim(),)
            # Where all dims are fixed, those are all ranks that the type admits.
            if len(dims) != 1 and any(isinstance(one, SequenceDim | BroadcastDim) for one in dims):
                return False
        elif not variable.IS_NUMBER and variable.IS_SHAPED and type(variable).__name__ != "DimsVariable":
            return False
    if rule.pattern.is_variadic:
        return False
    texts = [case.replace for case in rule.rule.cases] + ([rule.rule.let] if rule.rule.let else [])
    texts += [case.when for case in rule.rule.cases if case.when] + [rule.rule.match]
    if any(word in text for text in texts for word in _SIZE_WORDS):
        return False
    return all(_speaks_of_each_dim(guard.text) for guard in rule.guards)


_LIFTED = frozenset(
    {
        "aten._to_copy.default", "aten.to.dtype", "dim_order_ops._to_dim_order_copy.default", "aten.clone.default",
        "aten.alias.default", "aten.detach.default", "aten.full_like.default", "aten.zeros_like.default",
        "aten.ones_like.default", "aten.contiguous.default", "aten.lift_fresh.default",
    }
)  # fmt: skip


def _speaks_of_each_dim(text: str) -> bool:
    """Whether a condition says nothing of sizes, or that two shapes are equal."""
    if not any(word in text for word in _SIZE_WORDS):
        return True
    plain = text.replace(" ", "")
    left, equals, right = plain.partition("==")
    return bool(equals) and all(
        side.startswith(("bshape(", "shape(")) and side.count("(") == 1 and side.endswith(")") for side in (left, right)
    )


def _has_one_quantizer(rule: CompiledRule) -> bool:
    """Whether no law about quantized values can be used that one dtype has, and another one of the rule has not.

    Laws speak of integers that were dequantized and are quantized, and of dtypes of 16 bits or fewer.
    """
    met = {plain_name(one).split(".")[1].split("_per_")[0] for one in rule.operators} & {"quantize", "dequantize"}
    if not met:
        return True
    options = {one for variable in rule.variables.values() for one in _integers_of(variable)}
    return len(met) == 1 and (all(BITS[one] <= 16 for one in options) or all(BITS[one] > 16 for one in options))


def opaque_parameters(rule: CompiledRule) -> frozenset[str]:
    """Return tensors of scales and zero points that are only handed to operators that quantize and dequantize.

    Nothing that is known of these depends on the dtype of the parameters, so that one stands for all.
    """
    names = {name for name, one in rule.variables.items() if isinstance(one, ParameterTensor)}
    texts = [case.replace for case in rule.rule.cases] + [case.when for case in rule.rule.cases if case.when]
    texts += [guard.text for guard in rule.guards] + ([rule.rule.let] if rule.rule.let else []) + [rule.rule.match]
    for text in texts:
        try:
            tree = ast.parse(text.strip().replace("return *", "return "))
        except SyntaxError:
            return frozenset()
        handed = {
            id(argument)
            for call in ast.walk(tree)
            if isinstance(call, ast.Call) and "quantize_per_" in ast.unparse(call.func)
            for argument in call.args
        }
        names -= {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and id(one) not in handed}
    return frozenset(names)


def _integers_of(variable: Any) -> list[torch.dtype]:
    if isinstance(variable, ParameterTensor) or not isinstance(variable, TensorVariable | DtypeVariable):
        return []
    return [one for one in variable.dtype_options() if one in BITS]


def is_parametric(rule: CompiledRule) -> bool:
    """Whether the rule only moves data, and so is right for all dtypes if it is for one."""
    if any(isinstance(variable, OperatorVariable) for variable in rule.variables.values()):
        return False
    if not all(plain_name(one) in MOVERS or plain_name(one) in quantizers.QUANTIZERS for one in rule.operators):
        return False
    if not _has_one_quantizer(rule):
        return False
    texts = [case.replace for case in rule.rule.cases] + [case.when for case in rule.rule.cases if case.when]
    texts += [guard.text for guard in rule.guards] + ([rule.rule.let] if rule.rule.let else []) + [rule.rule.match]
    named = [name for name, one in rule.variables.items() if isinstance(one, DtypeVariable)]
    if named:
        # A dtype that has a name, and is handed on to operators, is not examined by that.
        texts = [re.sub(rf"\b({'|'.join(map(re.escape, named))})\b(?! *[=!]=)", "", text) for text in texts]
    return not any(word in text for text in texts for word in ("dtype", "promote", "lossless", "is_float", "iinfo"))
