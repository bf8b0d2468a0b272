"""The memory map as one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

import re
from html import escape
from importlib.resources import files

from .memory_map import MemoryMap

_SCRIPTS = ("page_view.js", "page_controls.js")


def memory_map_page(memory_map: MemoryMap) -> str:
    """Return an interactive page: hover, zoom, filter, walk through the values by keyboard."""
    # Whatever is in the names: nothing in JSON can end the element that it stands in.
    data = memory_map.model_dump_json().replace("<", "\\u003c")
    parts = {
        "TITLE": escape(memory_map.title),
        "STYLE": _read("page.css"),
        "SCRIPT": "".join(_read(name) for name in _SCRIPTS),
        "MAP": data,
    }
    return re.sub("@([A-Z]+)@", lambda mark: parts[mark[1]], _read("page.html"))


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
