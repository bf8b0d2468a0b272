"""The programs in which rules look for sites: as exported, our Edge and the official Edge; and what they find there."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from exirkit import to_edge
from exirkit.ir import GraphEditor, copy_program, underlying
from exirkit.patterns import Application, CompiledRule, RewriteOptions, RuleEngine, load_book

from .sites import Site

_BOOKS = ("exported", "canonicalize", "algebra", "fold", "copies", "fuse", "attention")
_FINDERS: dict[str, tuple[str, ...]] = {
    "attention": ("attention.sdpa",),
    "rotary": ("attention.rope",),
    "RMS norm": ("fuse.rms-norm",),
    "layer norm": ("fuse.layer-norm",),
    "group norm": ("fuse.group-norm",),
    "GELU": ("fuse.gelu-erf",),
    "GELU, tanh": ("fuse.gelu-tanh",),
    "SiLU": ("fuse.silu",),
    "hardswish": ("fuse.hardswish",),
    "hardsigmoid": ("fuse.hardsigmoid",),
    "mish": ("fuse.mish",),
    "GLU": ("fuse.glu",),
    "SwiGLU": ("fuse.swiglu",),
    "linear + activation": ("fuse.linear-activation", "fuse.linear-clamp"),
    "conv + activation": ("fuse.conv-activation", "fuse.conv-clamp", "fuse.conv-transpose-activation"),
    "conv + batch norm": ("fold.conv-batch-norm", "fold.conv-transpose-batch-norm"),
    "pixel shuffle": ("fuse.pixel-shuffle",),
    "squeeze and excite": ("exported.mean-of-pixels",),
}
"""Beginnings of the ids of the rules that find a concept."""

# Rules that say more of an operator that is found already.
_REFINING = ("attention.sdpa-grouped", "fuse.rms-norm-weight")
_OPERATORS: dict[str, str] = {
    "aten.scaled_dot_product_attention.default": "attention", "attention.rope": "rotary",
    "aten.rms_norm.default": "RMS norm", "aten.layer_norm.default": "layer norm",
    "aten.native_layer_norm.default": "layer norm", "aten.group_norm.default": "group norm",
    "aten.native_group_norm.default": "group norm", "aten.silu.default": "SiLU", "aten.silu_.default": "SiLU",
    "aten.hardswish.default": "hardswish", "aten.hardswish_.default": "hardswish",
    "aten.hardsigmoid.default": "hardsigmoid", "aten.hardsigmoid_.default": "hardsigmoid",
    "aten.mish.default": "mish", "aten.mish_.default": "mish", "aten.glu.default": "GLU",
    "aten.pixel_shuffle.default": "pixel shuffle", "aten.mean.dim": "squeeze and excite",
}  # fmt: skip
"""Operators that are a concept already."""

# Rules that would take what others look for: they have runs of their own.
_LAYERS = ("linear + activation", "conv + activation", "conv + batch norm")
_RUNS: tuple[tuple[str, ...], ...] = (
    _LAYERS,
    ("SwiGLU",),
    tuple(key for key in _FINDERS if key not in (*_LAYERS, "SwiGLU")),
)


@dataclass
class Found:
    """What was found in one program.

    Attributes:
        fired: Sites where a rule fired.
        there: Sites where the operator stands already, and no rule is needed.
        error: Why there is no program, or why the rules could not be applied; empty when all went well.
    """

    fired: Counter[Site] = field(default_factory=Counter)
    there: Counter[Site] = field(default_factory=Counter)
    error: str = ""


def exported(model: torch.nn.Module, inputs: tuple[Any, ...]) -> ExportedProgram:
    """Return the model as `torch.export` has it; where it works in place, as torch's functional form of that."""
    program = torch.export.export(model, inputs, strict=False)
    if any(node.op == "call_function" and is_in_place(node.target) for node in program.graph.nodes):
        return program.run_decompositions({})
    return program


def is_in_place(target: Any) -> bool:
    """Return whether an operator writes to an argument."""
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def our_edge(program: ExportedProgram) -> ExportedProgram:
    return to_edge(program).exported_program()


def official_edge(program: ExportedProgram) -> ExportedProgram:
    from executorch.exir import to_edge as official_to_edge

    return official_to_edge(program).exported_program()


COLUMNS: dict[str, Callable[[ExportedProgram], ExportedProgram]] = {
    "exported": lambda program: program,
    "our Edge": our_edge,
    "official Edge": official_edge,
}


class Finder:
    """The shipped rules, ready to run."""

    def __init__(self) -> None:
        self.rules = [rule for book in _BOOKS for rule in load_book(book).require_valid().rules if is_used(rule)]
        self.engines = [RuleEngine([one for one in self.rules if _is_in(one.id, run)]) for run in _RUNS]

    def find(self, program: ExportedProgram) -> Found:
        """Run the rules over copies of a program, and say what they found."""
        found = Found()
        there = operators_there(program)
        fired: Counter[Site] = Counter()
        for engine, run in zip(self.engines, _RUNS, strict=True):
            fired += Counter(
                {site: count for site, count in applications(engine, program).items() if site.concept in run}
            )
        found.fired, found.there = fired, there
        return found


def is_used(rule: CompiledRule) -> bool:
    """Return whether a rule takes part: those that choose by cost or for a target do not."""
    return rule.rule.choose != "cost" and rule.id not in ("fuse.mm-to-addmm", "fuse.mm-add")


def concept_of(rule: str) -> str | None:
    """Return what a rule finds, or None if it only tidies."""
    if rule in _REFINING:
        return None
    return next((key for key, ids in _FINDERS.items() if rule.startswith(ids)), None)


def _is_in(rule: str, run: Iterable[str]) -> bool:
    concept = concept_of(rule)
    return (
        concept is None
        or concept in run
        or concept in ("GELU, tanh", "GELU", "SiLU", "hardswish", "hardsigmoid", "mish")
    )


def applications(engine: RuleEngine, program: ExportedProgram) -> Counter[Site]:
    """Return where the rules of concepts fired, in a copy of a program."""
    editor = GraphEditor(copy_program(program))
    paths = {node.name: path_of(node) for node in editor.graph.nodes}
    found: Counter[Site] = Counter()

    def note(application: Application) -> None:
        path = paths.get(application.root, "")
        paths.update(dict.fromkeys(application.after, path))
        concept = concept_of(application.rule)
        if concept is not None:
            found[Site(concept, path)] += 1

    engine.run(editor, RewriteOptions(on_application=note))
    return found


def operators_there(program: ExportedProgram) -> Counter[Site]:
    """Return where the operator of a concept stands already."""
    found: Counter[Site] = Counter()
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        concept = _concept_there(node)
        if concept is not None:
            found[Site(concept, path_of(node))] += 1
    return found


def _concept_there(node: Node) -> str | None:
    schema = getattr(underlying(node.target), "_schema", None)
    if schema is None:
        return None
    name = f"{schema.name.replace('::', '.')}.{schema.overload_name or 'default'}"
    if name in ("aten.gelu.default", "aten.gelu_.default"):
        return "GELU, tanh" if node.kwargs.get("approximate") == "tanh" or "tanh" in node.args else "GELU"
    if name == "aten.mean.dim":
        return "squeeze and excite" if _is_mean_of_pixels(node) else None
    return _OPERATORS.get(name)


def _is_mean_of_pixels(node: Node) -> bool:
    value, dims = node.args[0].meta["val"], node.args[1]  # type: ignore[union-attr]
    return value.dim() == 4 and isinstance(dims, list | tuple) and sorted(dim % 4 for dim in dims) == [2, 3]  # type: ignore[operator]


def path_of(node: Node) -> str:
    """Return the module in which a node was made, as `layers.0.mlp`; empty where the model itself made it."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [entry[0] for entry in stack.values()]
    return re.sub(r"@\d+", "", paths[-1]) if paths else ""
