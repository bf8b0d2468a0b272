"""Generated programs in other people's tests: of a pass, of rules, or of anything that takes programs."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from exirkit.fuzz.compilers import ExirkitCompiler, name_of_pass
from exirkit.fuzz.examination import Failure
from exirkit.fuzz.generation import Pattern, Policy, generate_with_pattern, sources_of
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import Program, check_program, program_text
from exirkit.fuzz.triage import reduce
from exirkit.ir import ModelError
from exirkit.patterns import CompiledRule

from .config import parse_seeds
from .results import Analysis
from .standard import analysed, policy_of
from .tested_parts import TestedPart, Uses, pattern_features, seen_features, untested

_USUAL_SEEDS = 100
_TRIALS = 300


@dataclass
class PassFuzzer:
    """Runs passes on generated programs and asks the oracles; what the fixture `fuzz_pass` gives.

    Attributes:
        seeds: From `--exirkit-seeds`; takes the place of what a test asks for.
        directory: Where scripts that fail are written.
        name: Of the test; the scripts are named after it.
        checked: How many programs were tried in the whole.
        told: What was tested, a line for each call; the plug-in prints them at the end.
    """

    seeds: str | None = None
    directory: Path = field(default_factory=Path)
    name: str = "fuzz_pass"
    checked: int = 0
    told: list[str] = field(default_factory=list)

    def __call__(
        self,
        *passes: Any,
        seeds: int | str = _USUAL_SEEDS,
        rules: Iterable[str] = (),
        pattern: Pattern | Sequence[Pattern] = (),
        examples: Iterable[tuple[Any, Sequence[Any]]] = (),
        policy: Policy | Mapping[str, Any] | None = None,
        oracles: Iterable[str] | None = None,
        level: int = 1,
        must_change: bool = True,
    ) -> list[TestedPart]:
        """Lower programs with passes on their Edge dialect; fail with a small program if that makes them wrong.

        Programs that are wrong without the passes too are not counted against them.

        Args:
            passes: Objects, or classes that are called without arguments.
            seeds: How many programs, or `A:B`.
            rules: Rule books to apply as well: files, or names of shipped ones. Their patterns are inserted.
            pattern: What the passes match, to be inserted into the programs: a mapping with `vars`, `match` and perhaps
                `where`, as in a rule; or several.
            examples: Models to be inserted, each with its inputs.
            policy: What programs are to be like, or what is around what is inserted.
            oracles: Oracles to ask; the usual ones if absent.
            level: Level of optimization of the rest of the chain.
            must_change: Fail also if the passes changed no program, or a rule fired in none: then nothing was tested.

        Returns:
            How many programs each pass changed, and in how many each rule fired.

        Raises:
            ModelError: What is wrong with a book or a pattern.
            UsageError: EK875, EK876, an example cannot be inserted.
            OSError: A book cannot be read.
        """
        chosen = policy if isinstance(policy, Policy) else policy_of(policy)
        asked = None if oracles is None else tuple(oracles)
        plain = ExirkitCompiler(level=level)
        compiler = ExirkitCompiler(level=level, passes=tuple(passes), rules=tuple(rules))
        # What callers give and take cannot be changed in a comparison with the program before.
        compiled = [one for one in compiler.compiled_rules() if one.pattern.kind not in ("input", "output")]
        sources = sources_of(pattern, examples, compiled)
        around = None if sources and policy is None else chosen
        uses = Uses()
        examined = 0
        for seed in _seeds(self.seeds or seeds):
            made = generate_with_pattern(seed, sources, around)
            examined += 1
            self.checked += 1
            verdict = check(made.program, compiler=compiler, oracles=asked, seed=seed)
            inserted = pattern_features(made)
            uses.add(inserted | seen_features(verdict, inserted))
            if verdict.failures:
                failure = verdict.failures[0]
                if not _fails_alike(made.program, failure, plain, seed):
                    self._tell(_parts(passes, compiled, uses), examined)
                    self._fail(made.program, failure, compiler, seed)
        parts = _parts(passes, compiled, uses)
        self._tell(parts, examined)
        idle = untested(parts, examined, {})
        is_idle = len(idle) == len(parts) or any(one.code == "EK872" for one in idle)
        if must_change and idle and is_idle:
            pytest.fail("\n".join(one.render() for one in idle), pytrace=False)
        return parts

    def _tell(self, parts: Sequence[TestedPart], programs: int) -> None:
        for one in parts:
            verb = "fired in" if one.kind == "rule" else "changed"
            self.told.append(f"{one.name} {verb} {one.changed} of {programs} programs")

    def _fail(self, program: Program, failure: Failure, compiler: ExirkitCompiler, seed: int) -> None:
        made, shown = analysed(program, failure, compiler, seed)
        path = self._write("py", _with_path(made.repro or "", compiler))
        pytest.fail(_told(made, shown, seed, path), pytrace=False)

    def _write(self, suffix: str, text: str) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        kept = "".join(each if each.isalnum() or each in "-_" else "_" for each in self.name)
        path = self.directory / f"{kept}.{suffix}"
        path.write_text(text, encoding="utf-8")
        return path


def fuzz_programs(
    *,
    seeds: int | str = _USUAL_SEEDS,
    policy: Policy | Mapping[str, Any] | None = None,
    pattern: Pattern | Sequence[Pattern] = (),
    examples: Iterable[tuple[Any, Sequence[Any]]] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with many programs; a program for which it raises is reduced as long as it raises alike.

    The test has an argument `program`, an `exirkit.fuzz.Program`, and fixtures if it likes.

    Args:
        seeds: How many programs, or `A:B`; `--exirkit-seeds` takes its place.
        policy: What programs are to be like, or what is around what is inserted.
        pattern: To be inserted in the programs, as for `fuzz_pass`.
        examples: Likewise.
    """
    listed = list(examples)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, request: pytest.FixtureRequest, **kwargs: Any) -> None:
            given = {**kwargs, "request": request} if "request" in parameters else kwargs
            fuzzer: PassFuzzer = request.getfixturevalue("fuzz_pass")
            chosen = policy if isinstance(policy, Policy) else policy_of(policy)
            sources = sources_of(pattern, listed)
            for seed in _seeds(fuzzer.seeds or seeds):
                program = generate_with_pattern(seed, sources, None if sources and policy is None else chosen).program
                error = _raised(test, program, args, given)
                if error is None:
                    continue
                small = reduce(program, lambda one: _raises_alike(test, one, args, given, error), trials=_TRIALS)
                text = program_text(small)
                path = fuzzer._write("txt", text)
                pytest.fail(f"{_first_line(error)}\n\nseed {seed}, reduced:\n\n{text}\nkept in {path}", pytrace=False)

        signature = inspect.signature(test)
        parameters = signature.parameters
        shown = [one for name, one in parameters.items() if name not in ("program", "request")]
        request = inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY)
        vars(run)["__signature__"] = signature.replace(parameters=[*shown, request])
        return run

    return decorate


def _seeds(given: int | str) -> Iterator[int]:
    first, count = parse_seeds(str(given))
    return iter(range(first, first + count))


def _fails_alike(program: Program, failure: Failure, compiler: ExirkitCompiler, seed: int) -> bool:
    found = check(program, compiler=compiler, oracles=("eager-run", failure.oracle), seed=seed).failures
    return any((one.oracle, one.symptom) == (failure.oracle, failure.symptom) for one in found)


def _parts(passes: Sequence[Any], rules: Sequence[CompiledRule], uses: Uses) -> list[TestedPart]:
    names = dict.fromkeys(name_of_pass(one() if isinstance(one, type) else one) for one in passes)
    return [*(uses.of("pass", name) for name in names), *(uses.of("rule", one.id) for one in rules)]


def _told(made: Analysis, failure: Failure, seed: int, path: Path) -> str:
    culprit = (
        "" if made.culprit is None else f"\nculprit: {made.culprit}" + (f", rule {made.rule}" if made.rule else "")
    )
    return (
        f"{failure.oracle} {failure.symptom}: {failure.message}{culprit}\n\nseed {seed}, reduced:\n\n{made.reduced}\n"
        f"shown by {path}"
    )


def _with_path(script: str, compiler: ExirkitCompiler) -> str:
    """Let a script find the modules of the passes, which may be those of tests."""
    folders = []
    for one in compiler.passes:
        module = sys.modules.get(getattr(one, "__module__", type(one).__module__))
        if module is not None and getattr(module, "__file__", None) and "." not in module.__name__:
            folders.append(str(Path(str(module.__file__)).parent))
    if not folders:
        return script
    lines = ["import sys", "", *(f"sys.path.insert(0, {folder!r})" for folder in dict.fromkeys(folders)), "", ""]
    head, mark, rest = script.partition("import torch\n")
    return head + "\n".join(lines) + mark + rest if mark else script


def _raised(
    test: Callable[..., None], program: Program, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Exception | None:
    try:
        test(*args, program=program, **kwargs)
    except Exception as error:
        return error
    return None


def _raises_alike(
    test: Callable[..., None], program: Program, args: tuple[Any, ...], kwargs: Mapping[str, Any], error: Exception
) -> bool:
    try:
        check_program(program)
    except ModelError:
        return False
    return type(_raised(test, program, args, kwargs)) is type(error)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:2000]}"
