"""Analyses of a whole graph from files: that choose values, infer them, demand, or note what is known."""

from __future__ import annotations

from contextvars import ContextVar
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from exirkit.ir import DocumentCodes, ModelError, YamlSource, did_you_mean, read_source, read_text, validated

from .declaration import Propagation, compile_propagation
from .demands import Demands, compile_demands
from .inference import Inference, compile_inference
from .model import DemandModel, InferenceModel, NoteModel, PropagationModel
from .noting import Notes, compile_notes

Analysis = Propagation | Inference | Demands | Notes
"""Any of what a file can declare."""

SHIPPED = "propagations"
ELEMENT_RANGES = "ranges.elements"
"""The analysis that answers `range(x)` in rules."""

GRIDS = "quantize.grids"
"""The analysis that answers `grid(x)` in rules."""

_OF_CHOICES = frozenset({"values", "based_on", "transfer", "materialise"})
"""Keys of propagations that choose values, which may write an attribute as notes do."""
_CODES = DocumentCodes("EK290", "EK290")


def shipped_propagations() -> tuple[str, ...]:
    """Return the names of the analyses that come with exirkit."""
    folder = files("exirkit.patterns").joinpath(SHIPPED)
    return tuple(sorted(one.name.removesuffix(".yaml") for one in folder.iterdir() if one.name.endswith(".yaml")))


@cache
def _shipped(name: str) -> Analysis:
    resource = files("exirkit.patterns").joinpath(SHIPPED, f"{name}.yaml")
    return parse_analysis(resource.read_text(encoding="utf-8"), f"{SHIPPED}/{name}.yaml")


def load_analysis(path: str | Path) -> Analysis:
    """Read an analysis of a whole graph.

    Args:
        path: YAML file, or a name as in `shipped_propagations()`.

    Raises:
        ModelError: EK290, it is not the YAML of a propagation.
        OSError: It cannot be read.
    """
    if str(path) in shipped_propagations():
        return _shipped(str(path))
    return parse_analysis(read_text(path, "EK290"), str(path))


def parse_analysis(text: str, file: str = "<propagation>") -> Analysis:
    """Read an analysis from text; what is wrong beyond its form is in `found`.

    Raises:
        ModelError: EK290, it is not the YAML of a propagation.
    """
    source = read_source(text, _CODES.syntax, file=file)
    # A kind of facts is named by one word, values are a list or have constants.
    if isinstance(source.data, dict) and isinstance(source.data.get("values"), str):
        return compile_inference(validated(InferenceModel, source.data, source, _CODES.form), source)
    if isinstance(source.data, dict) and "demands" in source.data:
        return compile_demands(validated(DemandModel, source.data, source, _CODES.form), source)
    if isinstance(source.data, dict) and "write" in source.data and not source.data.keys() & _OF_CHOICES:
        notes = compile_notes(validated(NoteModel, source.data, source, _CODES.form), source)
        notes.uses = _used(notes, notes.model.uses)
        return notes
    base = _base(source)
    data = source.data if base is None else {**_of_base(base.model), **source.data}
    made = compile_propagation(validated(PropagationModel, data, source, _CODES.form), source, base)
    if made.model.uses is not None:
        made.uses = _used(made, made.model.uses)
    return made


_BASES: ContextVar[tuple[str, ...]] = ContextVar("_BASES", default=())


def _base(source: YamlSource) -> Propagation | None:
    """Return the propagation that one is based on.

    Raises:
        ModelError: EK291, it is not there, or is based on this one; all that is wrong with it.
    """
    name = source.data.get("based_on") if isinstance(source.data, dict) else None
    if not isinstance(name, str):
        return None
    text = source.text(("based_on",))
    known = _BASES.get()
    if name in known:
        raise ModelError([text.diagnostic("EK291", f"{' -> '.join((*known, name))} is a cycle")])
    token = _BASES.set((*known, name))
    try:
        return load_propagation(name).require_valid()
    except OSError:
        hint = did_you_mean(name, shipped_propagations())
        raise ModelError([text.diagnostic("EK291", f"{name!r} is not a propagation", hint=hint)]) from None
    finally:
        _BASES.reset(token)


def _of_base(model: PropagationModel) -> dict[str, Any]:
    """Return the data that a propagation takes over from the one that it is based on; rows and draws are compiled."""
    return model.model_dump(by_alias=True, exclude={"id", "doc", "transfer", "draw", "write", "based_on"})


def load_propagation(path: str | Path) -> Propagation:
    """Read an analysis that chooses values.

    Args:
        path: YAML file, or a name as in `shipped_propagations()`.

    Raises:
        ModelError: EK290, it is not the YAML of a propagation; EK249, it infers what is known, and chooses nothing.
        OSError: It cannot be read.
    """
    return _that_chooses(load_analysis(path))


def parse_propagation(text: str, file: str = "<propagation>") -> Propagation:
    """Read an analysis that chooses values from text; what is wrong beyond its form is in `found`.

    Raises:
        ModelError: EK290, it is not the YAML of a propagation; EK249, it infers what is known, and chooses nothing.
    """
    return _that_chooses(parse_analysis(text, file))


def load_inference(path: str | Path) -> Inference:
    """Read an analysis that infers.

    Args:
        path: YAML file, or a name as in `shipped_propagations()`.

    Raises:
        ModelError: EK290, it is not the YAML of a propagation; EK249, it chooses values.
        OSError: It cannot be read.
    """
    made = load_analysis(path)
    if not isinstance(made, Inference):
        does = {Propagation: "chooses values", Demands: "says what is needed", Notes: "notes what is known"}[type(made)]
        raise ModelError([made.source.key(("id",)).diagnostic("EK249", f"{made.model.id} {does}, and infers nothing")])
    return made


def _used(made: Propagation | Notes, name: str) -> Inference | None:
    """Return the analysis that a propagation asks; None, and a note of what is wrong, if there is none."""
    text = made.source.text(("uses",))
    try:
        inference = load_inference(name)
    except (ModelError, OSError):
        hint = did_you_mean(name, shipped_propagations())
        made.found.append(text.diagnostic("EK291", f"{name!r} is not an analysis that infers", hint=hint))
        return None
    if inference.found:
        made.found.append(text.diagnostic("EK291", f"{name}: {inference.found[0].message}"))
    return inference


def _that_chooses(made: Analysis) -> Propagation:
    if isinstance(made, Propagation):
        return made
    hint = "rules ask for it; `exirkit propagation explain` shows it" if isinstance(made, Inference) else None
    does = "infers what is known of tensors" if isinstance(made, Inference) else "says something else of tensors"
    text = made.source.text(("values",)) if isinstance(made, Inference) else made.source.key(("id",))
    raise ModelError([text.diagnostic("EK249", f"{made.model.id} {does}, and chooses nothing", hint=hint)])
