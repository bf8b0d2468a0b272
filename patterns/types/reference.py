"""The types of a rule's variables as a page, made from the parser's tables and types, so that it cannot fall behind."""

from __future__ import annotations

import inspect

from .dtypes import DTYPE_CLASSES, DTYPE_NAMES
from .operators import FAMILIES, family_members
from .parser import parse_variable
from .variables import (
    QUALIFIERS,
    AxesVariable,
    AxisVariable,
    BoolVariable,
    ChoiceVariable,
    DimsVariable,
    DtypeVariable,
    FactorsVariable,
    FloatVariable,
    IntVariable,
    ListVariable,
    OperatorVariable,
    PartitionVariable,
    PermutationVariable,
    ScalarVariable,
    ShapeVariable,
    StringVariable,
    TensorListVariable,
    TensorVariable,
    Variable,
)

VARIABLE_EXAMPLES: dict[type[Variable], dict[str, str]] = {
    TensorVariable: {
        "f32 [N, K]": "two dims; their sizes have the names N and K in the whole rule",
        "f32 [*B, 3, _]": "any number of dims, whose sizes are B; a dim of size 3; a dim of any size",
        "f32 [2*K, N+1]": "sizes computed from others",
        "f16|f32 [N]": "one of several dtypes",
        "f* [*S]": "a class of dtypes",
        "=x [*S]": "the dtype of x",
        "any": "any dtype, any shape",
        "num [~S]": "broadcasts to S, or with the other tensors that say ~S",
        "const f32 [N, K]": "with a qualifier, see below",
        "f32+ [C]": "elements that are not negative",
        "f32 [C] in [0, 6]": "elements within bounds",
        "num {0, 1} [*S]": "elements that are one of these",
        "f32 layouts [N, C, H, W]": "trials try every order of dims in memory; a match never asks for the order",
        "f32 [N] | none": "an argument that may be missing",
    },
    TensorListVariable: {
        "list of f32 [*S]": "any number of tensors, all of the same sizes",
        "list 2 of f32 [N, _]": "two tensors with the same N",
    },
    IntVariable: {
        "int": "any",
        "int in [0, 3]": "between bounds, which belong to it",
        "int >= 1": "with one bound",
        "int in [0, rank(x)-1]": "bounds computed from sizes",
    },
    FloatVariable: {
        "float in [0.1, 2.0]": "between bounds",
        "scalar f32": "the same as `float`",
    },
    ScalarVariable: {
        "scalar": "any",
        "scalar in [0, 1]": "between bounds",
    },
    BoolVariable: {"bool": "one value; `bool [N]` is a tensor"},
    StringVariable: {"str": "any", "str in 'none', 'tanh'": "one of these"},
    ListVariable: {
        "ints": "integers, any number of them",
        "ints 2 in [1, 3]": "two, between bounds",
        "ints len(S) in [1, 2]": "as many as S has dims",
        "floats 2": "two floats",
        "bools": "bools",
    },
    ShapeVariable: {"shape": "any"},
    ChoiceVariable: {
        "one_of 1, 2, 4": "numbers, strings, none, lists",
        "int in {1, 2}": "another way to write `one_of`",
        "one_of x, 0": "the value of another variable, or 0",
    },
    PermutationVariable: {"perm of x": "as many dims as x has"},
    AxesVariable: {"axes of x": "some dims of x"},
    AxisVariable: {"axis of x": "one dim of x; `dim of x` is the same"},
    FactorsVariable: {"factors of x": "what x can be viewed as"},
    PartitionVariable: {"partition of x at 0": "for a split of dim 0", "partition of x at d": "d is an `axis of x`"},
    DimsVariable: {
        "dims [*D]": "with `~S` of tensors and `S: dims [*D]`, S is the shape to which they broadcast",
        "dims [P, Q]": "a shape of two dims",
    },
    DtypeVariable: {"dtype": "any", "dtype in f16, f32": "one of these", "dtype in =x": "the dtype of x"},
    OperatorVariable: {
        "op in unary_pointwise": "an operator of a family, see below",
        "op in aten.relu.default, aten.tanh.default": "one of these operators",
    },
}
"""Examples of every type, with what each says."""

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
    for kind, examples in VARIABLE_EXAMPLES.items():
        text = (inspect.getdoc(kind) or "").partition("\n\nAttributes:")[0]
        title = kind.__name__.removesuffix("Variable")
        rows = [(f"`{example}`", text) for example, text in examples.items()]
        parts.append(
            f"## {_TITLES.get(title, title)}\n\n{' '.join(text.split())}\n\n{_table(('type', 'meaning'), rows)}"
        )
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
    """Return what the parser makes of every example, by its text."""
    return {text: parse_variable("v", text) for examples in VARIABLE_EXAMPLES.values() for text in examples}


_TITLES = {
    "TensorList": "List of tensors",
    "List": "List of numbers",
    "Scalar": "Number",
    "Int": "Integer",
    "String": "String",
}


def _table(head: tuple[str, str], rows: list[tuple[str, str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---|---|"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _some_of(family: str) -> str:
    names = sorted(f"`{op._schema.name.replace('::', '.')}.{op._overloadname}`" for op in family_members((family,)))
    return f"{len(names)}: {', '.join(names[:6])}{' ...' if len(names) > 6 else ''}"
