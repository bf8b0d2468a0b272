"""Propagations whose operators the official package has registered in the process of these tests as well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exirkit.patterns import beside_other_libraries


@pytest.fixture(autouse=True)
def beside_others() -> Iterator[None]:
    with beside_other_libraries():
        yield
