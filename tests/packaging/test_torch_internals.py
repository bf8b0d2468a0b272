"""What torch does not promise to keep is used through one module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import exirkit
from exirkit.ir import torch_internals
from exirkit.ir.torch_internals import PRIVATE_ATTRIBUTES

_PACKAGE = Path(exirkit.__file__).parent
_HOME = Path(torch_internals.__file__).resolve()
_ROOMS = [one for one in sorted(_PACKAGE.iterdir()) if one.is_dir() and one.name != "__pycache__"]
_FILES = [*_PACKAGE.glob("*.py"), *(file for room in _ROOMS for file in sorted(room.resolve().rglob("*.py")))]
# Modules that are experimental or private by their names.
_PRIVATE = re.compile(r"torch\.(.*\.)?(_(?!_)\w+|experimental)(\.|$)")
# Names with an underscore that are not private: documented functions, and operators of these libraries.
_DOCUMENTED = frozenset({"torch._check", "os._exit"})
_LIBRARIES = ("aten", "_ATEN", "dim_order_ops")
_OTHERS = ("atheris", "_atheris")


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _private_imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{one.name}" for one in node.names]
        elif isinstance(node, ast.Attribute):
            names = [_dotted(node)]
        else:
            continue
        yield from (
            one for one in names if _PRIVATE.match(one) and one not in _DOCUMENTED and not one.startswith("torch.ops.")
        )


def _own_private_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _dotted(node.value) == "self":
            yield node.attr
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (one.id for one in node.targets if isinstance(one, ast.Name))


def _private_attributes(tree: ast.AST) -> Iterator[ast.Attribute]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
            owner = _dotted(node.value).rpartition(".")[2]
            if owner not in (*_LIBRARIES, *_OTHERS, "self", "cls") and _dotted(node) not in _DOCUMENTED:
                yield node


def test_only_one_module_imports_private_names_of_torch() -> None:
    found = {str(file): names for file in _FILES if file != _HOME and (names := [*_private_imports(file.read_text())])}
    assert not found, "get these from exirkit.ir.torch_internals"


@pytest.mark.parametrize(
    "line",
    [
        "from torch._ops import OpOverload",
        "import torch._dynamo.source",
        "from torch.utils import _pytree as pytree",
        "from torch.fx.experimental.symbolic_shapes import ShapeEnv",
        "from torch.fx.node import _get_qualified_name",
        "names = torch._C._dispatch_get_all_op_names()",
    ],
)
def test_private_imports_are_found(line: str) -> None:
    assert [*_private_imports(line)]


@pytest.mark.parametrize(
    "line", ["torch._check(x > 0)", "torch.ops.aten._softmax.default", "from torch.fx import Node"]
)
def test_public_names_are_not_taken_for_private_ones(line: str) -> None:
    assert not [*_private_imports(line)]


def test_private_attributes_of_torch_are_listed() -> None:
    trees = {file: ast.parse(file.read_text()) for file in _FILES}
    ours = {name for tree in trees.values() for name in _own_private_names(tree)}
    listed = {name for names in PRIVATE_ATTRIBUTES.values() for name in names}
    used = {
        f"{file.name}:{node.lineno}: {ast.unparse(node)}": node.attr
        for file, tree in trees.items()
        # The bridge and the oracle know what the official package does not promise, either.
        if file != _HOME and not {"bridge", "official"} & set(file.parts)
        for node in _private_attributes(tree)
    }
    missing = {place: name for place, name in used.items() if name not in {*ours, *listed, "_replace"}}
    assert not missing, "list them in PRIVATE_ATTRIBUTES of exirkit.ir.torch_internals"
    assert listed <= set(used.values()), "listed and not used"


def test_private_attributes_are_there() -> None:
    free = torch.export.Dim.DYNAMIC
    exported = torch.export.export(torch.nn.ReLU(), (torch.ones(3, 2),), dynamic_shapes=({0: free},))
    node = exported.graph.find_nodes(op="placeholder")[0]
    samples = [
        exported,
        exported.graph,
        exported.graph._graph_namespace,
        node,
        torch.ops.aten.relu.default,
        torch.ones(1),
        node.meta["val"].shape[0].node,
        node.meta["val"].shape[0].node.shape_env,
        exported.verifier,
    ]
    for sample, (kind, names) in zip(samples, PRIVATE_ATTRIBUTES.items(), strict=True):
        assert isinstance(sample, kind)
        assert not [name for name in names if not hasattr(sample, name)]
