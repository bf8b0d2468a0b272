"""Rules in `exirkit lower`: which books, how far, and the journal of what they did."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from exirkit.passes import ApplyRules
from exirkit.patterns import RewriteOptions, load_book
from exirkit.program import EdgeProgramManager

from .output_files import write_whole

if TYPE_CHECKING:
    from .lowering import LowerOptions


def rewritten(edge: EdgeProgramManager, options: LowerOptions) -> EdgeProgramManager:
    """Apply the books that were named, all rules at once, and write the journal if one was asked for.

    Raises:
        ModelError: A book has errors.
        ContractError: EK250, the rules rewrite in a circle.
        OSError: A book cannot be read, or the journal not be written.
    """
    rules = [rule for name in options.rules for rule in load_book(name).require_valid().rules]
    if options.rewrite_limit == 0:
        return edge
    passes = {name: ApplyRules(rules, RewriteOptions(limit=options.rewrite_limit)) for name in sorted(edge.methods)}
    result = edge.transform({name: [one] for name, one in passes.items()})
    if options.journal is not None:
        text = json.dumps({name: _journal(one) for name, one in passes.items()}, indent=1) + "\n"
        write_whole(options.journal, lambda file: file.write(text.encode()))
    return result


def _journal(apply: ApplyRules) -> dict[str, Any]:
    report = apply.report
    assert report is not None, "the pass has run"
    return report.document()
