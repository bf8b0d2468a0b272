"""The documents of `exirkit compare --json` and `exirkit bisect --json`."""

from __future__ import annotations

from typing import Literal

from .reports import Finding, Report

GapKind = Literal["equal", "within", "value", "nan", "infinity", "type"]


class GapReport(Report):
    """How far a value is off.

    Attributes:
        kind: `equal`: bit for bit; `within` the tolerances; what differs otherwise.
        absolute: Largest absolute difference of finite elements.
        relative: That, divided by the largest magnitude of the expected tensor.
        allowed: What `absolute` may be.
        text: Where it is largest and what is there, or how the types differ.
    """

    kind: GapKind
    absolute: float
    relative: float
    allowed: float
    text: str


class OutputGapReport(Report):
    """One output of one run of one executor.

    Attributes:
        executor: `exported program`, `reference runtime` or `official runtime`.
        run: Counted from 1.
        output: Position, from 0.
        type: Dtype and shape.
        gap: The difference from eager torch.
    """

    executor: str
    run: int
    output: int
    type: str
    gap: GapReport


class NodeReport(Report):
    """A node, and where it comes from.

    Attributes:
        name: Its name.
        call: The call as text.
        source: Line of the model.
        module: Path of the module.
    """

    name: str
    call: str
    source: str | None
    module: str | None


class WrongStepReport(Report):
    """The first step of lowering after which results are wrong.

    Attributes:
        stage: Name of the pass.
        pipeline: File of the pipeline that it is in; empty for a pass that was given by itself.
        after: The pass before.
        result: Which result is off.
        gap: How far; absent if the program records what is not true, as `failure` says.
        failure: What is not true.
        rule: Id of the rule, if the pass applies rules.
        rule_place: File and line of the rule.
        application: Number of its application, from 1.
        rewritten: Names of the nodes that it rewrites.
        node: First node whose value differs.
        node_gap: How far its value is off.
        before: Node of the program before the step, to which it was compared.
        made: Nodes that the application or pass has made.
        removed: Nodes that the pass has removed or left without users.
    """

    stage: str
    pipeline: str
    after: str
    result: str
    gap: GapReport | None
    failure: str | None
    rule: str | None
    rule_place: str | None
    application: int | None
    rewritten: list[str]
    node: NodeReport | None
    node_gap: GapReport | None
    before: NodeReport | None
    made: list[NodeReport]
    removed: list[NodeReport]


class WrongInstructionReport(Report):
    """Where a runtime departs.

    Attributes:
        executor: The runtime.
        against: What it was compared to.
        instruction: Number of the instruction, from 0.
        operator: What it calls.
        gap: How far its result is off.
        node: The node that it comes from, if the file is what these options make.
    """

    executor: str
    against: str
    instruction: int
    operator: str
    gap: GapReport
    node: NodeReport | None


class ComparedMethodReport(Report):
    """What became of one method.

    Attributes:
        name: Its name.
        ok: Whether nothing differs.
        outputs: Every output of every run of every executor.
        failures: Why an executor does not run the file.
        missing: Why an executor was not asked.
        step: First step of lowering after which results are wrong.
        instructions: Where runtimes depart from the lowered program.
        notes: What else is to be said.
    """

    name: str
    ok: bool
    outputs: list[OutputGapReport]
    failures: dict[str, str]
    missing: dict[str, str]
    step: WrongStepReport | None
    instructions: list[WrongInstructionReport]
    notes: list[str]


class CompareReport(Report):
    """The document of `exirkit compare`.

    Attributes:
        ok: Whether nothing differs.
        target: The model.
        file: The program file, if one was given.
        is_own: Whether the file is what these options make of the model.
        inputs: What the inputs of every run are.
        seed: Of drawn inputs.
        methods: What became of every method.
        diagnostics: The findings.
    """

    ok: bool
    target: str
    file: str | None
    is_own: bool
    inputs: list[str]
    seed: int
    methods: list[ComparedMethodReport]
    diagnostics: list[Finding]


class BisectedMethodReport(Report):
    """What became of one method.

    Attributes:
        name: Its name.
        ok: Whether every step leaves a right program behind.
        steps: Passes that changed the program, in their order.
        step: The first wrong one.
    """

    name: str
    ok: bool
    steps: list[str]
    step: WrongStepReport | None


class BisectReport(Report):
    """The document of `exirkit bisect`.

    Attributes:
        ok: Whether no step is wrong.
        target: The model.
        inputs: What the inputs of every run are.
        seed: Of drawn inputs.
        methods: What became of every method.
        diagnostics: The findings.
    """

    ok: bool
    target: str
    inputs: list[str]
    seed: int
    methods: list[BisectedMethodReport]
    diagnostics: list[Finding]
