"""A hook of mkdocs: pages of the reference that are made from the code itself.

mkdocs calls it as `mkdocs.yml` says. The pages list what the installed package has: commands, passes, builtins of the
rule language, diagnostics, schemas of files, public names.
"""

from __future__ import annotations

import contextlib
import html
import inspect
import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import exirkit
from exirkit.cli.app import app
from exirkit.cli.commands.explain import read_code_texts
from exirkit.passes.contract import described, shipped_passes
from exirkit.patterns import language_words

_LOG = get_plugin_logger("exirkit")
_RELATIVE_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>(?![a-z]+:|#)[^)#\s]+)(#[^)]*)?\)")
_SECTION = re.compile(r"(Args|Returns|Yields|Raises|Attributes|Requires|Ensures|Preserves|Example|Examples|Source):")

SCHEMAS = {
    "Rule books": "patterns/rulebook.schema.json",
    "Partitionings": "passes/delegate/partitioning/partitioning.schema.json",
    "Memory policies": "passes/memory/policy/policy.schema.json",
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for name, page in PAGES.items():
        files.append(File.generated(config, f"reference/{name}.md", content=page()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Unlink what links to files of the repository that the site does not have; a warning if there is no such file."""
    docs = Path(config.docs_dir)

    def unlinked(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(docs / page.file.src_uri / ".." / link["target"]))
        if target.suffix in (".md", ".svg") and target.is_relative_to(docs):
            return link[0]
        if not target.exists():
            _LOG.warning("%s links to %s, which does not exist", page.file.src_uri, link["target"])
        return link["text"]

    return _RELATIVE_LINK.sub(unlinked, markdown)


def commands() -> str:
    """Return the page of all commands and their options."""
    group: Any = typer.main.get_command(app)
    return "\n".join(["# Commands", "", *_commands(group, typer.Context(group, info_name="exirkit"))])


def _commands(command: Any, context: typer.Context) -> Iterator[str]:
    if hasattr(command, "list_commands"):
        if command.invoke_without_command:
            yield from _command(command, context)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            yield from _commands(inner, typer.Context(inner, info_name=name, parent=context))
    else:
        yield from _command(command, context)


def _command(command: Any, context: typer.Context) -> Iterator[str]:
    yield from (f"## {context.command_path}", "", inspect.cleandoc(command.help or ""), "")
    yield from (f"```\n{' '.join(command.get_usage(context).split())}\n```", "")
    rows = [record for one in command.get_params(context) if (record := one.get_help_record(context)) is not None]
    if rows:
        yield from _table(("option", "meaning"), [(_literal(option), text) for option, text in rows])


def passes() -> str:
    """Return the page of all passes that pipelines may name."""
    rows = []
    for name, offered in sorted(shipped_passes().items()):
        one = described(name, offered)
        options = ", ".join(f"`{key}`" for key in one.options.model_fields)
        facts = [(title, getattr(one, title)) for title in ("requires", "ensures", "invalidates", "after", "before")]
        contract = "; ".join(f"{title}: {', '.join(sorted(names))}" for title, names in facts if names)
        text = (inspect.getdoc(offered) or "").partition("\n\n")[0] if isinstance(offered, type) else ""
        rows.append((f"`{name}`", text, options, contract))
    return "\n".join(["# Passes", "", *_table(("pass", "what it does", "options", "contract"), rows)])


def builtins() -> str:
    """Return the page of the functions that rules may call."""
    rows = [(f"`{name}`", text) for name, text in sorted(language_words().items())]
    return "\n".join(["# Builtins of the rule language", "", *_table(("builtin", "meaning"), rows)])


def diagnostics() -> str:
    """Return the page of all diagnostics; each has an anchor of its own."""
    lines = ["# Diagnostics", "", "`exirkit explain CODE` prints the same.", ""]
    for code, one in read_code_texts().items():
        lines += [f"## {code}: {one.title}", "", one.text, ""]
    return "\n".join(lines)


def schemas() -> str:
    """Return the page of the files that exirkit reads, key by key."""
    lines = ["# Schemas of files", "", "The JSON schemas are in the package, for editors that check YAML.", ""]
    for title, path in SCHEMAS.items():
        schema = json.loads(files("exirkit").joinpath(path).read_text(encoding="utf-8"))
        lines += [f"## {title}", "", *_keys(schema)]
        for name, inner in sorted(schema.get("$defs", {}).items()):
            if inner.get("properties"):
                lines += [f"### {title}: {name}", "", inspect.cleandoc(inner.get("description", "")), "", *_keys(inner)]
    return "\n".join(lines)


def _keys(schema: Mapping[str, Any]) -> list[str]:
    required = schema.get("required", ())
    rows = [
        (f"`{key}`", _type(one), "required" if key in required else f"`{json.dumps(one.get('default'))}`", _text(one))
        for key, one in schema.get("properties", {}).items()
    ]
    return _table(("key", "type", "default", "meaning"), rows)


def _type(one: Mapping[str, Any]) -> str:
    if "anyOf" in one:
        return " or ".join(_type(each) for each in one["anyOf"])
    if "$ref" in one:
        return str(one["$ref"]).rsplit("/", 1)[-1]
    if "enum" in one or "const" in one:
        return ", ".join(f"`{each}`" for each in one.get("enum", [one.get("const")]))
    if one.get("type") == "array" and isinstance(one.get("items"), dict):
        return f"list of {_type(one['items'])}"
    return str(one.get("type", "any"))


def _text(one: Mapping[str, Any]) -> str:
    return " ".join(str(one.get("description", "")).split())


def api() -> str:
    """Return the page of public names, by room."""
    rooms: dict[str, list[str]] = defaultdict(list)
    for name, room in exirkit._HOMES.items():
        rooms[room].append(name)
    lines = ["# Public names", "", "All can be imported from `exirkit` itself.", ""]
    for room, names in sorted(rooms.items()):
        lines += [f"## exirkit.{room}", ""]
        for name in sorted(names):
            lines += _documented(name, getattr(exirkit, name), "###")
    return "\n".join(lines)


def _documented(name: str, value: Any, heading: str) -> Iterator[str]:
    yield from (f"{heading} {name}", "")
    if not callable(value):
        yield from (f"An object of type `{type(value).__name__}`.", "")
        return
    # Some classes of C have no signature.
    with contextlib.suppress(TypeError, ValueError):
        yield from ("```python", f"{name}{inspect.signature(value)}", "```", "")
    yield from _docstring(inspect.getdoc(value) or "")
    if isinstance(value, type):
        for inner, member in vars(value).items():
            if not inner.startswith("_") and inspect.isfunction(member) and member.__doc__:
                yield from _documented(f"{name}.{inner}", member, "####")


def _docstring(text: str) -> Iterator[str]:
    """Yield a Google docstring as Markdown: sections become lists."""
    in_section = False
    for line in text.splitlines():
        if _SECTION.fullmatch(line):
            in_section = True
            yield from ("", f"**{line.rstrip(':')}**", "")
        elif in_section and line.startswith("    ") and not line.startswith("     "):
            name, colon, meaning = line.strip().partition(": ")
            yield f"- `{name}`: {meaning}" if colon else f"- {line.strip()}"
        else:
            in_section = in_section and (line.startswith(" ") or not line)
            yield f"  {line.strip()}" if in_section else line
    yield ""


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    lines = [head, tuple("---" for _ in head), *rows]
    return [*(f"| {' | '.join(_cell(one) for one in line)} |" for line in lines), ""]


def _literal(text: str) -> str:
    """Return text as code for a cell of a table, where Markdown shows the backslash of an escaped bar."""
    return f"<code>{html.escape(text).replace('|', '&#124;')}</code>"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGES: dict[str, Callable[[], str]] = {
    "commands": commands,
    "passes": passes,
    "builtins": builtins,
    "diagnostics": diagnostics,
    "schemas": schemas,
    "api": api,
}
