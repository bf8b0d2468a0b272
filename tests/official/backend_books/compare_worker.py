"""A process that runs classes of the official package (`there`), or the rules that do their work (`here`), on programs.

Each line of standard input is the index of a case of `same_programs.CASES`; for each there is a line of JSON: which
operators went and came, and how far the results are from those of the model. The two sides do not share a process:
books define operators that the official package registers as well.
"""

from __future__ import annotations

import copy
import importlib
import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

warnings.simplefilter("ignore")

from tests.official.backend_books.same_programs import CASES, Case  # noqa: E402

from exirkit.patterns import BackendClass, backend_classes  # noqa: E402


def compare(case: Case, run: Callable[[Case, BackendClass, Any], tuple[Any, Any, Any]]) -> dict[str, Any]:
    """Return what one side makes of a program: calls before it, those that went, and how results differ."""
    (entry,) = [one for one in backend_classes(case.book).entries if one.name == case.class_name]
    model = case.model().eval()
    with torch.no_grad():
        expected = _flat(model(*copy.deepcopy(case.inputs)))
        before, after, results = run(case, entry, torch.export.export(model, case.inputs, strict=case.is_strict))
    return {"class": case.class_name, **_report(before, after, _flat(results), expected)}


def there(case: Case, entry: BackendClass, exported: Any) -> tuple[Any, Any, Any]:
    """Run the class."""
    from executorch.exir import EdgeCompileConfig, to_edge

    package = backend_classes(case.book).package
    module = importlib.import_module(f"{package}/{entry.file[:-3]}".replace("/", "."))
    if case.is_edge:
        config = EdgeCompileConfig(_check_ir_validity=False, preserve_ops=list(case.preserve))
        exported = to_edge(exported, compile_config=config).exported_program()
    before = _operators(exported.graph_module)
    with case.around():
        result = case.make(getattr(module, case.class_name), exported)(exported.graph_module)
    changed = exported.graph_module if result is None else result.graph_module
    return before, _operators(changed), changed(*_arguments(exported, case.inputs))


def here(case: Case, entry: BackendClass, exported: Any) -> tuple[Any, Any, Any]:
    """Apply the rules and passes that are named for the class."""
    import exirkit
    from exirkit.passes import ApplyRules
    from exirkit.passes.contract import RegisteredPass, shipped_passes

    rules = [one for one in _rules() if one.id in entry.rules]
    if not case.is_edge:
        done = ApplyRules(rules)(exported).exported_program
        return _operators(exported.graph_module), _operators(done.graph_module), done.module()(*case.inputs)
    known = [shipped_passes()[one] for one in entry.passes]
    passes = [one.build(one.options()) if isinstance(one, RegisteredPass) else one() for one in known]
    config = exirkit.EdgeCompileConfig(_check_ir_validity=False, preserve_ops=list(case.preserve))
    edge = exirkit.to_edge(exported, compile_config=config)
    before = _operators(edge.exported_program().graph_module)
    program = edge.transform([*([ApplyRules(rules)] if rules else []), *passes]).exported_program()
    return before, _operators(program.graph_module), program.module()(*case.inputs)


@cache
def _rules() -> list[Any]:
    from exirkit.patterns import backend_books, load_book, shipped_books

    return [one for name in (*shipped_books(), *backend_books()) for one in load_book(name).rules]


def _arguments(program: Any, inputs: tuple[Any, ...]) -> list[Any]:
    given = iter(torch.utils._pytree.tree_leaves(inputs))
    found: list[Any] = []
    for spec in program.graph_signature.input_specs:
        stored = {**program.constants, **program.state_dict}
        found.append(next(given) if spec.target is None else stored[spec.target])
    return found


def _operators(module: torch.fx.GraphModule) -> Counter[str]:
    calls = [node.target for node in module.graph.nodes if node.op == "call_function"]
    schemas = [getattr(one, "_schema", None) for one in calls]
    names = [f"{one.name}.{one.overload_name or 'default'}" for one in schemas if one]
    return Counter(name.replace("aten::", "").replace("_copy.", ".").replace("_.", ".") for name in names)


def _report(before: Counter[str], after: Counter[str], seen: list[Any], expected: list[Any]) -> dict[str, Any]:
    wrong = "" if len(seen) == len(expected) else f"{len(seen)} results"
    for one, right in zip(seen, expected, strict=False):
        try:
            torch.testing.assert_close(one, right, rtol=1e-3, atol=1e-3, equal_nan=True, check_stride=False)
        except AssertionError as error:
            wrong = wrong or str(error)[:200]
    return {"before": dict(before), "went": dict(before - after), "came": dict(after - before), "wrong": wrong}


def _flat(results: Any) -> list[Any]:
    return [one for one in torch.utils._pytree.tree_leaves(results) if isinstance(one, torch.Tensor)]


def main(side: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    torch.set_num_threads(1)
    if side == "there":
        from exirkit.bridge.against import install_absent_tools

        install_absent_tools()
    for line in sys.stdin:
        torch.manual_seed(0)
        case = CASES[int(line)]
        try:
            found = compare(case, there if side == "there" else here)
        except BaseException as error:
            found = {"class": case.class_name, "error": f"{type(error).__name__}: {error}"[:400]}
        print(json.dumps(found), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
