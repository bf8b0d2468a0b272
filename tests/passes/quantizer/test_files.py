"""Files of quantizers: what is accepted, what is wrong with the others and where, and the schema that is shipped."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.patterns.syntax.test_rulebook_schema import fits

import exirkit
from exirkit.ir import ModelError, UsageError
from exirkit.passes import (
    Annotator,
    QuantizerPolicy,
    load_quantizer,
    parse_quantizer,
    quantizer_schema,
    quantizer_schema_text,
    shipped_quantizers,
)
from exirkit.patterns import read_yaml

WHOLE = """quantizer: 1
id: little
doc: Matrices in 8 bits.
settings: {per_channel: true, fast: false}
vars: {x: "f32 [*S]"}
specs:
  act: {dtype: i8, limits: [-128, 127], observer: histogram, eps: 0.001}
  weight:
  - {when: per_channel, dtype: i8, symmetric: true, axis: 0}
  - {when: not fast, dtype: i8, symmetric: true, observer: moving_average}
  bias: {dtype: i32, derived: [x, w], axis: 0, symmetric: true}
  unit: {dtype: u8, scale: 0.00390625, zero_point: 0}
  late: {dtype: i8, dynamic: true}
numbers: aten.add.Tensor
rules:
- name: linear
  when: not fast
  doc: because
  vars: {w: "f32 [*W]", b: "f32 [N] | none"}
  match: return aten.linear.default(x, w, b)
  where: rank(x) == 2
  annotate: {x: act, w: weight, b: bias, result: act}
- name: sigmoid
  match: return aten.sigmoid.default(x)
  annotate: {x: act, result: unit}
  module: head.*
  type: Sigmoid
- name: relu
  match: return aten.relu.default(x)
  annotate: {x: act, result: act}
  share: [[x, result]]
  join: x
carry: [aten.view.default]
leave:
- {module: [stem, stem.*]}
- {type: torch.nn.modules.rnn.*}
"""


def test_everything_that_can_be_said() -> None:
    made = parse_quantizer(WHOLE)
    assert QuantizerPolicy.model_validate(made.model_dump()) == made
    assert fits(read_yaml(WHOLE, "f").data, quantizer_schema(), quantizer_schema())
    usual, fast = Annotator(made), Annotator(made, {"per_channel": False, "fast": True})
    assert [rule.name for rule, _ in usual.rules] == ["linear", "sigmoid", "relu"]
    assert [rule.name for rule, _ in fast.rules] == ["sigmoid", "relu"]
    weight = usual.way("weight")
    assert weight is not None
    assert weight.describe() == "i8, -128..127, symmetric, per channel of dim 0"
    assert fast.way("weight") is None


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        ("quantizer: 1", "quantizer: 2", "EK439", "should be 1"),
        ("dtype: u8,", "dtype: f32,", "EK440", "quantized to integers"),
        ("dtype: u8,", "dtype: i9,", "EK440", "there is no dtype 'i9'"),
        ("[-128, 127]", "[-129, 127]", "EK440", "not a range of i8"),
        ("[-128, 127]", "[127, -128]", "EK440", "not a range of i8"),
        ("zero_point: 0}", "zero_point: 256}", "EK440", "outside of the limits"),
        (", zero_point: 0}", "}", "EK439", "belong together"),
        ("zero_point: 0}", "zero_point: 0, dynamic: true}", "EK439", "not from both"),
        ("zero_point: 0}", "zero_point: 0, observer: min_max}", "EK439", "nothing is observed"),
        ("eps: 0.001", "axis: 0", "EK439", "observed by"),
        ("scale: 0.00390625", "scale: -1", "EK439", "greater than 0"),
        ("when: not fast, dtype", "when: not slow, dtype", "EK440", "there is no setting 'slow'"),
        ("  when: not fast\n", "  when: slow\n", "EK440", "there is no setting 'slow'"),
        ("b: bias", "c: bias", "EK440", "has no variable 'c'"),
        ("b: bias", "b: base", "EK440", "no entry 'base'"),
        ("w: weight, ", "", "EK440", "derived from 'w', which this rule does not annotate"),
        ("share: [[x, result]]", "share: [[x, y]]", "EK440", "'y' shares its parameters"),
        ("share: [[x, result]]", "share: [[]]", "EK440", "has names"),
        ("  join: x\n", "  join: z\n", "EK440", "'z' shares its parameters"),
        ("result: act}\n  share", "result: unit}\n  share", "EK440", "different specs"),
        ("annotate: {x: act, result: unit}", "annotate: {}", "EK440", "annotates nothing"),
        ("name: relu", "name: sigmoid", "EK440", "two rules have the name"),
        ("aten.relu.default(x)", "aten.rleu.default(x)", "EK213", "aten.rleu"),
        ("rank(x) == 2", "rank(y) == 2", "EK212", "y"),
        ("carry: [aten.view.default]", "carry: [aten.veiw.default]", "EK440", "aten.veiw"),
        ("- {type: torch.nn.modules.rnn.*}", "- {}", "EK440", "names modules or classes"),
    ],
)  # fmt: skip
def test_what_is_wrong(old: str, new: str, code: str, message: str) -> None:
    assert WHOLE.count(old) >= 1
    with pytest.raises(ModelError) as raised:
        parse_quantizer(WHOLE.replace(old, new, 1) if old != "w: weight, " else WHOLE.replace(old, new), "wrong.yaml")
    found = {one.code: one for one in raised.value.diagnostics}
    assert code in found, raised.value
    assert any(message in one.message for one in raised.value.diagnostics if one.code == code), raised.value
    assert found[code].location.file == "wrong.yaml"
    assert found[code].location.line


def test_settings() -> None:
    policy = parse_quantizer(WHOLE)
    with pytest.raises(UsageError, match=r"EK440.*no setting 'slow'"):
        Annotator(policy, {"slow": True})
    with pytest.raises(UsageError, match=r"EK440.*True or False, got int"):
        Annotator(policy, {"fast": 1})  # type: ignore[dict-item]


def test_shipped() -> None:
    assert shipped_quantizers() == ["xnnpack"]
    assert load_quantizer("xnnpack").id == "xnnpack"
    with pytest.raises(OSError, match="xnnpak"):
        load_quantizer("xnnpak")
    shipped = Path(exirkit.__file__).parent / "passes/quantizer/quantizer.schema.json"
    assert shipped.read_text("utf-8") == quantizer_schema_text()
