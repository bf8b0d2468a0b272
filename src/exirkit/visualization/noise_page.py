"""The noise of quantization as one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

import json
import re
from html import escape
from importlib.resources import files

from exirkit.passes import Grouping, QuantizationReport

_GROUPINGS: tuple[Grouping, ...] = ("call", "module", "line")


def quantization_page(report: QuantizationReport, title: str) -> str:
    """Return a page: a chart in the order of the program, and tables by call, module and line to sort and filter.

    Args:
        report: What was measured.
        title: What it was measured of.
    """
    groups = {name: [one.model_dump(mode="json") for one in report.grouped(name)] for name in _GROUPINGS}
    data = json.dumps({"report": report.model_dump(mode="json"), "groups": groups}, allow_nan=False)
    # Whatever is in the names: nothing in JSON can end the element that it stands in.
    parts = {"TITLE": escape(title), "NOISE": data.replace("<", "\\u003c")}
    template = (files(__package__) / "noise.html").read_text(encoding="utf-8")
    return re.sub("@([A-Z]+)@", lambda mark: parts[mark[1]], template)
