"""Imports are rewritten in every form that Python has, and no other byte changes."""

from __future__ import annotations

import ast
import random

import pytest

from exirkit.exir import TO_EXIRKIT, migrate_source

CASES = {
    "from": ("from executorch.exir.pass_base import ExportPass", "from exirkit.exir.pass_base import ExportPass"),
    "from the package": ("from executorch.exir import to_edge as lower", "from exirkit.exir import to_edge as lower"),
    "several lines": (
        "from executorch.exir.pass_base import (  # passes\n    ExportPass,  # one\n    PassResult,\n)",
        "from exirkit.exir.pass_base import (  # passes\n    ExportPass,  # one\n    PassResult,\n)",
    ),
    "continued": (
        "from executorch.exir.pass_base \\\n    import ExportPass",
        "from exirkit.exir.pass_base \\\n    import ExportPass",
    ),
    "blanks": ("from  executorch . exir . tensor import TensorSpec", "from  exirkit.exir . tensor import TensorSpec"),
    "star": ("from executorch.exir.passes import *", "from exirkit.exir.passes import *"),
    "alias": ("import executorch.exir as exir\nexir.to_edge()", "import exirkit.exir as exir\nexir.to_edge()"),
    "several": ("import os, executorch.exir.memory as m, sys", "import os, exirkit.exir.memory as m, sys"),
    "dotted": (
        "import executorch.exir.passes\nx = executorch.exir.passes.SpecPropPass()",
        "import exirkit.exir.passes\nx = exirkit.exir.passes.SpecPropPass()",
    ),
    "dotted, over lines": (
        "import executorch.exir\nx = (executorch\n     .exir.to_edge)",
        "import exirkit.exir\nx = (exirkit.exir.to_edge)",
    ),
    "of the whole package": (
        "def f():\n    import executorch\n    return executorch.exir.to_edge, executorch.exir, executorch.runtime",
        "def f():\n    import exirkit.exir\n    import executorch\n    return exirkit.exir.to_edge, exirkit.exir, "
        "executorch.runtime",
    ),
    "member": ("from executorch import exir", "from exirkit import exir"),
    "renamed member": ("from executorch import exir as e", "from exirkit import exir as e"),
    "member among others": (
        "if True:\n    from executorch import exir, runtime",
        "if True:\n    from exirkit import exir\n    from executorch import runtime",
    ),
    "last member": (
        "from executorch import (\n    runtime,  # theirs\n    exir,\n)",
        "from exirkit import exir\nfrom executorch import (\n    runtime,\n)",
    ),
    "member behind a semicolon": (
        "import os; from executorch import exir, runtime; x = 1",
        "import os; from exirkit import exir; from executorch import runtime; x = 1",
    ),
    "within a function": (
        "def f():\n\tfrom executorch.exir import to_edge\n\treturn to_edge",
        "def f():\n\tfrom exirkit.exir import to_edge\n\treturn to_edge",
    ),
    "other encoding": (
        "# -*- coding: latin-1 -*-\nx = 'ä'; from executorch.exir import to_edge",
        "# -*- coding: latin-1 -*-\nx = 'ä'; from exirkit.exir import to_edge",
    ),
    "wide letters before": ("'日本'; import executorch.exir as e", "'日本'; import exirkit.exir as e"),
    "form feed and CRLF": (
        "x = 1\x0c\r\nfrom executorch.exir import to_edge\r\n",
        "x = 1\x0c\r\nfrom exirkit.exir import to_edge\r\n",
    ),
    "similar names": (
        "import executorch.exirs\nfrom executorch.exir_x import a\nfrom .executorch.exir import b",
        "import executorch.exirs\nfrom executorch.exir_x import a\nfrom .executorch.exir import b",
    ),
    "comments and strings": (
        '"""executorch.exir.passes is theirs."""\n# import executorch.exir\nx = "import executorch.exir"',
        '"""executorch.exir.passes is theirs."""\n# import executorch.exir\nx = "import executorch.exir"',
    ),
    "type checking": (
        "if TYPE_CHECKING:\n    from executorch.exir import EdgeProgramManager",
        "if TYPE_CHECKING:\n    from exirkit.exir import EdgeProgramManager",
    ),
    "of another name": (
        "executorch = 1\nprint(executorch.exir)",
        "executorch = 1\nprint(executorch.exir)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_forms(name: str) -> None:
    before, after = CASES[name]
    encoding = "latin-1" if "latin-1" in before else "utf-8"
    made = migrate_source(before.encode(encoding))
    assert made.after.decode(encoding) == after
    assert migrate_source(made.after).after == made.after


def test_a_byte_order_mark_stays() -> None:
    made = migrate_source(b"\xef\xbb\xbffrom executorch.exir import to_edge")
    assert made.after == b"\xef\xbb\xbffrom exirkit.exir import to_edge"


def test_any_mixture_of_forms() -> None:
    seed = 20
    chosen = random.Random(seed)
    names = [
        name
        for name in CASES
        if name not in ("other encoding", "form feed and CRLF", "of another name", "of the whole package")
    ]
    for _ in range(60):
        parts = chosen.choices(names, k=4)
        before = "\n\n".join(CASES[name][0] for name in parts)
        after = "\n\n".join(CASES[name][1] for name in parts)
        assert migrate_source(before.encode()).after.decode() == after, (seed, parts)


def test_only_names_of_modules_change() -> None:
    before = "import executorch.exir.passes\n" + "\n".join(f"x{one} = [ {one},{one} ] # note" for one in range(50))
    made = migrate_source(before.encode()).after.decode()
    assert made.splitlines()[1:] == before.splitlines()[1:]


def test_other_prefixes_and_the_longest_of_them() -> None:
    prefixes = {**TO_EXIRKIT, "executorch.backends": "mine", "executorch.backends.xnnpack": "xnn.pack"}
    before = "from executorch.backends.a import c\nimport executorch.backends.xnnpack.b as b\n"
    before += "from executorch import backends"
    after = "from mine.a import c\nimport xnn.pack.b as b\nimport mine as backends"
    assert migrate_source(before.encode(), prefixes).after.decode() == after


def test_what_has_no_counterpart_is_listed_with_its_line() -> None:
    before = """from executorch.exir.passes import (
    SpecPropPass,
    ToDevicePass,
)
import executorch.exir.no_such_module
from executorch import exir
exir.capture
exir.to_edge
exir.passes.NoSuchPass()
exir.ExirExportedProgram
"""
    made = migrate_source(before.encode())
    found = [(one.line, one.qualified.removeprefix("executorch.exir.")) for one in made.missing]
    assert found == [
        (1, "passes.ToDevicePass"),
        (5, "no_such_module"),
        (9, "passes.NoSuchPass"),
        (10, "ExirExportedProgram"),
    ]


def test_what_is_left_is_noted() -> None:
    before = """import executorch.exir
print(executorch.__version__)
patch("executorch.exir.passes.SpecPropPass")
import executorch.runtime
from executorch.devtools.etrecord import ETRecord
from executorch import exir, devtools
"""
    notes = migrate_source(before.encode()).notes
    assert notes == (
        (3, "a string names executorch.exir.passes.SpecPropPass"),
        (4, "executorch.runtime stays, which needs the official package"),
        (5, "executorch.devtools.etrecord stays, which needs the official package"),
        (6, "executorch.devtools stays, which needs the official package"),
    )


def test_names_of_packages_that_no_import_makes_are_noted() -> None:
    before = "import executorch.exir\nprint(executorch.__version__)\n"
    notes = migrate_source(before.encode()).notes
    assert notes == ((2, "executorch is used, and no import makes that name any more"),)


def test_what_is_made_is_python() -> None:
    for before, after in CASES.values():
        ast.parse(before)
        ast.parse(after)


@pytest.mark.parametrize("source", [b"def f(:", b"# coding: utf-8\n\xff", b"print 'old'"])
def test_what_is_not_python_is_rejected(source: bytes) -> None:
    with pytest.raises((SyntaxError, UnicodeDecodeError)):
        migrate_source(source)
