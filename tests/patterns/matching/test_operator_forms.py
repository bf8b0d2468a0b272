"""Every reading of a call as one of another operator computes the same: tried on values, call by call."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.patterns.rule_files import book
from torch.export import ExportedProgram
from torch.fx import Interpreter, Node
from torch.nn import functional

from exirkit import ApplyRules, to_edge
from exirkit.ir import GraphEditor, copy_program, underlying
from exirkit.patterns import OperatorTable, RuleEngine, parse_book
from exirkit.patterns.forms.catalogue import READERS, forms_of
from exirkit.patterns.operators.arguments import source_of


def moving(x: torch.Tensor) -> list[torch.Tensor]:
    """Move data about in every way."""
    m = x[0]
    parts = [*x.split(2, 2), *x.split([1, 2, 1], 2), *x.chunk(2, 1), *x.chunk(3, 3)]
    return [
        x.permute(0, 2, 1, 3),
        x.transpose(1, 2),
        x.transpose(-1, -2),
        x.mT,
        x[0, 0].t(),
        x.permute(0, 2, 3, 1),
        x.reshape(2, -1),
        x.view(6, 4, 5),
        x.flatten(1),
        x.unflatten(1, (3, 1)),
        x.unsqueeze(1),
        x.unsqueeze(-1).squeeze(-1),
        x[:1].squeeze(0),
        x[:1].squeeze((0,)),
        x.narrow(2, 1, 2),
        x[:, :, 1:3],
        x.select(1, 0),
        m.expand(4, 3, 4, 5),
        m.expand(3, 4, 5),
        x.clone(),
        x.contiguous(),
        x.to(torch.float64),
        x.to(torch.float32),
        x.to(torch.int32),
        torch.ops.aten.permute_copy(x, [1, 0, 2, 3]),
        torch.ops.aten.transpose_copy(x, 1, 2),
        torch.ops.aten.t_copy(x[0, 0]),
        torch.ops.aten.view_copy(x, [2, -1]),
        torch.ops.aten.squeeze_copy(x[:1], 0),
        torch.ops.aten.narrow_copy(x, 1, 0, 2),
        torch.ops.aten.squeeze_copy(x[:1], [0]),
        torch.ops.aten._unsafe_view(x, [4, 30]),
        *torch.ops.aten.split_copy(x, 3, 2),
        *torch.ops.aten.split_with_sizes_copy(x, [3, 1], 2),
        torch.ops.aten._to_copy(x, dtype=torch.float16),
        *parts,
    ]


def computing(x: torch.Tensor) -> list[torch.Tensor]:
    """Compute with numbers and limits, on floats and integers."""
    i, two = (x * 10).to(torch.int32), torch.full((), 2.0)
    aten, mask = torch.ops.aten, x > 0
    made: list[torch.Tensor] = []
    for name in ("add", "sub", "mul", "div", "remainder", "fmod", "eq", "ne", "lt", "le", "gt", "ge"):
        op = getattr(aten, name)
        made += [op.Tensor(x, two), op.Scalar(x, 2), op.Scalar(i, 2), op.Scalar(x, 2.5), op.Tensor(i, two)]
    made += [
        2 - x,
        aten.rsub.Scalar(i, 3),
        aten.rsub.Tensor(x, two),
        aten.rsub.Scalar(x, 2, 2),
        aten.rsub.Scalar(x, 2.5),
    ]
    made += [
        x * x,
        i * i,
        x**2,
        x**2.0,
        i**2,
        i**2.0,
        aten.square(x),
        aten.square(i),
        x**3,
        aten.pow.Tensor_Tensor(x, two),
    ]
    made += [
        functional.relu6(x),
        functional.hardtanh(x),
        functional.hardtanh(x, 0, 6),
        x.clamp(0, 6),
        x.clamp(-1.0, 1.0),
    ]
    made += [x.clamp_min(0).clamp_max(6), x.clamp(min=0).clamp(max=6), i.clamp(0, 6), x.clamp(min=1).clamp(max=0)]
    made += [aten.where.ScalarOther(mask, x, 3.0), aten.where.ScalarSelf(mask, 3.0, x), x.masked_fill(mask, 2.0)]
    made += [x.masked_fill(mask, two), torch.where(mask, two, x), i.masked_fill(mask, 2), torch.where(mask, x, two)]
    return made


class Layers(torch.nn.Module):
    """Whole layers, and products of tensors of all ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.bare = torch.nn.Linear(5, 7), torch.nn.Linear(5, 3, bias=False)
        self.conv, self.grouped = torch.nn.Conv2d(4, 6, 3, padding=1), torch.nn.Conv2d(4, 4, 2, groups=2)
        self.line, self.back = torch.nn.Conv1d(4, 2, 2), torch.nn.ConvTranspose2d(4, 3, 2, stride=2)
        self.batch, self.layer = torch.nn.BatchNorm2d(4), torch.nn.LayerNorm(5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        image, rows = x.transpose(1, 2), y[0]
        products = [
            x @ y, x[0] @ y, x @ y[0], x[0] @ y[:1], x[0, 0] @ y[0, 0], x @ y[0, 0], x[:1] @ y, torch.bmm(x[0], y[0]),
            torch.mm(x[0, 0], y[0, 0]), x.reshape(6, 4, 5) @ y.reshape(6, 5, 2), x.unsqueeze(0) @ rows,
        ]  # fmt: skip
        pools = [
            functional.max_pool2d(image, 2), functional.max_pool2d(image, 2, 1, 1), functional.max_pool3d(image, 2),
            functional.adaptive_avg_pool2d(image, 1), image.mean([2, 3], keepdim=True), image.mean([-1, -2], True),
        ]  # fmt: skip
        return [
            *products,
            *pools,
            self.linear(x),
            self.linear(x[0, 0]),
            self.bare(x),
            self.bare(x[0]),
            self.layer(x),
            self.conv(image),
            self.grouped(image),
            self.line(image[0].transpose(0, 1)),
            self.back(image),
            self.batch(image),
            functional.group_norm(image, 2),
            torch.softmax(x, -1),
            torch.softmax(x, 1, dtype=torch.float32),
            torch.log_softmax(x, 2),
            torch.addmm(self.linear.bias, x[0, 0], self.linear.weight.t(), beta=1),
            torch.addmm(self.linear.bias, x[0, 0], self.linear.weight.t(), beta=2),
            torch.softmax(x, -1, dtype=torch.float64),
        ]


class Whole(torch.nn.Module):
    """A module around a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> Any:
        return self.function(*given)


class Recorder(Interpreter):
    """Runs a graph and remembers the value of every node."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)


def programs() -> Iterator[tuple[ExportedProgram, tuple[torch.Tensor, ...]]]:
    """Yield programs as exported and in Edge, with inputs."""
    torch.manual_seed(0)
    x, y = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 5, 2)
    made: list[tuple[torch.nn.Module, tuple[torch.Tensor, ...]]] = [
        (Whole(moving), (x,)), (Whole(computing), (x,)), (Layers().eval(), (x, y)),
    ]  # fmt: skip
    for module, given in made:
        exported = torch.export.export(module, given)
        yield exported, given
        yield to_edge(exported).exported_program(), given


def values_of(program: ExportedProgram, given: tuple[torch.Tensor, ...]) -> dict[Node, Any]:
    """Return the value of every node for some inputs."""
    recorder = Recorder(program.graph_module)
    stored = [
        program.state_dict.get(str(spec.target), program.constants.get(str(spec.target)))
        for spec in program.graph_signature.input_specs
        if spec.target is not None
    ]
    with torch.no_grad():
        recorder.run(*stored, *given)
    return dict(recorder.env)


@pytest.fixture(scope="module")
def tried() -> Counter[tuple[str, str]]:
    """Read every call of every program in every way, and compare; the number of readings by operators."""
    counts: Counter[tuple[str, str]] = Counter()
    find = OperatorTable().find
    for program, given in programs():
        values = values_of(program, given)
        for node in program.graph.nodes:
            if node.op != "call_function":
                continue
            source = source_of(node)
            assert source is None or torch.equal(values[source], values[node]), node
            for name in READERS:
                forms = forms_of(find(name))
                assert forms is not None
                for reading in forms.readings(node, underlying(node.target)):
                    counts[name, met_name(node)] += 1
                    compare(find(name), reading.arguments, values, node)
    return counts


def met_name(node: Node) -> str:
    """Return the name of an operator that is met."""
    if node.target is operator.getitem:
        return "getitem"
    schema = underlying(node.target)._schema
    return f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"


def compare(op: Any, arguments: dict[str, Any], values: dict[Node, Any], node: Node) -> None:
    """Call the operator that is read with its arguments, and compare with the value of the node."""
    named = {one.name: one for one in op._schema.arguments}
    real = dict(torch.fx.node.map_arg(dict(arguments), lambda one: values[one]))
    for key, value in real.items():
        if str(named[key].real_type) == "Tensor" and not isinstance(value, torch.Tensor):
            real[key] = torch.tensor(value)
        elif isinstance(value, torch.Tensor) and str(named[key].real_type) == "number":
            real[key] = value.item()
    result, wanted = op(**real), values[node]
    if isinstance(result, tuple) and isinstance(wanted, torch.Tensor):
        result = result[0]
    pairs = zip(result, wanted, strict=True) if isinstance(wanted, list | tuple) else [(result, wanted)]
    for one, other in pairs:
        assert one.dtype == other.dtype, (op, node.format_node())
        torch.testing.assert_close(
            one, other, rtol=1e-4, atol=1e-5, equal_nan=True, msg=lambda text: f"{op} {node}: {text}"
        )


def test_readings_compute_the_same_and_all_of_them_are_met(tried: Counter[tuple[str, str]]) -> None:
    met = {one for one in tried if tried[one]}
    assert len(met) > 150
    written = {name for name, _ in met}
    exempt = {"aten.conv3d.default", "aten.conv_transpose1d.default", "aten.conv_transpose3d.input"}
    assert set(READERS) - written <= exempt, set(READERS) - written


def test_a_wrong_reading_is_found() -> None:
    """The comparison can fail: a transposition is read with another dim."""
    program = torch.export.export(Whole(lambda x: x.transpose(0, 1)), (torch.randn(2, 3),))
    values = values_of(program, (torch.randn(2, 3),))
    node = next(one for one in program.graph.nodes if one.op == "call_function")
    with pytest.raises(AssertionError):
        compare(torch.ops.aten.permute.default, {"self": node.args[0], "dims": [0, 1]}, values, node)


# Rules


ATTENTION = """
rulebook: 1
rules:
- id: my.attention
  vars: {q: "f32 [*B, L, E]", k: "f32 [*B, M, E]", v: "f32 [*B, M, V]", m: "f32 [~B, L, M]", c: "float in [0.01, 32.0]"}
  match: |
    s = aten.mul.Tensor(aten.matmul.default(q, aten.transpose.int(k, -2, -1)), c)
    p = aten.softmax.int(aten.add.Tensor(s, m), -1)
    return aten.matmul.default(p, v)
  replace: return aten.scaled_dot_product_attention.default(q, k, v, m, 0.0, False, scale=c)
  equiv: {rtol: 1.0e-4, atol: 1.0e-5, lhs_nan: any, why: where everything is masked attention gives zeros and not NaN}
"""


class Attention(torch.nn.Module):
    """Attention as models write it: a cast, a dropout and copies that change nothing among it."""

    def __init__(self, heads: int, groups: int) -> None:
        super().__init__()
        self.heads, self.groups = heads, groups
        self.query, self.key, self.value = (torch.nn.Linear(12, 4 * n) for n in (heads, groups, groups))

    def split(self, x: torch.Tensor, count: int) -> torch.Tensor:
        x = x.view(x.shape[0], x.shape[1], count, 4).transpose(1, 2)
        return x if count == self.heads else x[:, :, None].expand(-1, -1, self.heads // count, -1, -1).reshape(
            x.shape[0], self.heads, x.shape[2], 4)  # fmt: skip

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = self.query(x), self.key(x), self.value(x)
        q, k, v = self.split(q, self.heads), self.split(k, self.groups), self.split(v, self.groups)
        scores = torch.matmul(q, k.transpose(2, 3)) * 0.5 + mask
        weights = functional.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
        weights = functional.dropout(weights, p=0.1, training=self.training)
        return torch.matmul(weights, v).transpose(1, 2).contiguous().reshape(x.shape[0], x.shape[1], -1)


@pytest.mark.parametrize(("heads", "groups"), [(3, 3), (4, 2), (1, 1)])
def test_attention_written_once_fires_in_both_dialects(heads: int, groups: int) -> None:
    book = parse_book(ATTENTION)
    assert not book.found
    given = (torch.randn(2, 5, 12), torch.randn(2, 1, 5, 5))
    exported = torch.export.export(Attention(heads, groups).eval(), given)
    for program in (exported, to_edge(exported).exported_program()):
        wanted = program.module()(*given)
        editor = GraphEditor(copy_program(program))
        report = RuleEngine(book.rules).run(editor)
        assert len(report.journal) == 1, report.rejections
        torch.testing.assert_close(editor.program.module()(*given), wanted, rtol=1e-4, atol=1e-5)


def fired(text: str, function: Callable[..., Any], *given: torch.Tensor) -> tuple[int, int]:
    """Return how often a rule fires on a function, as exported and in Edge; results must stay."""
    book = parse_book("rulebook: 1\nrules:\n- id: one\n" + text)
    assert not book.found, [one.render() for one in book.found]
    exported = torch.export.export(Whole(function), given)
    counts = []
    for program in (exported, to_edge(exported).exported_program()):
        wanted = program.module()(*given)
        editor = GraphEditor(copy_program(program))
        counts.append(len(RuleEngine(book.rules).run(editor).journal))
        torch.testing.assert_close(editor.program.module()(*given), wanted)
    return counts[0], counts[1]


X = torch.randn(3, 4)
SQUARE = "  vars: {x: 'f32 [*S]'}\n  match: return aten.neg.default(aten.neg.default(x))\n  replace: return x\n"


def test_what_is_used_elsewhere_is_not_computed_twice() -> None:
    """A copy between matched calls goes with the match, unless something else uses it."""
    text = (
        "  vars: {x: 'f32 [*S]'}\n  match: return aten.abs.default(aten.exp.default(aten.tanh.default(x)))\n"
        "  replace: return aten.exp.default(aten.tanh.default(x))\n"
    )

    def inside(x: torch.Tensor) -> torch.Tensor:
        return x.tanh().clone().exp().clone().abs()

    def outside(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        inner = x.tanh().exp().clone()
        return inner.abs(), inner + 1

    assert fired(text, inside, X)[0] == 1
    assert fired(text, outside, X)[0] == 0


def test_a_rule_from_one_form_to_another_is_about_the_form() -> None:
    """It does not match its own results, and so ends."""
    text = (
        "  vars: {x: 'f32 [*S]', p: 'perm of x'}\n  match: return aten.permute.default(x, p)\n"
        "  replace: return aten.permute_copy.default(x, p)\n"
    )
    assert fired(text, lambda x: x.t(), X) == (0, 0)
    assert fired(text, lambda x: x.permute(1, 0), X) == (1, 0)


def test_a_rule_does_not_match_a_result_that_it_chooses_itself() -> None:
    """A batch norm is read from the first result of the one at inference, which is what the rule makes."""
    exported = torch.export.export(torch.nn.BatchNorm2d(3).eval(), (torch.randn(2, 3, 4, 4),))
    rule = next(one for one in book("exported").rules if one.id == "exported.batch-norm-to-inference")
    engine = RuleEngine([rule])
    editor = GraphEditor(copy_program(exported))
    for expected in (1, 0):
        statistics = engine.run(editor).statistics[rule.id]
        assert (statistics.matched, statistics.applied) == (expected, expected)


def test_a_rule_of_one_dialect_is_matched_as_it_is_written() -> None:
    text = (
        "  dialect: {}\n  vars: {{x: 'f32 [*S]', p: 'perm of x'}}\n"
        "  match: return aten.exp.default(aten.permute.default(x, p))\n"
        "  replace: return aten.permute.default(aten.exp.default(x), p)\n"
    )
    assert fired(text.format("any"), lambda x: x.permute(1, 0).exp(), X) == (1, 1)
    assert fired(text.format("aten"), lambda x: x.permute(1, 0).exp(), X) == (1, 0)


def test_edge_gets_the_operators_that_copy() -> None:
    """A replacement that views has the operator that copies in Edge."""
    text = (
        "  vars: {x: 'f32 [N, M]'}\n  match: return aten.permute.default(aten.exp.default(x), [1, 0])\n"
        "  replace: return aten.exp.default(aten.permute.default(x, [1, 0]))\n"
    )
    book = parse_book("rulebook: 1\nrules:\n- id: one\n" + text)
    exported = torch.export.export(Whole(lambda x: x.exp().permute(1, 0)), (X,))
    edge = to_edge(exported).transform([ApplyRules(book)])
    names = [node.target._op.__name__ for node in edge.exported_program().graph.nodes if node.op == "call_function"]
    assert names == ["permute_copy.default", "exp.default"]
    assert edge.to_executorch().buffer


def test_nothing_is_looked_through_where_tensors_are_written_to() -> None:
    """A copy of what is written to afterwards is not the tensor itself."""

    def written(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.neg()
        seen = y.view(-1)
        kept = y.clone()
        y.add_(1)
        return kept.neg() + y, seen

    exported = torch.export.export(Whole(written), (X,))
    assert any("add_" in str(node.target) for node in exported.graph.nodes)
    editor = GraphEditor(copy_program(exported))
    book = parse_book("rulebook: 1\nrules:\n- id: one\n" + SQUARE)
    assert not RuleEngine(book.rules).run(editor).journal
    torch.testing.assert_close(editor.program.module()(X), written(X))


def test_one_value_behind_copies_is_one_name() -> None:
    text = (
        "  vars: {x: 'f32 [*S]'}\n  match: return aten.mul.Tensor(x, aten.sigmoid.default(x))\n"
        "  replace: return aten.silu.default(x)\n"
    )
    assert fired(text, lambda x: x * torch.sigmoid(x.contiguous()), X)[0] == 1
