"""`exirkit rule ...`: checking rule books, and examining them."""

from __future__ import annotations

import typer

from exirkit.cli.root import app

from .books import builtins, docs, list_rules, schema, words
from .check import check
from .discover import discover
from .explain import explain
from .from_trace import from_trace
from .port import port
from .prove import prove

rule_app = typer.Typer(rich_markup_mode=None, help="Check and examine rule books.", no_args_is_help=True)
rule_app.command()(check)
rule_app.command()(explain)
rule_app.command("list")(list_rules)
rule_app.command()(schema)
rule_app.command()(docs)
rule_app.command("from-trace")(from_trace)
rule_app.command()(port)
rule_app.command()(prove)
rule_app.command()(discover)
rule_app.command()(builtins)
rule_app.command(hidden=True)(words)

app.add_typer(rule_app, name="rule")

__all__ = ["rule_app"]
