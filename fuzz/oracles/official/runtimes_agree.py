"""The same file on both runtimes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from exirkit.emit import read_program
from exirkit.fuzz.compilers import Compiler, ExirkitCompiler, LoweringTrace
from exirkit.fuzz.examination import Examination, Failure, NotRunError, difference
from exirkit.fuzz.oracles.oracle import Oracle
from exirkit.fuzz.programs import Call, Method, Ref, build, names_in
from exirkit.ir import DiagnosticError
from exirkit.runtime_ref import Runtime, Substitution, Verification

from .official_runtime import TIMEOUT_S, findings_of_kernels, official_runtime

OPEN_CALLS = frozenset(
    [
        "mm",
        "bmm",
        "addmm",
        "baddbmm",
        "matmul",
        "linear",
        "dot",
        "mv",
        "convolution",
        "conv1d",
        "conv2d",
        "sum",
        "mean",
        "var",
        "std",
        "var_mean",
        "prod",
        "cumsum",
        "norm",
        "linalg_vector_norm",
        "native_layer_norm",
        "layer_norm",
        "native_group_norm",
        "group_norm",
        "batch_norm",
        "_native_batch_norm_legit_no_training",
        "native_batch_norm",
        "avg_pool1d",
        "avg_pool2d",
        "adaptive_avg_pool2d",
        "_adaptive_avg_pool2d",
        "softmax",
        "_softmax",
        "log_softmax",
        "_log_softmax",
        "logsumexp",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "sin",
        "cos",
        "tan",
        "sinh",
        "cosh",
        "tanh",
        "asin",
        "acos",
        "atan",
        "asinh",
        "acosh",
        "atanh",
        "atan2",
        "sigmoid",
        "erf",
        "erfc",
        "pow",
        "rsqrt",
        "gelu",
        "silu",
        "elu",
        "celu",
        "selu",
        "mish",
        "softplus",
        "hardsigmoid",
        "hardswish",
        "reciprocal",
        "div",
        "index_put",
        "scatter_add",
        "index_add",
        "upsample_bilinear2d",
        "addcdiv",
        "addcmul",
    ]
)
"""Operators whose last bits no specification says: sums in any order, and functions of mathematical libraries."""

_ULPS = 64.0
"""Units in the last place of the largest element, operand or product by which two kernels may differ."""


class RuntimesAgree(Oracle):
    """Both runtimes give the same bits for the same file.

    Where they do not, the last bits of a sum or of a function must explain it: the results of such calls are made
    outputs, and our interpreter is run again with what the official runtime computed for them. Each of them may differ
    by a few units in the last place from what our kernel makes of the same operands, and everything else must be the
    same to the bit.
    """

    name = "runtimes-agree"
    title = "the official runtime and ours give the same bits"
    cost = 126
    is_default = False
    needs = ("official wheel", "file", "results")
    suspects = ("earlier oracles", "runtimes")

    def check(self, examination: Examination) -> Iterator[Failure]:
        """Yield what differs without an explanation."""
        expected = findings_of_kernels(examination.lowering.data)
        if expected:
            raise NotRunError(f"the official runtime does not claim to run it: {expected[0].message}"[:200])
        for method in examination.methods:
            theirs = _official(examination.lowering.data, method, examination.inputs[method])
            ours = [one.outputs for one in examination.results[method]]
            found = _first_difference(theirs, ours)
            if found is None:
                examination.comparisons.bitwise += sum(len(one) for one in ours)
                continue
            why = _unexplained(examination, method, theirs)
            if why is None:
                examination.comparisons.tolerant += sum(len(one) for one in ours)
                continue
            index, place, (kind, text) = found
            message = f"official runtime instead of ours: {method}, run {index + 1}, output {place}: {text}; {why}"
            details = {"method": method, "run": index}
            yield Failure(self.name, f"output {kind}", message, "runtimes", f"output {place}", details)
            return


def _official(data: bytes, method: str, inputs: Sequence[Sequence[Any]]) -> list[list[Any]]:
    answer = official_runtime().run(data, [list(one) for one in inputs], method=method, timeout_s=TIMEOUT_S)
    if answer.failure is not None:
        raise NotRunError("the official runtime does not run the file; the oracle official-runtime asks why")
    return answer.outputs


def _first_difference(
    theirs: Sequence[Sequence[Any]], ours: Sequence[Sequence[Any]]
) -> tuple[int, int, tuple[str, str]] | None:
    """Return run, output and difference of the first output that differs; 0.0 and -0.0 count as equal."""
    for index, (one, other) in enumerate(zip(theirs, ours, strict=True)):
        for place, (got, wanted) in enumerate(zip(one, other, strict=False)):
            found = difference(got, wanted, is_signed_zero_free=True)
            if found is not None:
                return index, place, found
    return None


def _unexplained(examination: Examination, method: str, theirs: Sequence[Sequence[Any]]) -> str | None:
    """Return why the last bits of sums and functions do not explain what differs, or None if they do."""
    entry = next(one for one in examination.program.methods if one.name == method)
    names = _open_values(entry)
    if not names:
        return "no call leaves its last bits open"
    why: str | None = None
    # Rules of higher levels may compute a result twice, once for the output and once for what else reads it.
    for compiler in _plainer(examination.compiler):
        why = _unexplained_by(examination, compiler, entry, names, theirs)
        if why is None:
            break
    return why


def _plainer(compiler: Compiler) -> list[Compiler]:
    """Return compilers with which a reshaped result has memory of its own: of the same level, and of level 0."""
    if not isinstance(compiler, ExirkitCompiler):
        return [compiler]
    plain = replace(compiler, remove_view_copy=False, in_place=False)
    return [plain] if plain.level == 0 else [plain, replace(plain, level=0)]


def _unexplained_by(
    examination: Examination, compiler: Compiler, entry: Method, names: Sequence[str], theirs: Sequence[Sequence[Any]]
) -> str | None:
    """Do what `_unexplained` does with one compiler.

    Args:
        examination: The program.
        compiler: Lowers the program with more outputs.
        entry: The method.
        names: Its results whose last bits are open.
        theirs: What the official runtime returned for the file that is examined.
    """
    method = entry.name
    wider = _with_outputs(entry, names)
    try:
        data = _lowered(examination, compiler, entry, wider)
    except DiagnosticError as error:
        return f"with the results of sums as outputs, it is rejected: {error.code}"
    inputs = examination.inputs[method]
    shown = _official(data, method, inputs)
    count = len(entry.outputs)
    at = [wider.outputs.index(Ref(name)) for name in names]
    if _first_difference([one[:count] for one in shown], theirs) is not None:
        return "with the results of sums as outputs, the official runtime computes something else"
    loaded = Runtime.get().load_program(data, verification=Verification.Minimal).load_method(method)
    places = _places(data, method)
    for index, (given, wanted) in enumerate(zip(inputs, shown, strict=True)):
        substitution = Substitution({places[one]: wanted[one] for one in at})
        copies = [one.clone() if isinstance(one, torch.Tensor) else one for one in given]
        made = loaded.execute(copies, substitution=substitution)
        far = _too_far(substitution)
        if far is not None:
            return far
        found = _first_difference([wanted[:count]], [made[:count]])
        if found is not None:
            return f"with the official results of sums, run {index + 1}, output {found[1]} still differs: {found[2][1]}"
    return None


def _open_values(method: Method) -> list[str]:
    """Return the names of the floats whose last bits kernels may choose; those in bodies are out of reach."""
    return [name for call in method.steps if _is_open(call) for name in call.results if name is not None]


def _is_open(call: Call) -> bool:
    parts = call.op.split(".")
    return len(parts) > 1 and parts[0] == "aten" and parts[1] in OPEN_CALLS


def _with_outputs(method: Method, names: Sequence[str]) -> Method:
    returned = set(names_in(method.outputs))
    return replace(method, outputs=(*method.outputs, *(Ref(name) for name in names if name not in returned)))


def _lowered(examination: Examination, compiler: Compiler, method: Method, wider: Method) -> bytes:
    """Lower the program with more outputs."""
    methods = tuple(wider if one is method else one for one in examination.program.methods)
    trace = LoweringTrace(has_state=examination.trace.has_state)
    return compiler.lower(build(replace(examination.program, methods=methods)), trace).data


def _places(data: bytes, method: str) -> list[int]:
    """Return the indices of the outputs of a method in its value table."""
    plan = next(one for one in read_program(data).program.execution_plan if one.name == method)
    return list(plan.outputs)


def _too_far(substitution: Substitution) -> str | None:
    """Return which value differs by more than last bits from what our kernel makes of the same operands."""
    for index, ours in substitution.computed.items():
        theirs = substitution.given[index]
        if not ours.is_floating_point() or ours.numel() == 0:
            if not torch.equal(ours, theirs):
                return f"value {index} is not a float and differs"
            continue
        finite = ours.isfinite() & theirs.isfinite()
        if not torch.equal(ours[~finite].nan_to_num(7.0), theirs[~finite].nan_to_num(7.0)):
            return f"value {index} differs where it is not finite"
        gaps = (ours - theirs)[finite].abs()
        # Terms of a sum may be products, and larger than the sum.
        first, second = (*substitution.operands[index], 0.0, 0.0)[:2]
        if not gaps.numel():
            continue
        most = max(first, first * second, float(ours[finite].abs().max()))
        if float(gaps.max()) > _ULPS * torch.finfo(ours.dtype).eps * most:
            return f"value {index} differs by {float(gaps.max()):.3g}, which is more than the last bits of a sum"
    return None
