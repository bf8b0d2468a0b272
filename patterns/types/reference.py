"""The types of a rule's variables as a page, made from the parser's tables and types, so that it cannot fall behind."""

from __future__ import annotations

import inspect

from exirkit.patterns.operators.table import FAMILIES
from exirkit.patterns.types.literals import DTYPE_CLASSES, DTYPE_NAMES
from exirkit.patterns.types.parser import TYPES, parse_variable

from .scalars import family_members
from .scanner import QUALIFIERS
from .variable import Variable

QUALIFIER_TEXTS = {
    "const": "known while the program is lowered: a parameter, a buffer that nothing writes to, a constant, "
    "or computed from these",
    "param": "a parameter",
    "buffer": "a buffer",
    "mutable": "written to by the program",
    "input": "an input of the user",
    "shared": "used more than once, or stored under more than one name",
}

_HEAD = """# The types of a rule's variables

Made from the parser of types; `exirkit.patterns.variable_types_page` makes it again.
[Rules](rules.md) explains the language.

```yaml
rulebook: 1
rules:
- id: simplify.permute-back
  vars: {x: "any [*S]", p: "perm of x"}
  match: return aten.permute_copy.default(aten.permute_copy.default(x, p), inverse(p))
  replace: return x
- id: simplify.twice
  vars: {x: "f32 [*S]", f: "op in aten.relu.default, aten.abs.default"}
  match: return f(f(x))
  replace: return f(x)
```

The type of a variable is a guard, since what it does not admit does not match, and a generator, since trials draw
values from it. It also names sizes, which guards, `let` and the replacement may use. `| none` behind any type lets an
argument be missing.
"""


def variable_types_page() -> str:
    """Return the page, as Markdown."""
    parts = [_HEAD]
    for kind in TYPES:
        text = (inspect.getdoc(kind) or "").partition("\n\nAttributes:")[0]
        title = kind.TITLE or kind.__name__.removesuffix("Variable")
        rows = [(f"`{example}`", text) for example, text in kind.EXAMPLES.items()]
        parts.append(f"## {title}\n\n{' '.join(text.split())}\n\n{_table(('type', 'meaning'), rows)}")
    parts.append("## Qualifiers of tensors\n\nThey stand before the dtype, several if need be.\n\n" + _table(
        ("qualifier", "the tensor is"), [(f"`{one}`", QUALIFIER_TEXTS[one]) for one in QUALIFIERS]
    ))  # fmt: skip
    classes = [(f"`{name}`", ", ".join(f"`{one}`" for one in members)) for name, members in DTYPE_CLASSES.items()]
    single = ", ".join(f"`{name}`" for name in DTYPE_NAMES)
    parts.append(f"## Dtypes\n\nSingle ones: {single}.\n\n" + _table(("class", "members"), classes))
    families = [(f"`{name}`", _some_of(name)) for name in FAMILIES]
    parts.append("## Families of operators\n\n" + _table(("family", "operators"), families))
    return "\n".join(parts)


def parsed_examples() -> dict[str, Variable]:
    """Return the parsed examples by their strings."""
    return {text: parse_variable("v", text) for kind in TYPES for text in kind.EXAMPLES}


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---|---|"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _some_of(family: str) -> str:
    names = sorted(f"`{op._schema.name.replace('::', '.')}.{op._overloadname}`" for op in family_members((family,)))
    return f"{len(names)}: {', '.join(names[:6])}{' ...' if len(names) > 6 else ''}"
