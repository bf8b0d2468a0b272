"""The pytest plug-in: the fixture `fuzz_pass`, and options. It is loaded everywhere, and imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .campaigns.user_tests import PassFuzzer


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("exirkit", "exirkit: generated programs")
    group.addoption(
        "--exirkit-seeds",
        metavar="N|A:B",
        help="Seeds of generated programs, in the place of those that tests ask for.",
    )
    group.addoption(
        "--exirkit-repro-dir",
        metavar="DIR",
        default=".exirkit-fuzz",
        help="Where programs and scripts that fail are written; default: .exirkit-fuzz.",
    )


@pytest.fixture
def fuzz_pass(request: pytest.FixtureRequest) -> PassFuzzer:
    """Call it with a pass: it is run on generated programs, and the test fails with a small one that it makes wrong."""
    from .campaigns.user_tests import PassFuzzer

    directory = Path(request.config.rootpath, request.config.getoption("--exirkit-repro-dir"))
    return PassFuzzer(request.config.getoption("--exirkit-seeds"), directory, request.node.name)
