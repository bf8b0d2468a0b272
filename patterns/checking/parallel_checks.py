"""Checking several books, on several processes: the verdicts are those of one process, in the same order."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache

import torch

from exirkit.patterns.books.loading import LoadedBook, import_library, load_book
from exirkit.patterns.checking.checks import (
    TRIALS,
    BookVerdict,
    Progress,
    RuleVerdict,
    add_relations,
    check_one,
)
from exirkit.patterns.checking.relations import Relations, relations_of_book
from exirkit.patterns.checking.witnesses import WitnessBook


@dataclass(frozen=True)
class CheckRequest:
    """A book to check.

    Attributes:
        name: Path of a file, or name of a shipped book.
        witnesses: Those that are stored, if they are used.
    """

    name: str
    witnesses: WitnessBook | None = None


@dataclass(frozen=True)
class CheckSettings:
    """How to check; see `check_book`.

    Attributes:
        trials: Positive trials per rule.
        seed: Of all random choices.
        is_strict: What is otherwise a warning is an error.
        only: Ids of rules; all when empty.
        is_fast: Stored witnesses take the place of a search.
        is_complete: Missing witnesses are errors.
        libraries: Modules that register operators.
    """

    trials: int = TRIALS
    seed: int = 0
    is_strict: bool = False
    only: frozenset[str] = field(default_factory=frozenset)
    is_fast: bool = False
    is_complete: bool = True
    libraries: tuple[str, ...] = ()


def check_books(
    requests: Sequence[CheckRequest], settings: CheckSettings, *, jobs: int = 1, progress: Progress | None = None
) -> list[BookVerdict]:
    """Check books.

    Args:
        requests: Books.
        settings: How.
        jobs: Processes; with 1 everything happens in this one.
        progress: Called before each rule, or with several processes after it.

    Raises:
        OSError: A file cannot be read.
    """
    books = [load_book(request.name) for request in requests]
    wanted = [
        [rule.id for rule in book.rules if not settings.only or rule.is_named_in(settings.only)] for book in books
    ]
    count = sum(map(len, wanted))
    results = _in_turn(requests, books, wanted, settings) if jobs == 1 else _pooled(requests, wanted, settings, jobs)
    verdicts: list[BookVerdict] = []
    number = 0
    for book, ids in zip(books, wanted, strict=True):
        verdict = BookVerdict(book.file, list(book.found))
        for rule in ids:
            number += 1
            if progress is not None:
                progress(rule, number, count)
            verdict.rules.append(_rule(next(results)))
        if not settings.only:
            add_relations(verdict, _relations(next(results)), is_strict=settings.is_strict)
        verdicts.append(verdict)
    return verdicts


Result = RuleVerdict | Relations


def _rule(result: Result) -> RuleVerdict:
    assert isinstance(result, RuleVerdict), "each task gives what it was asked for"
    return result


def _relations(result: Result) -> Relations:
    assert isinstance(result, Relations), "each task gives what it was asked for"
    return result


def _in_turn(
    requests: Sequence[CheckRequest],
    books: Sequence[LoadedBook],
    wanted: Sequence[Sequence[str]],
    settings: CheckSettings,
) -> Iterator[Result]:
    for request, book, ids in zip(requests, books, wanted, strict=True):
        for rule in ids:
            yield _checked(book, rule, request.witnesses, settings)
        if not settings.only:
            yield relations_of_book(book)


def _pooled(
    requests: Sequence[CheckRequest], wanted: Sequence[Sequence[str]], settings: CheckSettings, jobs: int
) -> Iterator[Result]:
    # Forked processes inherit locks of torch's threads in whatever state they are.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(settings.libraries,)) as pool:
        futures: list[Future[Result]] = []
        try:
            for request, ids in zip(requests, wanted, strict=True):
                for rule in ids:
                    stored = None if request.witnesses is None else request.witnesses.only(rule)
                    futures.append(pool.submit(_check_there, request.name, rule, stored, settings))
                if not settings.only:
                    futures.append(pool.submit(_relate_there, request.name))
            for future in futures:
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin(libraries: Sequence[str]) -> None:
    """Prepare a process as the first one is."""
    torch.set_num_threads(1)
    for name in libraries:
        import_library(name)


@cache
def _book(name: str) -> LoadedBook:
    return load_book(name)


def _check_there(name: str, rule: str, witnesses: WitnessBook | None, settings: CheckSettings) -> Result:
    return _checked(_book(name), rule, witnesses, settings)


def _relate_there(name: str) -> Result:
    return relations_of_book(_book(name))


def _checked(book: LoadedBook, rule: str, witnesses: WitnessBook | None, settings: CheckSettings) -> RuleVerdict:
    return check_one(
        book, book.rule(rule), trials=settings.trials, seed=settings.seed, is_strict=settings.is_strict,
        witnesses=witnesses, is_fast=settings.is_fast, is_complete=settings.is_complete,
    )  # fmt: skip
