"""The picture as one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

import re
from html import escape
from importlib.resources import files

from .picture import MemoryPicture

_SCRIPTS = ("page_view.js", "page_controls.js")


def picture_page(picture: MemoryPicture) -> str:
    """Return an interactive page: hover, zoom, filter, walk through the values by keyboard."""
    # Whatever is in the names: nothing in JSON can end the element that it stands in.
    data = picture.model_dump_json().replace("<", "\\u003c")
    parts = {
        "TITLE": escape(picture.title),
        "STYLE": _read("page.css"),
        "SCRIPT": "".join(_read(name) for name in _SCRIPTS),
        "PICTURE": data,
    }
    return re.sub("@([A-Z]+)@", lambda mark: parts[mark[1]], _read("page.html"))


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")
