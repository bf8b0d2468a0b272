"""Scripts that show a difference in a fresh process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from exirkit.fuzz import (
    CampaignConfig,
    Found,
    Program,
    attached_path,
    inputs_of,
    module_source,
    plain_line,
    program_text,
    tensor_source,
)

if TYPE_CHECKING:
    from .comparisons import Comparison

_WITH_PROGRAM = '''"""{title}

{summary}
Run it: it ends with an AssertionError as long as the difference is there.
"""

import torch

from exirkit.bridge import compared_with_original
from exirkit.fuzz import parse_program

PROGRAM = """\\
{program}"""

torch.set_num_threads(1)
found = compared_with_original(parse_program(PROGRAM), {against!r}, rules={rules!r}, pipelines={pipelines!r})
assert not found, "\\n".join(f"{{one.bucket}}: {{one.message}}" for one in found)
print("no difference any more")
'''

_ALONE = '''"""{title}

{summary}
Run it: it ends with an AssertionError, or what the pass raises, as long as the defect is there.
"""

import torch
from executorch.exir import to_edge

from exirkit.bridge import install_absent_tools

install_absent_tools()  # stand-ins for what modules of backends import and do not need here

{imports}


{source}

model = {model}({{}})
inputs = ({inputs},)
program = to_edge(torch.export.export(model, inputs, strict=False)).exported_program()
module = program.graph_module
{passes}
for seen, expected in zip(module(*inputs), model(*inputs), strict=True):
    text = f"seen {{seen}}, {{seen.dtype}}; expected {{expected}}, {{expected.dtype}}"
    assert seen.shape == expected.shape and seen.dtype == expected.dtype, text
    assert torch.allclose(seen.double(), expected.double(), equal_nan=True), text
print("the defect is not there any more")
'''


def script_of(program: Program, found: Found, comparison: Comparison, config: CampaignConfig) -> str:
    """Return a script that shows a difference.

    What a pass gets wrong is shown by the official package alone where the program has neither stored tensors nor
    symbols; everything else by the program as text.

    Args:
        program: A small program.
        found: The difference.
        comparison: What was compared.
        config: The campaign.
    """
    lines = [plain_line(f"{found.bucket}"), *(plain_line(line) for line in found.message.splitlines()[:4])]
    title, summary = plain_line(f"{comparison.name}: {found.bucket.partition(' | ')[0]}."), "\n".join(lines)
    is_theirs = found.oracle == "their-results"
    if is_theirs and _is_plain(program, comparison):
        return _alone(program, comparison, title, summary)
    return _WITH_PROGRAM.format(
        title=title,
        summary=summary,
        program=program_text(program).replace("\\", "\\\\").replace('"""', '\\"""'),
        against=[_written(one.target, one.dialect) for one in comparison.originals],
        # What a pass gets wrong, it does without rules.
        rules=[] if is_theirs else [attached_path(one) for one in config.rules],
        pipelines=[] if is_theirs else [attached_path(one) for one in config.pipelines],
    )


def _written(target: str, dialect: str) -> str:
    return target if dialect == "edge" else f"{target}@{dialect}"


def _is_plain(program: Program, comparison: Comparison) -> bool:
    """Whether a program is a module without stored tensors, sizes and state, and the passes are classes."""
    methods = program.methods
    is_simple = len(methods) == 1 and not (program.stored or program.symbols or methods[0].updates)
    is_python = all(".py:" not in one.target and "/" not in one.target for one in comparison.originals)
    is_on_edge = is_python and comparison.is_on_edge
    return is_simple and is_on_edge and all(hasattr(one, "name") for one in methods[0].outputs)


def _alone(program: Program, comparison: Comparison, title: str, summary: str) -> str:
    imports, passes = [], []
    for one in comparison.originals:
        module, _, name = one.target.rpartition(":")
        imports.append(f"from {module} import {name}")
        made = f"{name}({'program' if one.takes_program else ''})"
        passes.append(f"module = {made}(module).graph_module")
    return _ALONE.format(
        title=title,
        summary=summary,
        imports="\n".join(imports),
        source=module_source(program),
        model=f"Method_{program.methods[0].name}",
        inputs=", ".join(tensor_source(one) for one in inputs_of(program, program.runs[0])),
        passes="\n".join(passes),
    )
