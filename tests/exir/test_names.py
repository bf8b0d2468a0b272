"""The tree of modules: every name of the table is there, in every form of import, and is the same object as at home."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from tools import official_names

import exirkit
from exirkit.exir import Absence, Home, name_table

HOMES = [(module, name, home) for module, names in name_table().homes.items() for name, home in names.items()]


@pytest.mark.parametrize("module", sorted(name_table().homes))
def test_names_are_what_the_table_says(module: str) -> None:
    tree = importlib.import_module(f"exirkit.exir.{module}".rstrip("."))
    for name, home in name_table().homes[module].items():
        assert getattr(tree, name) is getattr(importlib.import_module(home.module), home.name)


def test_public_names_are_those_of_the_front_door() -> None:
    shared = [(module, name, home) for module, name, home in HOMES if home.name in exirkit.__all__]
    assert len(shared) > 50
    for module, name, _ in shared:
        tree = importlib.import_module(f"exirkit.exir.{module}".rstrip("."))
        if name not in ("CompileSpec", "print_program"):
            assert getattr(tree, name) is getattr(exirkit, name_table().homes[module][name].name), (module, name)


@pytest.mark.parametrize(
    "statement",
    [
        "import exirkit.exir.passes.cse_pass as found; found.CSEPass",
        "import exirkit.exir.dialects._ops; exirkit.exir.dialects._ops.ops.edge.aten.add.Tensor",
        "from exirkit.exir.backend.canonical_partitioners.config_partitioner import format_target_name",
        "from exirkit.exir import memory, schema; memory.alloc, schema.Program",
        "from exirkit import exir; exir.EdgeCompileConfig, exir.passes.MemoryPlanningPass",
        "from exirkit.exir.passes import *; SpecPropPass, MemoryPlanningPass",
        "from exirkit.exir import *; to_edge, EdgeProgramManager",
        "import importlib; importlib.import_module('exirkit.exir.pass_base').ExportPass",
    ],
)
def test_forms_of_import(statement: str) -> None:
    # In a process of its own, where nothing has been imported yet.
    subprocess.run([sys.executable, "-c", statement], check=True)


def test_importing_the_tree_loads_no_torch() -> None:
    code = "import sys, exirkit.exir.passes.cse_pass; assert not {'torch', 'executorch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_absent_names_say_what_to_use_instead() -> None:
    with pytest.raises(ImportError, match=r"EK757.*ToDevicePass has no counterpart") as raised:
        importlib.import_module("exirkit.exir.passes").ToDevicePass  # noqa: B018
    assert "torch.export.export" in str(raised.value)


def test_unknown_names_are_not_attributes() -> None:
    tree = importlib.import_module("exirkit.exir.pass_base")
    assert not hasattr(tree, "ExportPasses")
    with pytest.raises(AttributeError, match="did you mean ExportPass"):
        tree.ExportPasses  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("exirkit.exir.no_such_module")


def test_no_name_is_both_there_and_absent() -> None:
    table = name_table()
    for module, names in table.absent.items():
        assert not set(names) & set(table.homes.get(module, ()))
        for absence in names.values():
            assert not absence.reason.endswith(".")
            assert absence.instead


@pytest.mark.executorch
def test_names_that_backends_import_have_counterparts() -> None:
    root = official_names.wheel()
    assert root is not None
    found = official_names.uses(root)
    assert len(found) > 150
    assert official_names.share(found) >= 0.98
    undecided = [one.mention.qualified for one in found if not isinstance(one.place, Home | Absence)]
    assert undecided == []
    # Names that at least two files import, apart from one that is gone from the official chain as well.
    missing = {one.mention.name for one in found if one.files > 1 and not isinstance(one.place, Home)}
    assert missing <= {"ExirExportedProgram"}
    assert official_names.page(found) == official_names.PAGE.read_text(encoding="utf-8")
