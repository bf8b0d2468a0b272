"""Generated programs in other people's tests: of a pass, of rules, or of anything that takes programs."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from exirkit.fuzz.blame import reduce
from exirkit.fuzz.generation import Policy, generate
from exirkit.fuzz.oracles import ExirkitCompiler, Failure, check
from exirkit.fuzz.programs import Program, build, check_program, program_text
from exirkit.ir import ModelError
from exirkit.program import to_edge

from .config import parse_seeds
from .results import Analysis
from .standard import analysed, policy_of

_USUAL_SEEDS = 100
_TRIALS = 300


@dataclass
class PassFuzzer:
    """Runs passes on generated programs and asks the oracles; what the fixture `fuzz_pass` gives.

    Attributes:
        seeds: From `--exirkit-seeds`; takes the place of what a test asks for.
        directory: Where scripts that fail are written.
        name: Of the test; the scripts are named after it.
        checked: How many programs were looked at in the whole.
    """

    seeds: str | None = None
    directory: Path = field(default_factory=Path)
    name: str = "fuzz_pass"
    checked: int = 0

    def __call__(
        self,
        *passes: Any,
        seeds: int | str = _USUAL_SEEDS,
        rules: Iterable[str] = (),
        policy: Policy | Mapping[str, Any] | None = None,
        rungs: Iterable[str] | None = None,
        level: int = 1,
        must_change: bool = True,
    ) -> None:
        """Lower programs with passes on their Edge dialect; fail with a small program if that makes them wrong.

        Programs that are wrong without the passes too are not counted against them.

        Args:
            passes: Objects, or classes that are called without arguments.
            seeds: How many programs, or `A:B`.
            rules: Rule books to apply as well: files, or names of shipped ones.
            policy: What programs are to be like.
            rungs: Oracles to ask; the usual ones if absent.
            level: Level of optimization of the rest of the chain.
            must_change: Fail also if no program was changed: the test would say nothing.
        """
        chosen = policy if isinstance(policy, Policy) else policy_of(policy)
        asked = None if rungs is None else tuple(rungs)
        plain = ExirkitCompiler(level=level)
        compiler = ExirkitCompiler(level=level, passes=tuple(passes), rules=tuple(rules))
        is_changed = not must_change
        looked_at = 0
        for seed in _seeds(self.seeds or seeds):
            program = generate(seed, chosen)
            looked_at += 1
            self.checked += 1
            verdict = check(program, compiler=compiler, rungs=asked, seed=seed)
            if verdict.failures:
                failure = verdict.failures[0]
                if not _fails_alike(program, failure, plain, seed):
                    self._fail(program, failure, compiler, seed)
            is_changed = is_changed or (verdict.refusal is None and _changes(program, compiler))
        if not is_changed:
            pytest.fail(
                f"none of {looked_at} programs was changed: nothing was tested. Choose a policy that makes programs "
                f"with what the pass looks for, such as {{'operators': ['aten.mul.Tensor']}}, or must_change=False.",
                pytrace=False,
            )

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
    *, seeds: int | str = _USUAL_SEEDS, policy: Policy | Mapping[str, Any] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test with many programs; a program for which it raises is reduced as long as it raises alike.

    The test has an argument `program`, an `exirkit.fuzz.Program`, and fixtures if it likes.

    Args:
        seeds: How many programs, or `A:B`; `--exirkit-seeds` takes its place.
        policy: What programs are to be like.
    """

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, request: pytest.FixtureRequest, **kwargs: Any) -> None:
            given = {**kwargs, "request": request} if "request" in parameters else kwargs
            fuzzer: PassFuzzer = request.getfixturevalue("fuzz_pass")
            chosen = policy if isinstance(policy, Policy) else policy_of(policy)
            for seed in _seeds(fuzzer.seeds or seeds):
                program = generate(seed, chosen)
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
    found = check(program, compiler=compiler, rungs=("O0", failure.rung), seed=seed).failures
    return any((one.rung, one.symptom) == (failure.rung, failure.symptom) for one in found)


def _changes(program: Program, compiler: ExirkitCompiler) -> bool:
    """Return whether the passes and rules of a compiler do anything to a program."""
    manager = to_edge(dict(build(program)))
    before = {name: str(manager.exported_program(name).graph) for name in manager.methods}
    passes: list[Any] = [one() if isinstance(one, type) else one for one in compiler.passes]
    rules = compiler.compiled_rules()
    if rules:
        from exirkit.passes import ApplyRules

        passes.append(ApplyRules(rules))
    changed = manager.transform(passes)
    return any(str(changed.exported_program(name).graph) != text for name, text in before.items())


def _told(made: Analysis, failure: Failure, seed: int, path: Path) -> str:
    guilty = "" if made.guilty is None else f"\nguilty: {made.guilty}" + (f", rule {made.rule}" if made.rule else "")
    return (
        f"{failure.rung} {failure.symptom}: {failure.message}{guilty}\n\nseed {seed}, reduced:\n\n{made.reduced}\n"
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
