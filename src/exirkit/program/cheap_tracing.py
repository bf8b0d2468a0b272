"""What passes that re-trace programs spend in torch, spent once.

From pass to pass torch writes Python code for graphs that are never called, infers for every call again which sizes its
results have, and notes from which node each node comes, with all notes of that one. While `cheap_tracing` is active,
code is written when it is wanted, answers to equal questions are remembered, the notes stay what they were in the
program that came in, plain arguments are looked through without describing their structure first, and the garbage
collector comes seldom and leaves alone what is older than the work. Results are the same, and afterwards torch is what
it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node, traceback
from torch.fx.immutable_collections import immutable_list

from exirkit.ir import FakeTensor, FakeTensorMode, OpOverload, PyTreeCodeGen, pytree, seldom_collected

_write_code = GraphModule.recompile
_call = Interpreter.call_function
_map_only = pytree.tree_map_only

_WRITTEN = ("_code", "_lineno_map", "_prologue_start")
_PLAIN = (torch.dtype, torch.device, torch.memory_format, torch.layout)
_LEAVES = frozenset({int, float, bool, str, type(None), torch.dtype, torch.device, torch.memory_format, torch.layout})
_UNCERTAIN = frozenset(
    {torch.Tag.nondeterministic_seeded, torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
)


@contextmanager
def cheap_tracing() -> Iterator[None]:
    """Let torch do less while passes re-trace programs."""
    places: list[tuple[Any, str, Any]] = [
        (GraphModule, "recompile", _recompile_when_wanted),
        (Interpreter, "call_function", _remembering_calls()),
        (traceback, "set_current_meta", _set_current_meta),
        (pytree, "tree_map_only", _tree_map_only),
    ]
    before = [getattr(owner, name) for owner, name, _ in places]
    for owner, name, cheap in places:
        setattr(owner, name, cheap)
    try:
        with seldom_collected():
            yield
    finally:
        for (owner, name, _), old in zip(places, before, strict=True):
            setattr(owner, name, old)


class _WrittenWhenWanted:
    """An attribute of a module that is there when its code has been written; an attribute of the instance hides it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, module: GraphModule | None, owner: type) -> Any:
        if module is None:
            return self
        _write_code(module)
        return module.__dict__[self._name]


class _CodeWhenWanted:
    """What `recompile` returns: the code of a module, written when it is read."""

    def __init__(self, module: GraphModule) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(_write_code(self._module), name)


def _recompile_when_wanted(self: GraphModule) -> Any:
    """Forget the code of a module; it is written when the module is called or shown."""
    # Every graph module has a class of its own.
    owner: Any = type(self)
    codegen = self._graph._codegen
    if isinstance(codegen, PyTreeCodeGen):
        self._in_spec = codegen.pytree_info.in_spec
        self._out_spec = codegen.pytree_info.out_spec
    for name in _WRITTEN:
        self.__dict__.pop(name, None)
        setattr(owner, name, _WrittenWhenWanted(name))
    owner.forward = _forward_when_wanted
    owner.__reduce__ = _reduce_when_wanted
    return _CodeWhenWanted(self)


def _forward_when_wanted(self: GraphModule, *args: Any, **kwargs: Any) -> Any:
    _write_code(self)
    return self.forward(*args, **kwargs)


def _reduce_when_wanted(self: GraphModule) -> Any:
    # Attributes are pickled as they are, so the code has to be one of them.
    _write_code(self)
    return GraphModule.__reduce__(self)


@contextmanager
def _set_current_meta(node: Node, pass_name: str = "") -> Iterator[None]:
    """Do what torch does, without a note for each pass that a node has come through."""
    del pass_name
    if not (traceback.should_preserve_node_meta and node.meta):
        yield
        return
    saved = traceback.current_meta
    traceback.current_meta = node.meta.copy()
    try:
        yield
    finally:
        traceback.current_meta = saved


def _tree_map_only(kinds: Any, function: Any, tree: Any, is_leaf: Any = None) -> Any:
    """Do what `tree_map_only` does; the structure of tuples, lists and dicts need not be described first."""
    if is_leaf is not None or not isinstance(kinds, type):
        return _map_only(kinds, function, tree, is_leaf=is_leaf)
    return _mapped(kinds, function, tree)


def _mapped(kind: type, function: Any, tree: Any) -> Any:
    of = type(tree)
    if of is tuple:
        return tuple([_mapped(kind, function, one) for one in tree])
    if of is list or of is immutable_list:
        return of([_mapped(kind, function, one) for one in tree])
    if of is dict:
        return {key: _mapped(kind, function, one) for key, one in tree.items()}
    if of is kind and of not in pytree.SUPPORTED_NODES:
        return function(tree)
    if of in _LEAVES and not issubclass(of, kind):
        return tree
    return _map_only(kind, function, tree)


def _remembering_calls() -> Callable[..., Any]:
    """Return what calls functions as `Interpreter.call_function` does, and computes fake results once."""
    known: dict[Any, Any] = {}
    pure: dict[Any, bool] = {}

    def call_function(self: Interpreter, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if target not in pure:
            pure[target] = _is_pure(target)
        question = _question(target, args, kwargs) if pure[target] else None
        if question is None:
            return _call(self, target, args, kwargs)
        if question in known:
            return known[question]
        answer = _call(self, target, args, kwargs)
        if _is_answer(answer, args, kwargs):
            known[question] = answer
        return answer

    return call_function


def _is_pure(target: Any) -> bool:
    """Return whether results depend on arguments alone and share nothing with them."""
    op = target if isinstance(target, OpOverload) else getattr(target, "_op", None)
    if not isinstance(op, OpOverload) or op.is_view or op._schema.is_mutable:
        return False
    return not any(one.alias_info for one in op._schema.arguments) and not _UNCERTAIN.intersection(op.tags)


def _question(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return what decides a result, or None if more may."""
    described: list[Any] = [
        target,
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
    ]
    modes: list[FakeTensorMode] = []
    if not all(_describe(one, described, modes) for one in args):
        return None
    for key, one in kwargs.items():
        described.append(key)
        if not _describe(one, described, modes):
            return None
    # What is called without a tensor says nothing about the mode in which its result is made.
    if not modes or any(mode is not modes[0] for mode in modes):
        return None
    return (modes[0], *described)


def _describe(value: Any, described: list[Any], modes: list[FakeTensorMode]) -> bool:
    """Append what of an argument decides results; return whether that is all."""
    kind = type(value)
    if kind is FakeTensor:
        if not _is_plain(value):
            return False
        modes.append(value.fake_mode)
        described += (value.shape, value.stride(), value.storage_offset(), value.dtype, value.device)
    elif isinstance(value, list | tuple):
        # Lists of graphs are of a class of their own, and mean the same.
        described += (list, len(value))
        return all(_describe(one, described, modes) for one in value)
    elif kind is float:
        # Zeros of both signs are equal, and differ.
        described.append(value.hex())
    elif value is None or kind in (int, bool, str) or isinstance(value, _PLAIN):
        described += (kind, value)
    else:
        return False
    return True


def _is_plain(value: Any) -> bool:
    """Return whether a value is a fake tensor of known sizes of which there is nothing more to know."""
    return (
        type(value) is FakeTensor
        and not value._has_symbolic_sizes_strides
        and value.constant is None
        and value.layout is torch.strided
        and not value.requires_grad
        and not value.is_inference()
        and not value.is_conj()
        and not value.is_neg()
    )


def _is_answer(answer: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    results = answer if isinstance(answer, list | tuple) else (answer,)
    given = {id(one) for one in (*args, *kwargs.values())}
    return all(_is_plain(one) and id(one) not in given for one in results)
