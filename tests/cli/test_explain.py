from __future__ import annotations

import pytest
from tests.cli.conftest import Invoke, document

from exirkit.cli.commands.explain import read_code_texts


@pytest.mark.parametrize("spelling", ["EK101", "ek101", "101"])
def test_a_code_is_explained(invoke: Invoke, spelling: str) -> None:
    result = invoke("explain", spelling)
    assert result.exit_code == 0
    assert result.stdout.startswith("EK101: unknown operator\n\n")
    assert len(result.stdout.splitlines()) > 2


def test_all_codes_are_listed(invoke: Invoke) -> None:
    result = invoke("explain")
    listed = [line.split()[0] for line in result.stdout.splitlines()[1:]]
    assert listed == sorted(listed) == list(read_code_texts())


def test_json(invoke: Invoke) -> None:
    one = document(invoke("explain", "EK101", "--json").stdout)
    assert [each.code for each in one.codes] == ["EK101"]
    every = document(invoke("explain", "--json").stdout)
    assert {each.code for each in every.codes} == set(read_code_texts())


@pytest.mark.parametrize("code", ["EK000", "", "potato", "EK1011"])
def test_unknown_codes(invoke: Invoke, code: str) -> None:
    result = invoke("explain", code)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == f"error[EK719]: there is no diagnostic code {code!r} (`exirkit explain` lists all)\n"
