"""Pages about rules: everything of a rule is on them, links lead somewhere, and texts make no markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from exirkit.ir import ModelError
from exirkit.patterns import Equivalence, load_book, parse_book, rule_pages, shipped_books
from exirkit.patterns.books.pages import Anchors, code, contract, plain, table

RICH = """rulebook: 1
doc: A book | with <b>everything</b>.
types: {rows: "f32 [*B, K]"}
macros: {"twice(t)": "aten.add.Tensor(t, t)"}
ops:
  mine.act: {schema: "(Tensor x) -> Tensor", define: "return aten.relu.default(x)", doc: Cut off.}
sets: {some: {rules: ["fuse.*"]}}
rules:
- id: fuse.a|b <i>c</i>
  doc: "Makes `x | y` of a # b.\\n# no heading"
  vars: {x: "f32 [*B, K]"}
  match: |
    y = aten.neg.default(x)
    return aten.relu.default(y)
  unless: return aten.relu.default(aten.neg.default(aten.abs.default(_)))
  where: [{expr: "K % 8 == 0", kind: target, why: "lanes are eight | wide"}, {expr: "K > 1", assume: true}]
  let: k = 2.0
  replace:
  - {when: "K == 8", replace: "return mine.act.default(x)"}
  - {replace: "return aten.relu.default(aten.neg.default(x))"}
  keep: [y]
  dialect: {from: aten, to: edge}
  priority: 3
  measure: {bound: 7}
  equiv: {rtol: {f16: 0.01, f32: 1.0e-5}, atol: 0.5, lhs_nan: any, strides: true, why: It rounds}
  verify: {skip: [{what: "literal 2", why: "it does not matter"}]}
  tags: [one, two]
  owner: Acme
  since: "1.2"
  links: ["https://example.org/a", "javascript:alert(1)"]
"""


def page(text: str) -> str:
    return rule_pages([parse_book(text, "dir/rich.yaml")])["rich.md"]


def test_everything_is_on_the_page() -> None:
    text = page(RICH)
    for part in (
        "A book \\| with \\<b\\>everything\\</b\\>.",
        "## fuse.a\\|b \\<i\\>c\\</i\\>",
        "y = aten.neg.default(x)\nreturn aten.relu.default(y)\n",
        "| `x` | `f32 [*B, K]` |",
        "| `K % 8 == 0` | lanes are eight \\| wide |",
        "| `K > 1` | without it results would be wrong | asserted at run time",
        "Not where this matches",
        "Computes once, from constants",
        "If `K == 8` replaces it with",
        "Otherwise replaces it with",
        "relative 0.01 for f16, 1e-05 for f32 and absolute 0.5",
        "may give anything",
        "The layout in memory is the same too.",
        "Dialect: `aten`, to `edge`.",
        "Priority 3.",
        "at most 7 times in a row",
        "Need not matter: literal 2, since it does not matter",
        "Tags: `one`, `two`.",
        "Owner: Acme.",
        "Since 1.2.",
        "See <https://example.org/a>",
        "See javascript:alert(1)",
        "## Operator mine.act",
        "`twice(t)`",
        "| `rows` | `f32 [*B, K]` |",
        "| `some` | `fuse.*` |",
    ):
        assert part in text, part
    assert not [line for line in text.splitlines() if line.startswith("# no heading")]


def test_rules_about_values_of_the_program() -> None:
    text = page("""rulebook: 1
rules:
- id: narrow
  vars: {c: "i64 in [0, 9] [*S]"}
  match: return stored(c)
  replace: return stored(cast(c, i32))
  uses: return aten._to_copy.default(new, dtype=i64)
  shared: all
- id: made
  vars: {c: "num []"}
  graphs: bodies
  match: return stored(c)
  replace: return aten.full.default([], item(c), dtype=c.dtype)
""")
    for part in (
        "return stored(cast(c, i32))\n",
        "The uses of the old value get, from the `new` one",
        "return aten._to_copy.default(new, dtype=i64)\n",
        "Tensors that several calls use are replaced as well.",
        "Only where bodies of control flow use the tensor.",
    ):
        assert part in text, part


def test_pages_of_the_shipped_books() -> None:
    books = [load_book(name) for name in shipped_books()]
    pages = rule_pages(books)
    assert pages == rule_pages(books)
    assert list(pages) == [*(f"{name}.md" for name in shipped_books()), "index.md"]
    headings = {name: {_heading_anchors(text)[at] for at in _heading_anchors(text)} for name, text in pages.items()}
    for name, text in pages.items():
        for target in re.findall(r"\]\(([^)]+)\)", text):
            file, _, anchor = target.partition("#")
            assert (file or name) in pages
            assert not anchor or anchor in headings[file or name], target
        assert text.count("\n```") % 2 == 0
        assert text.endswith("\n")
    for book in books:
        assert book.book is not None
        for rule in book.book.rules:
            assert rule.match.strip().splitlines()[0] in pages[f"{Path(book.file).stem}.md"]


def _heading_anchors(text: str) -> dict[int, str]:
    anchors = Anchors()
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    return {at: anchors.of(heading.replace("\\", "")) for at, heading in enumerate(headings)}


def test_rows_have_as_many_cells_as_their_heads() -> None:
    for line in page(RICH).splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (3, 4), line


@pytest.mark.parametrize(
    ("equiv", "said"),
    [
        (Equivalence(), "up to the last bits"),
        (Equivalence(mode="exact"), "bit for bit"),
        (Equivalence(lsb=1), "within 1 steps of an integer"),
        (Equivalence(rtol=0.5), "within relative 0.5."),
        (Equivalence(mode="approx"), "about equal"),
        (Equivalence(rng="any"), "Random numbers"),
        (Equivalence(values="normal"), "Nothing is promised"),
    ],
)
def test_contract(equiv: Equivalence, said: str) -> None:
    assert said in " ".join(contract(equiv))


def test_a_book_with_errors_has_no_page() -> None:
    with pytest.raises(ModelError):
        rule_pages([parse_book(RICH.replace("mine.act.default", "mine.act.defult"))])


def test_markdown_text() -> None:
    assert plain("a_b *c* `d_e` [x](y)\n# z") == "a\\_b \\*c\\* `d_e` \\[x\\](y) \\# z"
    assert code("a `b` c") == "``a `b` c``"
    assert code("`b`") == "`` `b` ``"
    assert table(["a"], [["x | y"], ["x \\| y"]])[2:] == ["| x \\| y |", "| x \\| y |"]
    anchors = Anchors()
    assert [anchors.of("A.b c"), anchors.of("a.B c")] == ["ab-c", "ab-c-1"]
