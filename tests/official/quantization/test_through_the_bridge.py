"""Quantised models for XNNPACK: what our chain hands to its backend is what the official chain hands to it."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from tests.official.backends.process import ask_bridge
from tests.official.oracle import OfficialRuntime
from tests.official.quantization.models import INT4, QUANTIZED, SOURCE, UNFOLDED, WIDE, WRONG_INT4

from exirkit import Diagnostic

pytestmark = [pytest.mark.executorch, pytest.mark.slow]

# Copies that change nothing are not there in our Edge programs.
GONE = {"dim_order_ops._clone_dim_order.default", "aten.expand_copy.default"}


CASES = [(name, way) for way in ("at once", "after to_edge") for name in QUANTIZED]
CASES += [(SOURCE[0], "at once")]


@pytest.mark.parametrize(("name", "way"), CASES)
def test_quantised_operators_are_delegated_as_in_the_official_chain(
    name: str, way: str, official_runtime: OfficialRuntime
) -> None:
    answer, (ours, theirs) = ask_bridge({"op": "lower_quantized", "model": name, "way": way})
    taken = {one: Counter(answer[one]["taken"]) for one in ("ours", "theirs")}
    assert set(taken["theirs"] - taken["ours"]) <= GONE
    assert answer["ours"]["left"] <= answer["theirs"]["left"]
    assert 0 < answer["ours"]["delegates"] <= answer["theirs"]["delegates"]
    inputs = tuple(torch.tensor(one) for one in answer["inputs"])
    (mine,), (other,) = (official_runtime.run(pte, [inputs]).unwrap() for pte in (ours, theirs))
    for got, want, eager in zip(mine, other, answer["eager"], strict=True):
        assert isinstance(got, torch.Tensor)
        assert isinstance(want, torch.Tensor)
        # The same delegate: not a bit may differ.
        assert torch.equal(got, want)
        # One step of the output, whose range was calibrated to about -3 .. 3; XNNPACK rounds in its own way.
        torch.testing.assert_close(got, torch.tensor(eager), rtol=0.02, atol=0.06)


@pytest.mark.parametrize("name", INT4)
def test_int4_weights_that_xnnpack_cannot_compute_are_rejected(name: str, official_runtime: OfficialRuntime) -> None:
    answer, files = ask_bridge({"op": "lower_int4", "model": name})
    if name in WRONG_INT4:
        assert Diagnostic.model_validate_json(answer["diagnostic"]).code == WRONG_INT4[name]
        return
    assert answer["untried"] == []
    ((got,),) = official_runtime.run(files[0], [tuple(torch.tensor(one) for one in answer["inputs"])]).unwrap()
    assert isinstance(got, torch.Tensor)
    # Steps of the input: XNNPACK finds them row by row, PyTorch for all rows.
    torch.testing.assert_close(got, torch.tensor(answer["eager"]), rtol=0.02, atol=0.03)


@pytest.mark.parametrize("name", [*SOURCE[1:], WIDE + SOURCE[1]])
def test_weights_of_torchao_keep_their_scales(name: str, official_runtime: OfficialRuntime) -> None:
    answer, files = ask_bridge({"op": "lower_weights_of_torchao", "model": name})
    # The official exporter loses the scales, or rejects the program.
    ways = ("at once", "after to_edge")
    rejected = {way: Diagnostic.model_validate_json(answer[way]).code for way in ways if way in answer}
    assert rejected == (dict.fromkeys(ways, "EK755") if name == "int8-affine-weights-of-torchao" else {})
    inputs = tuple(torch.tensor(one) for one in answer["inputs"])
    for file in files:
        ((got,),) = official_runtime.run(file, [inputs]).unwrap()
        assert isinstance(got, torch.Tensor)
        # A step of an activation of `int8-of-torchao`, whose float is at a tie, is less than a hundredth.
        torch.testing.assert_close(got, torch.tensor(answer["eager"]), rtol=1e-4, atol=0.005)


@pytest.mark.parametrize("name", UNFOLDED)
def test_weights_that_each_call_quantizes_are_stored_as_integers(name: str, official_runtime: OfficialRuntime) -> None:
    answer, files = ask_bridge({"op": "lower_weights_of_torchao", "model": name})
    for file in files:
        ((got,),) = official_runtime.run(file, [tuple(torch.tensor(one) for one in answer["inputs"])]).unwrap()
        assert isinstance(got, torch.Tensor)
        torch.testing.assert_close(got, torch.tensor(answer["eager"]), rtol=0.02, atol=0.06)
    _, others = ask_bridge({"op": "lower_weights_of_torchao", "model": name.partition(",")[0]})
    assert len(files) == 2
    assert [len(one) for one in files] == [len(one) for one in others]


def test_a_delegate_that_its_runtime_does_not_accept_is_named() -> None:
    answer, _ = ask_bridge({"op": "check_damaged"})
    assert answer["untried"] == []
    found = Diagnostic.model_validate_json(answer["diagnostic"])
    assert found.code == "EK756"
    assert "aten_sigmoid_default" in " ".join(found.notes)
