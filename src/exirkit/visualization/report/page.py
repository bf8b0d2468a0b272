"""A report as one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
import json
import re
import zlib
from html import escape
from importlib.resources import files
from typing import Any

_SCRIPTS = (
    "text.js", "document.js", "differences.js", "selection.js", "program_view.js", "beside_view.js", "node_panel.js",
    "stage_list.js", "rules_tab.js", "memory_tab.js", "tables_tab.js", "search.js", "main.js",
)  # fmt: skip


def report_page(document: dict[str, Any]) -> str:
    """Return the page of a document that `report_document` made; equal documents give equal pages."""
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # Surrogates without their other half cannot be encoded; names in files may have them.
    packed = zlib.compress(text.encode("utf-8", "replace"), 6)
    parts = {
        "TITLE": escape(str(document["title"])),
        "STYLE": _read("report.css"),
        "SCRIPT": "".join(_read(name) for name in _SCRIPTS),
        # Nothing in base64 can end the element that it stands in.
        "DATA": base64.b64encode(packed).decode("ascii"),
    }
    return re.sub("@([A-Z]+)@", lambda mark: parts[mark[1]], _read("report.html"))


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
