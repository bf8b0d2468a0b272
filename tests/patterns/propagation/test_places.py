"""Copies between host and device around delegates: as few as possible, and none between delegates of one device."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch.export import ExportedProgram

from exirkit import CompileSpec, DelegationSpec, Partitioner, PartitionResult, to_edge
from exirkit.ir import delegate_of, operator_name
from exirkit.passes import PropagationPass, PropagationReport
from exirkit.patterns import check_propagation, load_propagation, parse_analysis


class Each(Partitioner):
    """Makes a delegate of each call of an operator, for a device by operator.

    Args:
        devices: Device by name of the operator.
    """

    def __init__(self, devices: dict[str, str]) -> None:
        super().__init__()
        self._devices = devices

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags = {}
        for number, node in enumerate(exported_program.graph.nodes):
            device = self._devices.get(str(operator_name(node.target)))
            if device is not None:
                node.meta["delegation_tag"] = f"tag{number}"
                specs = [CompileSpec("target_device", device.encode())]
                tags[f"tag{number}"] = DelegationSpec("ReferenceBackend", specs)
        return PartitionResult(exported_program, tags)


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> Any:
        one = torch.sin(x)
        two = torch.cos(one)
        return torch.sin(two), torch.cos(x), one * two


def placed(devices: dict[str, str]) -> tuple[Counter[str], PropagationReport]:
    """Return the copies of a model, whose results stay what they were."""
    x = torch.randn(2, 3)
    edge = to_edge(torch.export.export(Net(), (x,))).to_backend(Each(devices))
    chosen = PropagationPass("places.devices")
    edge = edge.transform([chosen])
    program = edge.exported_program()
    assert any(delegate_of(node) is not None for node in program.graph.nodes)
    assert chosen.report is not None
    names = [str(operator_name(node.target)) for node in program.graph.nodes if node.op == "call_function"]
    return Counter(name.partition(".")[2] for name in names if name.startswith("et_copy")), chosen.report


def test_delegates_of_one_device_share_what_is_there() -> None:
    copies, report = placed({"aten.sin.default": "cuda:0", "aten.cos.default": "CUDA:0"})
    # The input is copied once for two delegates; back come four results, two of which a product on the host reads.
    assert sum(copies.values()) == 1 + 4
    assert report.conversions == 5
    assert report.cost == 5 * 6


def test_other_delegates_stay_on_the_host() -> None:
    copies, _ = placed({"aten.sin.default": "cpu", "aten.cos.default": "npu"})
    assert not copies


def test_what_a_delegate_computes_is_not_claimed() -> None:
    text = "\n".join(load_propagation("places.devices").source.lines)
    for compare in ("elements", "layouts"):
        wrong = parse_analysis(text.replace("compare: places", f"compare: {compare}"))
        assert {one.code for one in check_propagation(wrong).found} == {"EK291"}


def test_rows_of_delegates_are_in_the_verdict_and_not_tried() -> None:
    made = load_propagation("places.devices")
    verdict = check_propagation(made)
    assert verdict.is_accepted
    numbers = [one.number for one in made.delegates]
    assert numbers
    assert [(one.number, one.operators, one.trials) for one in verdict.rows if one.number in numbers] == [
        (number, 0, 0) for number in numbers
    ]
    assert all(one.operators and one.trials for one in verdict.rows if one.number not in numbers)


def test_copies_that_change_elements_are_rejected() -> None:
    text = "\n".join(load_propagation("places.devices").source.lines)
    wrong = parse_analysis(
        text.replace("define: return aten.clone.default(self)", "define: return aten.neg.default(self)")
    )
    (found, *_) = check_propagation(wrong).found
    assert found.code == "EK294"
    assert "other elements" in found.message


@pytest.mark.parametrize("extra", ["where: rank(self) == 1", "ops: aten.relu.default", "adapt: {dim: '1'}"])
def test_a_row_of_delegates_says_nothing_about_arguments(extra: str) -> None:
    text = "\n".join(load_propagation("places.devices").source.lines)
    with pytest.raises(Exception, match="EK290"):
        parse_analysis(text.replace("  args: device", f"  args: device\n  {extra}"))
