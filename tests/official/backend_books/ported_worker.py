"""A process that makes books from official passes, and checks them; prints one JSON document.

Usage: python -m tests.official.backend_books.ported_worker [CLASS ...]
"""

from __future__ import annotations

import json
import logging
import sys
import warnings

import torch

from exirkit.bridge import port_pass
from exirkit.patterns import check_book, parse_book

CADENCE, TRANSFORMS = "executorch.backends.cadence.aot", "executorch.backends.transforms"
TARGETS = (
    f"{CADENCE}.replace_ops:ReplaceMMWithAddMMPass",
    f"{CADENCE}.replace_ops:ReplaceLogicalNotBooleanWhereWithWherePass",
    f"{TRANSFORMS}.addmm_mm_to_linear:AddmmToLinearTransform",
    f"{CADENCE}.replace_ops:ReplaceRepeatWithCatPass",
    f"{TRANSFORMS}.mean_to_sum_div:MeanToSumDiv",
    f"{CADENCE}.replace_ops:ReplaceSelectWithViewOpPass",
    f"{CADENCE}.replace_ops:ReplacePermuteWithTransposePass",
    f"{CADENCE}.remove_ops:RemoveNopExpandOpPass",
    f"{TRANSFORMS}.view_copy_to_squeeze_unsqueeze:ViewCopyToSqueezeUnsqueezePass",
    f"{CADENCE}.fuse_ops:FuseMMWithAdd",
)


def main() -> None:
    """Make and check all books."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    verdicts: dict[str, list[bool]] = {}
    chosen = [one for one in TARGETS if not sys.argv[1:] or one.rpartition(":")[2] in sys.argv[1:]]
    for target in chosen:
        book = parse_book(port_pass(target, seeds=12, exact=True).text, "ported.yaml")
        verdicts[target.rpartition(":")[2]] = [one.is_accepted for one in check_book(book).rules]
    json.dump(verdicts, sys.stdout)


if __name__ == "__main__":
    main()
