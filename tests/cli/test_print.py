"""`exirkit print`: programs in the notation of rules, whole, by module, around a node, after a pass."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke

from exirkit import load_book


def test_whole_program(invoke: Invoke, model_file: Path) -> None:
    done = invoke("print", f"{model_file}:tiny")
    assert done.exit_code == 0, done.output
    assert "aten_relu_default = aten.relu.default(aten_addmm_default)  # f32 [2, 3]" in done.stdout
    assert "# linear, " in done.stdout
    assert done.stdout.splitlines()[1:3] == ["vars:", '  p_linear_weight: "param f32 [N, K]"']
    exported = invoke("print", f"{model_file}:tiny", "--dialect", "aten")
    assert "aten.linear.default(x, p_linear_weight, p_linear_bias)" in exported.stdout
    lowered = invoke("print", f"{model_file}:tiny", "--dialect", "executorch", "--json")
    assert "aten.relu.out(" in json.loads(lowered.stdout)["methods"][0]["lines"][-2]


def test_slice_is_a_pattern(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    done = invoke("print", f"{model_file}:tiny", "--around", "%aten_relu_default", "--distance", "1")
    assert done.exit_code == 0, done.output
    part = "\n".join(line for line in done.stdout.splitlines() if not line.startswith("#"))
    book = tmp_path / "book.yaml"
    book.write_text(
        "rulebook: 1\nrules:\n- id: own.copied\n  doc: Copied.\n"
        + textwrap.indent(part.strip() + "\n", "  ")
        + "  replace: return aten.relu.default(aten.addmm.default(p_linear_bias, x, aten_permute_copy_default))\n"
        + "  equiv: {mode: exact}\n"
    )
    assert [one.id for one in load_book(book).require_valid().rules] == ["own.copied"]


def test_module_and_pass(invoke: Invoke, model_file: Path) -> None:
    module = json.loads(
        invoke("print", f"{model_file}:several", "--method", "encode", "--module", "linear", "--json").stdout
    )
    (method,) = module["methods"]
    assert [line.partition(" =")[0] for line in method["lines"] if not line.startswith(("#", "return"))] == [
        "aten_permute_copy_default", "aten_addmm_default"
    ]  # fmt: skip
    after = json.loads(invoke("print", f"{model_file}:tiny", "--after", "decompose-to-core", "--json").stdout)
    assert after["methods"][0]["stage"] == "decompose-to-core"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--after", "decompose-to-cor"), "did you mean 'decompose-to-core'?"),
        (("--node", "aten_relu"), "did you mean 'aten_relu_default'?"),
        (("--around", "aten_relu"), "did you mean 'aten_relu_default'?"),
        (("--module", "linaer"), "did you mean 'linear'?"),
        (("--method", "encode"), "it has forward"),
    ],
)
def test_wrong_names(invoke: Invoke, model_file: Path, options: tuple[str, str], says: str) -> None:
    done = invoke("print", f"{model_file}:tiny", *options)
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].startswith("error[EK711]: ")
    assert says in done.stderr


def test_every_stage_is_a_file(invoke: Invoke, model_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stages"
    done = invoke("print", f"{model_file}:tiny", "--each", str(folder))
    assert done.exit_code == 0, done.output
    files = sorted((folder / "forward").iterdir())
    assert [str(one) for one in files] == done.stdout.split()
    assert files[0].name == "00_export.txt"
    assert "aten.linear.default(x, p_linear_weight, p_linear_bias)" in files[0].read_text()
    (decomposed,) = (one for one in files if one.name.endswith("_decompose-to-core.txt"))
    assert "aten.addmm.default(" in decomposed.read_text()
    assert "aten.relu.out(" in files[-1].read_text()
    again = invoke("print", f"{model_file}:tiny", "--each", str(folder))
    assert again.exit_code == 2
    assert "new or empty" in again.stderr
    assert "EK711" in invoke("print", f"{model_file}:tiny", "--each", str(tmp_path / "x"), "--node", "x").stderr


def test_everything_that_is_known_of_a_node(invoke: Invoke, model_file: Path) -> None:
    done = invoke("print", f"{model_file}:tiny", "--node", "%aten_addmm_default")
    assert done.exit_code == 0, done.output
    for line in (
        "%aten_addmm_default: call_function aten.addmm.default",
        "schema: aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
        "  mat1: %x  float32 [2, 4], dim order [0, 1]",
        "value: float32 [2, 3], dim order [0, 1]",
        "users: %aten_relu_default (aten.relu.default)",
        "module: linear (torch.nn.modules.linear.Linear)",
    ):
        assert line in done.stdout.splitlines()
    assert "in forward" in done.stdout
    options = ("--dialect", "executorch", "--json")
    lowered = json.loads(invoke("print", f"{model_file}:tiny", "--node", "aten_addmm_default", *options).stdout)
    lines = lowered["methods"][0]["lines"]
    assert any(line.startswith("  out: %") for line in lines)
    assert any(line.startswith("memory: 24 bytes, arena 1 at ") for line in lines)
