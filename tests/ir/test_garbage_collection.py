"""Garbage is collected seldom during work, and as before afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest

from exirkit.ir import seldom_collected


@pytest.fixture(autouse=True)
def usual_collection() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


def test_blocks_may_be_nested_and_may_raise() -> None:
    with seldom_collected():
        with pytest.raises(KeyError), seldom_collected():
            raise KeyError
        assert gc.get_threshold()[0] > 700
        assert gc.get_freeze_count() > 0
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() == 0


def test_the_last_of_several_threads_restores() -> None:
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        with seldom_collected():
            entered.set()
            leave.wait()

    other = threading.Thread(target=work)
    with seldom_collected():
        other.start()
        entered.wait()
    assert gc.get_threshold()[0] > 700
    leave.set()
    other.join()
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() == 0


def test_what_a_caller_has_chosen_stays() -> None:
    gc.freeze()
    for chosen in (0, 1_000_000):
        gc.set_threshold(chosen, 10, 10)
        with seldom_collected():
            assert gc.get_threshold() == (chosen, 10, 10)
        assert gc.get_threshold() == (chosen, 10, 10)
    assert gc.get_freeze_count() > 0
