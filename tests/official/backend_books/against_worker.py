"""A process that imports the official package and compares passes with rules; prints one JSON document."""

from __future__ import annotations

import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch

from exirkit.bridge import AgainstBench, compared_with_original, port_pass
from exirkit.bridge.against.comparisons import comparisons_of
from exirkit.bridge.against.differences import differences
from exirkit.bridge.against.original_passes import original_pass
from exirkit.bridge.against.subjects import GeneratedSubject, as_exported
from exirkit.bridge.against.target_operators import with_operators_of_books, with_operators_of_package
from exirkit.bridge.official_edge import officially_lowered
from exirkit.fuzz import Attachment, CampaignConfig, load_bench, parse_program, program_text
from exirkit.ir import DiagnosticError
from exirkit.patterns import beside_other_libraries, defined_beside, parse_book

TOYS = str(Path(__file__).with_name("toy_passes.py"))
ORIGINAL = "executorch.backends.transforms.addmm_mm_to_linear:AddmmToLinearTransform"

BOOK = """
rulebook: 1
rules:
- id: sub.add
  vars: {x: "f32 [*S]", y: "f32 [*S]", a: "int in [-3, 3]"}
  match: return aten.sub.Tensor(x, y, alpha=a)
  replace: return aten.add.Tensor(x, y, alpha=-a)
"""
WRONG = BOOK.replace("alpha=-a", "alpha=a")

# A thousandth too large, which the tolerance allows or does not.
APPROXIMATE = """
rulebook: 1
rules:
- id: expm1.approximate
  vars: {x: "f32 [*S]"}
  match: return aten.expm1.default(x)
  replace: return aten.mul.Scalar(aten.sub.Scalar(aten.exp.default(x), 1.0), 1.001)
  equiv: {rtol: 0.002, atol: 1.0e-6, why: it is a thousandth too large}
"""
TOO_STRICT = APPROXIMATE.replace("0.002", "0.0001")

OPERATOR = """
rulebook: 1
ops:
  against_toys.scaled:
    schema: "(Tensor x, int n) -> Tensor"
    define: return aten.mul.Scalar(x, n)
rules: []
"""

SUBTRACTION = """program(1)

def forward(x: "{dtype}[2, 3]", y: "{dtype}[2, 3]"):
    z = aten.sub.Tensor(x, y{alpha})
    return z

run("forward", x=dyadic(1, bits=0), y=dyadic(2, bits=0))
"""
COMPARED = """program(1)

def forward(x: "i32[2, 3]", y: "i32[2, 3]"):
    z = aten.eq.Tensor(x, y)
    return z

run("forward", x=dyadic(1, bits=0), y=dyadic(2, bits=0))
"""
# What comes behind makes an error of the exponential a larger one.
EXPONENTIAL = """program(1)

def forward(x: "f32[2, 3]"):
    y = aten.expm1.default(x)
    z = aten.mul.Scalar(y, 50.0)
    u = aten.exp.default(y)
    return z, u

run("forward", x=dyadic(1))
"""
ASKS_FOR_TOSA = "executorch.backends.arm._passes.cast_int_comparison_inputs_pass:CastIntComparisonInputsPass"
# Arm keeps linear layers whole while lowering to Edge.
LINEAR_PASS = "executorch.backends.arm._passes.decompose_linear_pass:DecomposeLinearPass"
LINEAR = """program(1)
w = constant("f32[2, 4]", dyadic(3))

def forward(x: "f32[3, 4]"):
    z = aten.linear.default(x, w)
    return z

run("forward", x=dyadic(2))
"""
PIPELINE = """pipeline: 1
name: {name}
dialect: {{from: edge, to: edge}}
stages:
- rules: [{rules}]
"""
DIVISION = """program(1)

def forward(x: "f32[2, 3]"):
    y = aten.div.Tensor(x, 2.0)
    return y

run("forward", x=dyadic(1))
"""
# A pass that looks for weights as attributes, in the calls that models make.
NORMALIZED = """program(1)
w = constant("f32[2, 1, 1, 2]", dyadic(1))
m = constant("f32[2]", dyadic(2))
v = constant("f32[2]", numbers([1.0, 2.0]))

def forward(x: "f32[1, 1, 2, 3]"):
    y = aten.convolution.default(x, w, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    z, _, _ = aten._native_batch_norm_legit_no_training.default(y, None, None, m, v, 0.1, 0.00001)
    return z

run("forward", x=dyadic(3))
"""
COPIES = """program(1)

def forward(x: "f32[3, 3]"):
    y = aten.t_copy.default(x)
    z = aten.linear.default(y, y, None)
    return z

run("forward", x=dyadic(1))
"""
ADDMM = """program(1)

def forward(b: "f32[2]", x: "f32[3, 4]", w: "f32[2, 4]"):
    t = aten.t.default(w)
    z = aten.addmm.default(b, x, t{alpha})
    return z

run("forward", b=dyadic(1), x=dyadic(2), w=dyadic(3))
"""


def book(text: str, folder: Path, name: str) -> str:
    """Write a book."""
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def compared(text: str, against: str, rules: list[str], pipelines: tuple[str, ...] = ()) -> list[list[str]]:
    """Return bucket and message of what differs."""
    found = compared_with_original(parse_program(text), [against], rules=rules, pipelines=pipelines)
    return [[one.bucket, one.message] for one in found]


def pipeline(text: str, folder: Path, name: str) -> str:
    """Write a pipeline that applies a book."""
    rules = book(text, folder, f"{name}_of_pipeline.yaml")
    return book(PIPELINE.format(name=name, rules=rules), folder, f"{name}_pipeline.yaml")


def error_of(**fields: Any) -> str:
    """Return the code of what is wrong with a configuration."""
    try:
        AgainstBench(CampaignConfig(**fields))
    except DiagnosticError as error:
        return error.code
    return ""


def exchanged() -> list[str]:
    """Return operators of a program with a book's operator, as its package's passes get it, and back."""
    library = torch.library.Library("against_toys", "FRAGMENT")
    library.define("scaled(Tensor x, Tensor n) -> Tensor")
    library.define("scaled.number(Tensor x, int n) -> Tensor")
    library.impl("scaled.number", lambda x, n: x * n, "CompositeExplicitAutograd")
    with beside_other_libraries():
        parse_book(OPERATOR, "operators.yaml").require_valid()
    of_book: Any = defined_beside(torch.ops.against_toys.scaled.number)

    class Scaled(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return of_book(x, 3)

    exported = {"forward": torch.export.export(Scaled(), (torch.ones(2),), strict=False)}
    before = officially_lowered(exported)["forward"]
    there = with_operators_of_package(before)
    back = with_operators_of_books(there)
    return [
        str(next(node.target._op for node in one.graph.nodes if node.op == "call_function"))
        for one in (before, there, back)
    ]


def on_what_exporters_return() -> dict[str, Any]:
    """Say which passes of a table run on what exporters return, and compare one."""
    compared, left_out = comparisons_of(["backends/nxp"])
    divided = next(one for one in compared if one.name == "ConvertDivToMulPass")
    outcome = differences(GeneratedSubject(parse_program(DIVISION)), divided)
    fused = next(one for one in compared if one.name == "FuseBatchNormWithConvPass")
    normalized = differences(GeneratedSubject(as_exported(parse_program(NORMALIZED))), fused)
    return {
        "dialects": {one.name: one.originals[0].dialect for one in compared},
        "left out": list(left_out),
        "division": [one.bucket for one in outcome.found],
        "normalized": [normalized.theirs_changed, list(normalized.fired), [one.bucket for one in normalized.found]],
        "exported": program_text(as_exported(parse_program(COPIES))),
    }


def comparisons(folder: Path) -> dict[str, Any]:
    """Compare single programs."""
    # Books define operators that modules of the package define as well, and those have to come first.
    original_pass(ASKS_FOR_TOSA)
    good, wrong = book(BOOK, folder, "good.yaml"), book(WRONG, folder, "wrong.yaml")
    plain = SUBTRACTION.format(dtype="f32", alpha="")
    scaled = SUBTRACTION.format(dtype="f32", alpha=", alpha=2")
    found = {
        "theirs wrong": compared(scaled, f"{TOYS}:ForgetsAlpha", [good]),
        "ours wrong": compared(scaled, f"{TOYS}:KeepsAlpha", [wrong]),
        "both right": compared(scaled, f"{TOYS}:KeepsAlpha", [good]),
        "ours leaves": compared(SUBTRACTION.format(dtype="f64", alpha=""), f"{TOYS}:KeepsAlpha", [good]),
        "theirs leaves": compared(plain, f"{TOYS}:Idle", [good]),
        "other operators": compared(plain, f"{TOYS}:ForgetsAlpha", [good]),
        "within tolerance": compared(EXPONENTIAL, f"{TOYS}:Idle", [book(APPROXIMATE, folder, "approximate.yaml")]),
        "beyond tolerance": compared(EXPONENTIAL, f"{TOYS}:Idle", [book(TOO_STRICT, folder, "strict.yaml")]),
        "pipeline within": compared(EXPONENTIAL, f"{TOYS}:Idle", [], (pipeline(APPROXIMATE, folder, "approximate"),)),
        "pipeline beyond": compared(EXPONENTIAL, f"{TOYS}:Idle", [], (pipeline(TOO_STRICT, folder, "strict"),)),
        "kept operator": compared(LINEAR, LINEAR_PASS, []),
        "theirs stops": compared(plain, f"{TOYS}:Stops", [good]),
        "table": compared(ADDMM.format(alpha=", alpha=2"), ORIGINAL, []),
        "table, right": compared(ADDMM.format(alpha=""), ORIGINAL, []),
        "asks for TOSA": compared(COMPARED, ASKS_FOR_TOSA, []),
    }
    return {"found": found, "exchanged": exchanged(), "on aten": on_what_exporters_return()}


def campaign(folder: Path) -> dict[str, Any]:
    """Check generated programs and a model, and reduce a finding."""
    good = book(BOOK, folder, "good.yaml")
    config = CampaignConfig(
        bench="exirkit.bridge:AgainstBench",
        against=(f"{TOYS}:ForgetsAlpha",),
        rules=(Attachment.of(good),),
        models=(f"{TOYS}:models",),
        seeds=6,
    )
    bench = load_bench(config)
    cases = [bench.make(seed) for seed in range(6)]
    again = [AgainstBench(config).make(seed).text for seed in range(6)]
    checked = [bench.check(case) for case in cases]
    failed = next(seed for seed in range(2, 6) if checked[seed].verdict == "failed")
    analysis = bench.analyse(cases[failed], 0)
    (folder / "repro.py").write_text(analysis.repro or "", encoding="utf-8")
    chain = AgainstBench(CampaignConfig(against=("backends/exir",)))
    return {
        "texts": [one.text for one in cases],
        "again": again,
        "verdicts": [one.verdict for one in checked],
        "models": [[one.bucket for one in each.failures] for each in checked[:2]],
        "bucket": analysis.bucket,
        "reduced": analysis.reduced,
        "repro": analysis.repro,
        "classes": [one.name for one in chain.comparisons],
        "left out": chain.left_out,
    }


def errors() -> dict[str, str]:
    """Return codes of configurations that are wrong."""
    return {
        "argument": error_of(against=(f"{TOYS}:NeedsScale",)),
        "missing": error_of(against=("executorch.exir.passes:NoSuchPass",)),
        "oracle": error_of(against=(f"{TOYS}:Idle",), oracles=("dialect-agreement",)),
        "two books": error_of(against=("backends/exir", "backends/xnnpack")),
        "model": error_of(against=(f"{TOYS}:Idle",), models=(f"{TOYS}:scaled",)),
        "factory": error_of(against=(f"{TOYS}:scaled",)),
    }


def ports(*names: str) -> dict[str, Any]:
    """Write rules from passes."""
    ported = {name: port_pass(f"{TOYS}:{name}", seeds=5, models=(f"{TOYS}:negations",)) for name in names}
    return {
        "ported": {name: one.text for name, one in ported.items()},
        "undecided": {name: [rule.undecided for rule in one.rules] for name, one in ported.items()},
    }


def sample(folder: Path) -> dict[str, Any]:
    """Compare single programs, and write rules from a pass."""
    return {**comparisons(folder), **ports("TwiceNegated")}


def more(folder: Path) -> dict[str, Any]:
    """Do the rest."""
    return {**campaign(folder), "errors": errors(), **ports("KeepsAlpha", "Idle")}


PARTS = {"sample": sample, "more": more}


def main(part: str) -> None:
    """Print what one of the parts says."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        json.dump(PARTS[part](Path(directory)), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
