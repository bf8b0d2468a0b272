"""Pages about rules: everything of a rule is on them, links lead somewhere, and texts make no markup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from tests.patterns.rule_files import book

from exirkit.ir import ModelError
from exirkit.patterns import Equivalence, load_book, parse_book, rule_pages, rulebook_schema, shipped_books
from exirkit.patterns.books.pages import Anchors, table
from exirkit.patterns.books.sentences import TOLD, code, contract, plain
from exirkit.patterns.explain.mismatches import AT_A_TERM, EXPLAINED_ELSEWHERE
from exirkit.patterns.syntax import terms

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
        "Only where bodies of control flow use the tensor;",
    ):
        assert part in text, part


PLAIN = """- id: it
  vars: {x: "f32 [N, 4]"}
  match: |
    y = aten.relu.default(x)
    return aten.relu.default(y)
  replace: return aten.relu.default(x)
"""
CHANGED = {
    # What stands in for a part of the plain rule, or after it; and what the page says then.
    "RuleBook.namespace": ("rulebook: 1\n", "rulebook: 1\nnamespace: mine\n", "known elsewhere as `mine.ID`"),
    "RuleBook.doc": ("rulebook: 1\n", "rulebook: 1\ndoc: Many rules.\n", "Many rules."),
    "RuleBook.libraries": ("rulebook: 1\n", "rulebook: 1\nlibraries: [math]\n", "Imports `math`"),
    "RuleBook.types": ("rulebook: 1\n", 'rulebook: 1\ntypes: {rows: "f32 [N]"}\n', "| `rows` | `f32 [N]` |"),
    "RuleBook.macros": ("rulebook: 1\n", 'rulebook: 1\nmacros: {"m(t)": "aten.relu.default(t)"}\n', "| `m(t)` |"),
    "RuleBook.tables": ("rulebook: 1\n", "rulebook: 1\ntables: {half: {f32: f16}}\n", "## Table half"),
    "RuleBook.traits": ("rulebook: 1\n", "rulebook: 1\ntraits: {aten.relu.default: {pure: true}}\n", "properties of"),
    "RuleBook.sets": ("rulebook: 1\n", "rulebook: 1\nsets: {all: {rules: [it]}}\n", "| `all` | `it` |"),
    "Rule.doc": ("", "  doc: It is so.\n", "It is so."),
    "Rule.tags": ("", "  tags: [one]\n", "Tags: `one`."),
    "Rule.owner": ("", "  owner: Acme\n", "Owner: Acme."),
    "Rule.since": ("", '  since: "1.2"\n', "Since 1.2."),
    "Rule.links": ("", '  links: ["https://example.org"]\n', "See <https://example.org>"),
    "Rule.kind": ("", "  kind: simplify\n", "| simplify |"),
    "DialectScope.from": ("", "  dialect: {from: edge}\n", "Dialect: `edge`"),
    "DialectScope.to": ("", "  dialect: {from: aten, to: edge}\n", "to `edge`"),
    "Rule.unless": ("", "  unless: return aten.relu.default(aten.neg.default(_))\n", "Not where this matches"),
    "Guard.expr": ("", "  where: N > 1\n", "`N > 1`"),
    "Guard.kind": ("", '  where: {expr: "N > 1", kind: profit}\n', "without it it would be slower"),
    "Guard.why": ("", '  where: {expr: "N > 1", why: rows are joined}\n', "rows are joined"),
    "Guard.assume": ("", '  where: {expr: "N > 1", assume: true}\n', "asserted at run time"),
    "Rule.let": ("", "  let: k = 2.0\n", "Computes once, from constants"),
    "Case.when": (
        "replace: return",
        'replace:\n  - {when: "N == 1", replace: return x}\n  - replace: return',
        "If `N == 1`",
    ),
    "Case.let": ("replace: return", "replace:\n  - let: k = 2.0\n    replace: return", "k = 2.0"),
    "Rule.keep": ("", "  keep: [y]\n", "May stay for other users: `y`."),
    "MetadataPolicy.anchor": ("", "  meta: {anchor: y}\n", "source line of `y`"),
    "MetadataPolicy.debug": ("", "  meta: {debug: root}\n", "answer for the replaced calls only"),
    "MetadataPolicy.tags": ("", "  meta: {tags: {where: npu}}\n", "marked `where` = npu"),
    "Rule.gen": ("", '  gen: "N > 1"\n', "Trials keep to `N > 1`."),
    "Rule.priority": ("", "  priority: 3\n", "Priority 3."),
    "Rule.group": ("", "  group: pairs\n", "Group `pairs`."),
    "Rule.phase": ("", "  phase: 2\n", "Phase 2"),
    "Rule.measure": ("", "  measure: weight\n", "Ends by: weight."),
    "Bound.bound": ("", "  measure: {bound: 7}\n", "at most 7 times in a row"),
    "Rule.choose": ("", "  choose: cost\n", "says that it gains"),
    "Rule.tune": ("", "  tune: {T: [4, 2]}\n", "`T` is one of 4, 2"),
    "Rule.recursive": ("", "  recursive: true\n", "its own results"),
    "Rule.varying": ("", "  varying: [N]\n", "where `N` vary at run time"),
    "Rule.quantized": ("", "  quantized: {x: per_tensor, result: per_tensor}\n", "`x` per\\_tensor"),
    "Equivalence.mode": ("", "  equiv: {mode: exact}\n", "bit for bit"),
    "Equivalence.rtol": ("", "  equiv: {rtol: 0.5}\n", "relative 0.5"),
    "Equivalence.atol": ("", "  equiv: {atol: 0.5}\n", "absolute 0.5"),
    "Equivalence.lsb": ("", "  equiv: {lsb: 2}\n", "2 steps of an integer"),
    "Equivalence.lhs_nan": ("", "  equiv: {lhs_nan: any}\n", "may give anything"),
    "Equivalence.strides": ("", "  equiv: {strides: true}\n", "layout in memory"),
    "Equivalence.values": ("", "  equiv: {values: normal}\n", "for infinities and NaN"),
    "Equivalence.rng": ("", "  equiv: {rng: any}\n", "Random numbers"),
    "Equivalence.why": ("", "  equiv: {atol: 0.5, why: it rounds}\n", "it rounds"),
    "Verification.trials": ("", "  verify: {trials: 77}\n", "Tried 77 times."),
    "Verification.values": ("", "  verify: {values: boundary}\n", "Tried on boundary values."),
    "Verification.dims": ("", "  verify: {dims: [1, 5]}\n", "sizes 1, 5."),
    "Verification.examples": ("", "  verify: {examples: [{symbols: {N: 1}}]}\n", "1 examples"),
    "Skip.what": ("", "  verify: {skip: [{what: a literal, why: it is so}]}\n", "a literal"),
    "Skip.why": ("", "  verify: {skip: [{what: a literal, why: it is so}]}\n", "it is so"),
}
ELSEWHERE = {
    "RuleBook.rulebook": "the version of the language",
    "RuleBook.imports": "needs a second file: test_book_with_imports",
    "RuleBook.ops": "RICH",
    "RuleBook.attributes": "WORDS",
    "RuleBook.rules": "every rule has a heading",
    **dict.fromkeys(("AttributeDefinition.key", "AttributeDefinition.means", "AttributeDefinition.doc"), "WORDS"),
    **dict.fromkeys(("OperatorDefinition.schema", "OperatorDefinition.define", "OperatorDefinition.doc"), "RICH"),
    "OperatorDefinition.traits": "what the engine asks, not what the operator means",
    "OperatorDefinition.out_variant": "what the exporter registers",
    "OperatorDefinition.cost": "a number for the choice by cost",
    "OperatorDefinition.registered_by": "who registers it makes no difference to rules",
    **dict.fromkeys(("Rule.id", "Rule.vars", "Rule.match", "Rule.replace", "Case.replace"), "on every page"),
    **dict.fromkeys(("Rule.uses", "Rule.shared", "Rule.graphs"), "test_rules_about_values_of_the_program"),
    **dict.fromkeys(("Rule.where", "Rule.dialect", "Rule.meta", "Rule.equiv", "Rule.verify"), "their own keys are"),
    "MetadataPolicy.module_stack": "it has one value",
    **dict.fromkeys(("Example.symbols", "Example.values", "Example.fires"), "how many there are is said"),
    "Verification.skip": "its own keys are",
    "Verification.tier": "how thorough the check is, not what the rule means",
    "RuleSet.rules": "RICH",
    **dict.fromkeys((f"RuleSet.{key}" for key in ("exclude", "strategy", "bound", "requires", "ensures")), "of a run"),
}


@pytest.mark.parametrize("key", CHANGED)
def test_each_key_is_explained(key: str) -> None:
    old, new, said = CHANGED[key]
    usual = f"rulebook: 1\nrules:\n{PLAIN}"
    changed = usual.replace(old, new, 1) if old else usual + new
    assert said not in page(usual)
    assert said in page(changed)


def test_no_key_of_the_schema_is_forgotten() -> None:
    schema = rulebook_schema()
    models = {"RuleBook": schema, **schema["$defs"]}
    keys = {f"{name}.{key}" for name, model in models.items() for key in model.get("properties", {})}
    assert keys == set(CHANGED) | set(ELSEWHERE)
    assert not set(CHANGED) & set(ELSEWHERE)


def test_book_with_imports(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("rulebook: 1\n")
    (tmp_path / "rich.yaml").write_text(f"rulebook: 1\nimports: [other.yaml]\nrules:\n{PLAIN}")
    assert "Uses what `other.yaml` define." in rule_pages([load_book(str(tmp_path / "rich.yaml"))])["rich.md"]


WORDS = """rulebook: 1
attributes:
  act: {lo: float, hi: float, key: LIMITS, means: "aten.clamp.default(result, lo, hi)", doc: Its limits.}
tables:
  swapped: {aten.le.Tensor: aten.ge.Tensor, aten.lt.Tensor: aten.gt.Tensor}
rules:
- id: chain
  vars: {x: "f32 [*S]"}
  match: |
    l = aten.relu.default(x)
    v = chain(l, [aten.view_copy.default], users=1)
    return aten.relu.default(v)
  where: ["links(v) > 0", "no(l, act)"]
  replace: return along(v, aten.relu.default(x))
  keep: {act: last}
- id: users
  vars: {x: "f32 [*S]", ks: floats}
  match: |
    d = aten.neg.default(x)
    return *[aten.mul.Scalar(u, k) for u, k in zip(users(d), ks)]
  replace: return *[aten.mul.Scalar(x, -k) for k in ks]
- id: some
  vars: {x: "f32 [*S]"}
  match: return *[aten.abs.default(aten.neg.default(u)) for u in some(users(x))]
  replace: return aten.abs.default(x)
- id: each
  vars: {xs: "list of any [*S]", p: "perm of S", d: "axis of S"}
  match: return aten.cat.default([aten.permute_copy.default(x, p) for x in xs], d)
  replace: return aten.permute_copy.default(aten.cat.default(xs, p[d]), p)
- id: splat
  vars: {x: "f32 [*S]", xs: "list of f32 [*T]"}
  match: return aten.cat.default([*xs, x], 0)
  replace: return aten.cat.default([*xs, x], 0)
- id: read
  vars: {x: "f32 [*S]", lo: float, hi: float}
  match: |
    y = aten.neg.default(x) @ act(lo, hi)
    return aten.relu.default(y)
  where: "attr(y, act).lo >= 0.0"
  replace: return aten.neg.default(x) @ act(lo, hi)
- id: swap
  vars: {f: op in swapped, x: "f32 [*S]", y: "f32 [*S]"}
  match: return f(x, y)
  replace: return swapped[f](y, x)
- id: maybe
  vars: {x: "f32 [*S]", k: "float"}
  match: return aten.relu.default(opt(aten.mul.Scalar(x, k)))
  replace: return aten.relu.default(x)
- id: either
  vars: {x: "f32 [*S]"}
  match: |
    y = alt(a=aten.neg.default(x), b=aten.abs.default(x))
    return aten.relu.default(y)
  replace: return aten.relu.default(x)
- id: through
  vars: {x: "f32 [*S]"}
  match: return aten.relu.default(thru(aten.relu.default(x), [aten.clone.default]))
  replace: return aten.relu.default(x)
- id: range
  vars: {x: "f32 [*S]"}
  match: return aten.relu.default(x)
  where: range(x).lo >= 0
  replace: return x
- id: loop
  vars: {x: "f32 [*S]", dims: "axes of x"}
  match: return aten.amax.default(x, dims, True)
  replace: |
    y = x
    for d in dims: y = aten.amax.default(y, [d], True)
    return y
- id: traced
  vars: {x: "f32 [N, K]", y: "f32 [K, M]"}
  match: return aten.mm.default(x, y)
  replace: return traced(aten.einsum.default("ij,jk->ik", [x, y]))
- id: input
  vars: {x: "i64 in [-9, 9] [*S]"}
  match: return input(x)
  replace: return input(aten._to_copy.default(x, dtype=i32))
  uses: return aten._to_copy.default(new, dtype=i64)
- id: output
  vars: {y: "bool [*S]"}
  match: return output(y)
  replace: return output(aten._to_copy.default(y, dtype=u8))
  uses: return aten._to_copy.default(new, dtype=bool)
"""


def test_each_word_is_explained() -> None:
    text = page(WORDS)
    for part in (
        "## Attribute act",
        "Stands in the metadata as `LIMITS`; the value of the call is `aten.clamp.default(result, lo, hi)`.",
        "`v` is any number of calls behind `l`, none included, of `aten.view_copy.default`; nothing else uses",
        "`along(v, e)` makes",
        "`links(v)` is",
        "`no(y, act)` holds",
        "Attribute `act` of matched calls: the result gets that of the last of them.",
        "Every user of `d` is of this form",
        "Those users of `x` that are of this form",
        "Every element of `xs` is of one form.",
        "`xs` is any number of elements",
        "`y` has attribute `act` with `lo`, `hi`.",
        "`attr(y, act)` is",
        "`f` stands for an operator",
        "Table `swapped` is asked",
        "The call of `aten.mul.Scalar` may be missing",
        "One of several calls, `a`, `b`; `y.alt` says which.",
        "Calls of `aten.clone.default` are looked through.",
        "`range(x)` is what analyses",
        "The loop `for d in dims` makes one turn",
        "`traced(call)` is what torch",
        "It is about what callers give",
        "It is about what callers get",
    ):
        assert part in text, part


def test_no_kind_of_term_is_forgotten() -> None:
    kinds = {one for alias in (terms.Part, terms.Term) for one in _members(alias)}
    simple = {
        terms.Variable, terms.Symbol, terms.Element, terms.Anything, terms.Literal, terms.Computed, terms.Sequence,
        terms.Call, terms.Item, terms.Parameter,
    }  # fmt: skip
    assert kinds == set(TOLD) | simple
    assert kinds == set(AT_A_TERM) | {getattr(terms, name) for name in EXPLAINED_ELSEWHERE}


def _members(alias: Any) -> Iterator[type]:
    for one in get_args(alias):
        yield from _members(one) if get_args(one) else (one,)


def test_pages_of_the_shipped_books() -> None:
    books = [book(name) for name in shipped_books()]
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
    for loaded in books:
        assert loaded.book is not None
        for rule in loaded.book.rules:
            assert rule.match.strip().splitlines()[0] in pages[f"{Path(loaded.file).stem}.md"]


def _heading_anchors(text: str) -> dict[int, str]:
    anchors = Anchors()
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    return {at: anchors.of(heading.replace("\\", "")) for at, heading in enumerate(headings)}


def test_rows_have_as_many_cells_as_their_heads() -> None:
    for line in page(RICH).splitlines():
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) in (3, 4, 5), line


def test_what_is_known_of_rules_is_on_their_pages() -> None:
    assert "- Status: neither proved nor tried" in page(RICH)
    pages = rule_pages([load_book("canonicalize"), load_book("copies")])
    assert "- Status: proved for all sizes" in pages["canonicalize.md"]
    assert "- Status: tried on 200 sets of values, seed 0; not proved: " in pages["copies.md"]
    assert "| [canonicalize](canonicalize.md) | 15 | 15 |" in pages["index.md"]


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
