"""What is tried: compilers, from our own chain with all its choices to black boxes that return bytes."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from torch.export import ExportedProgram

from exirkit.ir import ALIGNMENT, Diagnostic, UsageError, operator_named
from exirkit.passes import (
    ApplyRules,
    EdgeCompileConfig,
    ExecutorchBackendConfig,
    MemoryPlanningPass,
    Pipeline,
    greedy,
    naive,
    parse_memory_policy,
    portfolio,
    watching,
)
from exirkit.patterns import Attribute, CompiledRule, read_target
from exirkit.program import EdgeProgramManager, ExecutorchProgramManager, to_edge

from .attribute_passes import CarryOutAttributes, PutAttributes, asked_attributes, attributes_of
from .lowering_trace import LoweringTrace
from .named_parts import PlacedPipelines, place_pipelines, rules_of_book, rules_of_pipeline

_OFFICIAL = functools.cache(lambda: read_target("official_host"))
PLANNERS = {"portfolio": portfolio, "greedy": greedy, "naive": naive}


@dataclass(frozen=True)
class Lowering:
    """What a compiler made.

    Attributes:
        data: The file.
        edge: Programs of the Edge dialect by method; empty for a black box.
        planned: Programs of the ExecuTorch dialect by method, with a memory plan; empty for a black box.
        manager: What our chain returned, if it was our chain.
        is_exact: Whether the compiler promises results bit for bit. Some of its rules may have declared a tolerance,
            and then it does only if none of them was applied.
        functions: What a compiler made that makes no file: by method, what can be called, or a program.
    """

    data: bytes
    edge: Mapping[str, ExportedProgram] = field(default_factory=dict)
    planned: Mapping[str, ExportedProgram] = field(default_factory=dict)
    manager: ExecutorchProgramManager | None = None
    is_exact: bool = True
    functions: Mapping[str, Callable[..., Any] | ExportedProgram] = field(default_factory=dict)


class Compiler(Protocol):
    """Something that lowers programs."""

    @property
    def is_black_box(self) -> bool:
        """Whether nothing but the file can be examined."""

    def lower(self, programs: Mapping[str, ExportedProgram], trace: LoweringTrace) -> Lowering:
        """Lower programs by method name; they are not changed.

        Args:
            programs: Fresh from the exporter.
            trace: Is told of the steps, as far as there are any to be seen.
        """

    def describe(self) -> str:
        """Return the Python expression that makes this compiler, for scripts and reports."""


@dataclass(frozen=True)
class ExirkitCompiler:
    """Our chain.

    Attributes:
        level: Optimization level: 0, 1, 2.
        planner: `portfolio`, `greedy` or `naive`, or an algorithm, itself or as `MODULE:NAME`.
        alloc_graph_input: Plan memory for inputs.
        alloc_graph_output: Plan memory for outputs.
        in_place: Let results take the place of arguments that nothing needs any more.
        schedule: Order instructions so that less is live at once.
        alignment: Of offsets and sizes of arenas, in bytes.
        share_mutable_buffers: Buffers of one name have one place in all methods.
        separate_methods: Every method has arenas of its own.
        memory_policy: Text of a memory policy; what it says about the planner goes before `planner`.
        remove_view_copy: Let reshaping copies share the memory of their source.
        skip_dim_order: Keep memory formats.
        run_reinplace_pass: As in `ExecutorchBackendConfig`; so are the following ones.
        reinplace_extra_ops: Names of operators, such as `aten.relu.default`.
        do_quant_fusion_and_const_prop: Compute with quantized values as integers.
        optimize_for: `speed` or `size`.
        search: How many rewrites may be tried in each method at level 2.
        emit_stacktrace: Store the source lines of instructions.
        constant_tensor_alignment: Alignment of constants, in bytes.
        pipeline: A pipeline, or its file, instead of the shipped one between its dialects; one from Edge to Edge
            runs in between. Or a list of several.
        rules: Rule books (names or files) to apply to Edge programs, or compiled rules.
        passes: Passes to run on Edge programs: objects, or classes and functions as `MODULE:NAME`.
        verify: When verifiers examine a program: after `each` stage, at the `end`, or never (`none`).
        kernels: `any`: the reference runtime, which takes calls that no kernel of the official one takes. `official`:
            the kernels of the official host runtime; operators without kernel are replaced first (legalization), and
            what is left that no kernel takes is rejected (EK359, EK360).
        variation: Seed of another form of the exported programs, see `exirkit.fuzz.programs.varied`: what an
            examination exports writes in place, asserts, and has regions without gradients. None: as it is built.
    """

    level: int = 1
    planner: str | Any = "portfolio"
    alloc_graph_input: bool = True
    alloc_graph_output: bool = True
    in_place: bool = False
    schedule: bool = False
    alignment: int = ALIGNMENT
    share_mutable_buffers: bool = False
    separate_methods: bool = False
    memory_policy: str | None = None
    remove_view_copy: bool = True
    skip_dim_order: bool = False
    run_reinplace_pass: bool = False
    reinplace_extra_ops: tuple[str, ...] = ()
    do_quant_fusion_and_const_prop: bool = False
    optimize_for: Literal["speed", "size"] = "speed"
    search: int = 0
    emit_stacktrace: bool = False
    constant_tensor_alignment: int | None = None
    pipeline: str | Pipeline | Sequence[str | Pipeline] | None = None
    rules: Sequence[str] | Sequence[CompiledRule] = ()
    passes: Sequence[Any] = ()
    verify: Literal["each", "end", "none"] = "each"
    kernels: Literal["any", "official"] = "any"
    variation: int | None = None

    @property
    def is_black_box(self) -> bool:
        """Whether nothing but the file can be examined."""
        return False

    def lower(self, programs: Mapping[str, ExportedProgram], trace: LoweringTrace) -> Lowering:
        """Lower programs by method name."""
        placed = self.placed_pipelines()
        rules = self.rules_under_test() if self.has_rules else []
        trace.expect({one.file: one.name for one in placed}, [one.id for one in rules])
        with watching(trace.see, verify=self.verify, sees_passes=trace.sees_passes):
            manager = to_edge(
                dict(programs),
                compile_config=EdgeCompileConfig(_skip_dim_order=self.skip_dim_order),
                pipeline=placed.to_edge,
            )
            manager = self._transformed(manager, trace, asked_attributes(rules))
            for pipeline in placed.on_edge:
                changed = {name: pipeline.run(manager.exported_program(name)).program for name in manager.methods}
                manager = EdgeProgramManager(changed, compile_config=manager.compile_config)
            left = attributes_of(rules)
            if left:
                manager = self._with(CarryOutAttributes(left), manager, trace)
            edge = {name: manager.exported_program(name) for name in sorted(manager.methods)}
            trace.edge = edge
            trace.see_part("planner")
            made = manager.to_executorch(
                self.config(has_names=trace.has_state),
                pipeline=placed.to_executorch,
            )
            trace.see_part("emitter")
            planned = {name: made.exported_program(name) for name in sorted(made.methods)}
            data = made.buffer
        trace.see_part(None)
        return Lowering(data, edge, planned, made, is_exact=not trace.relaxing_rules)

    def config(self, *, has_names: bool = False) -> ExecutorchBackendConfig:
        """Return the choices of `to_executorch`.

        Args:
            has_names: Store the names of mutable buffers, so that they can be examined between runs.
        """
        policy = None if self.memory_policy is None else parse_memory_policy(self.memory_policy)
        says_planner = policy is not None and policy.planner is not None
        planner = MemoryPlanningPass(
            memory_planning_algo=None if says_planner else PLANNERS.get(self.planner) or imported(self.planner),
            alloc_graph_input=self.alloc_graph_input,
            alloc_graph_output=self.alloc_graph_output,
            share_mutable_buffers=self.share_mutable_buffers,
            alignment=self.alignment,
            in_place=self.in_place,
            schedule=self.schedule,
            separate_methods=self.separate_methods,
            policy=policy,
        )
        return ExecutorchBackendConfig(
            memory_planning_pass=planner,
            remove_view_copy=self.remove_view_copy,
            run_reinplace_pass=self.run_reinplace_pass,
            reinplace_extra_ops=frozenset(map(operator_named, self.reinplace_extra_ops)),
            do_quant_fusion_and_const_prop=self.do_quant_fusion_and_const_prop,
            optimize_for=self.optimize_for,
            search=self.search,
            emit_stacktrace=self.emit_stacktrace,
            constant_tensor_alignment=self.constant_tensor_alignment,
            optimization_level=self.level,
            emit_mutable_buffer_names=has_names,
            target=_OFFICIAL() if self.kernels == "official" else _OFFICIAL().without_registry(),
        )

    def describe(self) -> str:
        """Return the Python expression that makes this compiler."""
        usual = ExirkitCompiler()
        given = [
            f"{name}={_expression(getattr(self, name))}"
            for name in self.__dataclass_fields__
            if getattr(self, name) != getattr(usual, name)
        ]
        return f"ExirkitCompiler({', '.join(given)})"

    @property
    def has_rules(self) -> bool:
        """Whether rules of the user may be under test."""
        return bool(self.rules) or self.pipeline is not None

    def compiled_rules(self) -> list[CompiledRule]:
        """Return the rules that `rules` names.

        Raises:
            ModelError: All that is wrong with a book.
            OSError: A book cannot be read.
        """
        found: list[CompiledRule] = []
        for one in self.rules:
            found += rules_of_book(one) if isinstance(one, str) else [one]
        return found

    def rules_under_test(self) -> list[CompiledRule]:
        """Return the rules that `rules` names, and those of pipelines that do not come with exirkit.

        Raises:
            ModelError: All that is wrong with a book or a pipeline.
            OSError: A file cannot be read.
        """
        named = [rule for pipeline in self.placed_pipelines() for rule in rules_of_pipeline(pipeline)]
        return list({rule.id: rule for rule in (*self.compiled_rules(), *named)}.values())

    def placed_pipelines(self) -> PlacedPipelines:
        """Return the pipelines by the step of lowering that they stand for.

        Raises:
            ModelError: All that is wrong with a pipeline.
            UsageError: EK871, two stand for one step, or one for none.
            OSError: A file cannot be read.
        """
        if self.pipeline is None:
            return PlacedPipelines()
        is_one = isinstance(self.pipeline, str | Pipeline)
        return place_pipelines((self.pipeline,) if is_one else self.pipeline)  # type: ignore[arg-type]

    def _transformed(
        self, manager: EdgeProgramManager, trace: LoweringTrace, asked: Sequence[Attribute]
    ) -> EdgeProgramManager:
        rules = self.compiled_rules()
        passes = [_instance(imported(one)) for one in self.passes]
        passes += [PutAttributes(asked)] if asked else []
        passes += [ApplyRules(rules)] if rules else []
        for one in passes:
            manager = self._with(one, manager, trace)
        return manager

    @staticmethod
    def _with(one: Any, manager: EdgeProgramManager, trace: LoweringTrace) -> EdgeProgramManager:
        before = {name: manager.exported_program(name) for name in sorted(manager.methods)}
        trace.see_passes("before", before, before, one)
        manager = manager.transform([one])
        trace.see_passes("after", before, {name: manager.exported_program(name) for name in before}, one)
        return manager


@dataclass(frozen=True)
class FunctionCompiler:
    """A function of the user: `MODULE:FUNCTION`.

    It is called with exported programs by method name, and returns the file as bytes, something with the file in its
    attribute `buffer`, or, by method name, what can be called with the inputs: a function or an exported program. If it
    has an argument `watch`, it is to call `watch(name, programs)` after each of its passes, with the exported programs
    as they are then, by method name; failures are traced to its passes.

    Attributes:
        target: `MODULE:FUNCTION`, or the function itself.
    """

    target: str | Callable[[dict[str, ExportedProgram]], Any]

    @property
    def is_black_box(self) -> bool:
        """Whether nothing but the file can be examined."""
        return True

    def lower(self, programs: Mapping[str, ExportedProgram], trace: LoweringTrace) -> Lowering:
        """Lower programs by method name."""
        function = self._function()
        trace.see_part(self.describe())
        if self.tells_of_passes:
            trace.see_programs("export", programs)
            made = function(dict(programs), watch=trace.see_programs)
        else:
            made = function(dict(programs))
        trace.see_part(None)
        if isinstance(made, Mapping):
            return Lowering(b"", functions=dict(made))
        return Lowering(bytes(made if isinstance(made, bytes | bytearray) else made.buffer))

    @property
    def tells_of_passes(self) -> bool:
        """Whether the function takes `watch`, and so tells of its passes."""
        try:
            return "watch" in inspect.signature(self._function()).parameters
        except (TypeError, ValueError):
            return False

    def describe(self) -> str:
        """Return the Python expression that makes this compiler."""
        return f"FunctionCompiler({_expression(self.target)})"

    def _function(self) -> Callable[..., Any]:
        found: Callable[..., Any] = imported(self.target)
        return found


def imported(target: Any) -> Any:
    """Return what `MODULE:NAME` names; anything that is not a string as it is.

    Raises:
        UsageError: EK831, there is no such thing.
    """
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    try:
        return functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            Diagnostic(
                code="EK831",
                message=f"nothing is called {target}: {error}",
                expected="MODULE:NAME",
                hint="put the directory of the module into PYTHONPATH",
            )
        ) from error


def compiler_of(target: str, **choices: Any) -> Compiler:
    """Return the compiler that a text names.

    Args:
        target: `exirkit`, `exirkit:2` (with an optimization level), `official`, `official:VARIANT` (one of
            `exirkit.fuzz.official.VARIANTS`), or `MODULE:FUNCTION`.
        choices: Attributes of `ExirkitCompiler`, for `exirkit`.

    Raises:
        UsageError: EK831, there is no such compiler.
    """
    name, _, rest = target.partition(":")
    if name == "exirkit" and (not rest or rest in "012"):
        return ExirkitCompiler(**{"level": int(rest or 1), **choices})
    if name == "official":
        from .official_compiler import OfficialCompiler

        return OfficialCompiler(variant=rest)
    if not rest:
        raise UsageError(
            Diagnostic(
                code="EK831",
                message=f"there is no compiler {target}",
                expected="exirkit, exirkit:0 to exirkit:2, official, or MODULE:FUNCTION",
            )
        )
    compiler = FunctionCompiler(target)
    imported(target)
    return compiler


def _instance(found: Any) -> Any:
    return found() if isinstance(found, type) else found


def _expression(value: Any) -> str:
    if callable(value) and not isinstance(value, Pipeline):
        named = value if hasattr(value, "__qualname__") else type(value)
        return repr(f"{named.__module__}:{named.__qualname__}")
    if isinstance(value, Pipeline):
        return repr(str(Path(value.file)))
    if isinstance(value, list | tuple):
        return f"[{', '.join(_expression(one) for one in value)}]"
    return repr(value)


def every_choice() -> Iterator[ExirkitCompiler]:
    """Yield our chain with its choices, one after another away from the usual ones."""
    for level in (0, 1, 2):
        yield ExirkitCompiler(level=level)
    yield ExirkitCompiler(planner="naive")
    yield ExirkitCompiler(in_place=True)
    yield ExirkitCompiler(alloc_graph_input=False)
    yield ExirkitCompiler(alloc_graph_output=False)
    yield ExirkitCompiler(remove_view_copy=False)
    yield ExirkitCompiler(skip_dim_order=True)
    yield ExirkitCompiler(rules=("canonicalize", "algebra", "fold", "copies", "finite"))
