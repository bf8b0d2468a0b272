"""Programs that write in place, assert, and have regions without gradients mean what the functional ones do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit.fuzz.compilers import ExirkitCompiler, LoweringTrace
from exirkit.fuzz.examination import Examination, GraphSession, difference
from exirkit.fuzz.generation import generate
from exirkit.fuzz.oracles import check
from exirkit.fuzz.programs import build, parse_program, varied
from exirkit.passes import StageEvent

SEEDS = range(40)
KINDS = ("region", "assertion", "in place", "buffer", "attribute", "view", "shown")


def kinds_of(program: ExportedProgram) -> Iterator[str]:
    """Yield what a program has that programs of `build` do not."""
    for node in program.graph.nodes:
        text = str(node.target)
        if "wrap_with_set_grad_enabled" in text:
            yield "region"
        elif "_assert" in text:
            yield "assertion"
        elif node.op == "get_attr" and str(node.target).startswith("_tensor_"):
            yield "attribute"
        elif node.op == "call_function" and getattr(getattr(node.target, "_schema", None), "is_mutable", False):
            if node.target is torch.ops.aten.copy_.default and node.args[1].target is torch.ops.aten.clone.default:
                yield "view"
            if _is_read_from_an_earlier_view(node):
                yield "shown"
            yield "buffer" if isinstance(node.args[0], Node) and node.args[0].op == "placeholder" else "in place"


def _is_read_from_an_earlier_view(write: Node) -> bool:
    """Whether memory is written by the name of the value that was computed, and read by that of a view taken before.

    Zeros do not count: making them may be a view of something else, and the write is one to a view then.
    """
    written = write.args[0]
    targets = (torch.ops.aten.neg.default, torch.ops.aten.logical_not.default)
    if not isinstance(written, Node) or written.target not in targets:
        return False
    views, seen = [written], set()
    while views:
        for user in views.pop().users:
            schema = getattr(user.target, "_schema", None)
            if user < write and schema is not None and any(one.alias_info for one in schema.returns):
                views.append(user)
                seen.add(user)
    return any(write < reader for view in seen for reader in view.users)


def test_they_compute_the_same_and_have_everything() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        program = generate(seed)
        examination = Examination(program, ExirkitCompiler())
        for method, plain in build(program).items():
            other = varied(plain, seed)
            seen.update(set(kinds_of(other)))
            returned = other.graph.output_node().args[0]
            specs = zip(other.graph_signature.output_specs, returned, strict=True)
            assert all(spec.arg.name == value.name for spec, value in specs if isinstance(value, Node))
            sessions = GraphSession(plain), GraphSession(other)
            for inputs in examination.inputs.get(method, []):
                one, two = (session.run(inputs) for session in sessions)
                assert difference(two.outputs, one.outputs) is None, (seed, method, other.graph)
    assert min(seen[kind] for kind in KINDS) >= 2, seen


def test_what_is_written_is_not_read_by_calls_that_go_through_memory_their_own_way() -> None:
    text = """program(1)
i = constant("i64[2]", numbers([1, 0]))

def forward(x: "f32[2, 2]"):
    a = aten.neg.default(x)
    b = aten.index_put.default(a, [i], a)
    c = aten.abs.default(b)
    d = aten.add.Tensor(c, c)
    return d

run("forward", x=dyadic(1))
"""
    program = parse_program(text)
    built = build(program)["forward"]
    inputs = Examination(program, ExirkitCompiler()).inputs["forward"][0]
    wanted = GraphSession(built).run(inputs).outputs
    graphs = [varied(built, seed) for seed in range(12)]
    assert all(difference(GraphSession(one).run(inputs).outputs, wanted) is None for one in graphs)
    # Elements of the same places may be read while they are written.
    assert any("add_" in str(one.graph) for one in graphs)


def test_what_may_be_an_argument_is_not_written_and_what_may_be_a_copy_is_not_taken_before() -> None:
    text = """program(1)
w = parameter("f32[2, 3]", dyadic(3))

def forward(x: "f32[3, 2]"):
    a = aten._unsafe_view.default(w, [3, 2])
    b = aten.add.Tensor(x, a)
    c = aten.neg.default(b)
    d = aten.to.dtype(c, torch.int32)
    return a, d

run("forward", x=dyadic(1))
"""
    program = parse_program(text)
    built = build(program)["forward"]
    inputs = Examination(program, ExirkitCompiler()).inputs["forward"][0]
    wanted = GraphSession(built).run(inputs).outputs
    written = 0
    for seed in range(60):
        changed = varied(built, seed)
        for node in changed.graph.nodes:
            if node.op == "call_function" and getattr(getattr(node.target, "_schema", None), "is_mutable", False):
                written += 1
                at = node
                while isinstance(at, Node) and at.op == "call_function":
                    at = at.args[0] if at.args and at.target is not torch.ops.aten._unsafe_view.default else None
                    assert at is not None
        assert difference(GraphSession(changed).run(inputs).outputs, wanted) is None
    assert written > 40


def test_what_an_unsafe_view_shows_is_not_written_while_the_view_is_read() -> None:
    text = """program(1)
b = buffer("f32[2, 2]", dyadic(bits=0))

def forward(x: "f32[2, 2]"):
    a = aten._unsafe_view.default(b, [4])
    c = aten.copy.default(b, x)
    update(b, c)
    return a

run("forward", x=zeros())
"""
    program = parse_program(text)
    built = build(program)["forward"]
    inputs = Examination(program, ExirkitCompiler()).inputs["forward"][0]
    wanted = GraphSession(built).run(inputs).outputs
    assert all(difference(GraphSession(varied(built, seed)).run(inputs).outputs, wanted) is None for seed in range(12))


def test_writes_go_through_views_that_turn_all_elements() -> None:
    program = parse_program(
        'program(1)\n\ndef forward(x: "f32[2, 3]"):\n    y = aten.neg.default(x)\n    z = aten.abs.default(y)\n'
        '    return z\n\nrun("forward", x=dyadic(1))\n'
    )
    built = build(program)["forward"]
    turned: Counter[str] = Counter()
    for seed in range(100):
        for node in varied(built, seed).graph.nodes:
            at = node.args[0] if node.target is torch.ops.aten.copy_.default else None
            # Behind the write, elements are put back by turning them the other way.
            if isinstance(at, Node) and at.target in _TURNING and at.meta["val"].shape[0] == 3:
                turned[str(at.target)] += 1
    assert min(turned[str(one)] for one in _TURNING) >= 2, turned


_TURNING = (torch.ops.aten.permute.default, torch.ops.aten.transpose.int, torch.ops.aten.t.default)


def test_shapes_are_changed_in_place() -> None:
    text = """program(1)

def forward(x: "f32[2, 3]"):
    y = aten.neg.default(x)
    z = aten.unsqueeze.default(y, 0)
    w = aten.abs.default(z)
    return w

run("forward", x=dyadic(1))
"""
    program = parse_program(text)
    built = build(program)["forward"]
    written = [seed for seed in range(9) if "aten.unsqueeze_." in str(varied(built, seed).graph)]
    assert written
    verdict = check(program, compiler=ExirkitCompiler(variation=written[0]))
    assert verdict.is_good, verdict.failures
    assert "functionalize" in verdict.worked
    assert "decompose-whole-graph" not in verdict.worked


def test_the_same_seed_is_the_same_program() -> None:
    plain = build(generate(1))["forward"]
    texts = {str(varied(plain, seed).graph) for seed in (5, 5, 6)}
    assert len(texts) == 2
    assert str(plain.graph) not in texts


def test_what_is_taken_away_leaves_the_rest_varied_alike() -> None:
    """So that a program that fails in one form can be reduced."""
    step = "    {0} = aten.neg.default({1})\n"
    lines = [step.format(f"v{place}", f"v{place - 1}" if place else "x") for place in range(8)]
    other = step.format("w0", "y") + step.format("w1", "w0")
    head, tail = 'program(1)\n\ndef forward(x: "f32[3]", y: "f32[2]"):\n', 'run("forward", x=dyadic(1), y=dyadic(2))\n'
    whole = build(parse_program(f"{head}{other}{''.join(lines)}    return v7, w1\n\n{tail}"))["forward"]
    less = build(parse_program(f"{head}{''.join(lines)}    return v7\n\n{tail}"))["forward"]

    def calls(program: ExportedProgram, seed: int) -> list[str]:
        made = [node for node in varied(program, seed).graph.nodes if isinstance(node.meta.get("val"), torch.Tensor)]
        return [str(node.target) for node in made if node.meta["val"].shape == (3,) and node.op == "call_function"]

    found = [(calls(whole, seed), calls(less, seed)) for seed in range(40)]
    # Where neither an assertion nor a region was in what is gone.
    assert sum(one == other for one, other in found) >= 12
    assert len({tuple(one) for one, _ in found}) > 20


class Effects(LoweringTrace):
    """Which stages have changed a program."""

    def __init__(self) -> None:
        super().__init__()
        self.stages: set[str] = set()

    def see(self, event: StageEvent) -> None:
        super().see(event)
        if event.moment == "after" and event.modified:
            self.stages.add(event.name)


def test_passes_that_functional_programs_do_not_need_have_work() -> None:
    effects = Effects()
    for seed in range(12):
        compiler = ExirkitCompiler(level=0, verify="none", variation=seed)
        compiler.lower(Examination(generate(seed), compiler).exported, effects)
    assert {"functionalize", "inline-grad-regions", "remove-metadata-asserts", "remove-asserts"} <= effects.stages


WRITTEN = parse_program(
    """program(1)
b = buffer("f32[4]", dyadic(3))

def forward(x: "f32[4]"):
    y = aten.add.Tensor(x, b)
    z = aten.neg.default(y)
    v = aten.view.default(z, [2, 2])
    n = aten.mul.Tensor(z, x)
    update(b, n)
    return v, y

run("forward", x=dyadic(1))
run("forward", x=dyadic(2))
"""
)


def test_all_oracles_accept_many_forms_of_one_program() -> None:
    for seed in range(6):
        verdict = check(WRITTEN, compiler=ExirkitCompiler(level=seed % 3, variation=seed))
        assert verdict.is_good, (seed, verdict.failures)
