"""`python -m exirkit.fuzz.loader`: damage program files, and see whether loading them keeps its contract."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from exirkit.ir import DiagnosticError

from .campaign import LoaderFuzzing, State, Totals


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the options and run; exit code 0 if nothing is found, 1 if anything was, 130 on Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m exirkit.fuzz.loader", description=__doc__)
    usual = LoaderFuzzing(Path())
    parser.add_argument("--executions", type=int, default=0, metavar="N", help="so many more; none: only report")
    parser.add_argument("--state", type=Path, default=Path("loader.json"), metavar="FILE", help="go on from here")
    parser.add_argument("--workers", type=int, default=1, metavar="K", help="processes at once")
    parser.add_argument("--batch", type=int, default=usual.batch, metavar="N", help="executions of one process")
    parser.add_argument(
        "--instrumented-every", type=int, default=usual.instrumented_every, metavar="N",
        help="one in N batches is guided by branches of the code; 0: none",
    )  # fmt: skip
    parser.add_argument(
        "--instrumented-batch", type=int, default=usual.instrumented_batch, metavar="N", help="executions of those"
    )
    parser.add_argument("--replay", type=Path, nargs="+", metavar="FILE", help="load these files instead")
    given = parser.parse_args(arguments)
    if given.replay:
        return _replay(given.replay)
    fuzzing = LoaderFuzzing(
        given.state.absolute(),
        batch=given.batch,
        instrumented_batch=given.instrumented_batch,
        instrumented_every=given.instrumented_every,
    )
    try:
        state = fuzzing.run(given.executions, workers=given.workers, listen=_say)
    except KeyboardInterrupt:
        return 130
    except DiagnosticError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(report(state, fuzzing))
    return 1 if fuzzing.findings() else 0


def report(state: State, fuzzing: LoaderFuzzing) -> str:
    """Return the totals and the findings as text."""
    lines = [f"{state.executions} executions in {state.batches} batches, {state.crashes} children died"]
    lines += [_line("guided by kinds of errors", state.guided), _line("guided by branches", state.instrumented)]
    outcomes: dict[str, int] = {}
    for totals in (state.guided, state.instrumented):
        for name, count in totals.outcomes.items():
            outcomes[name] = outcomes.get(name, 0) + count
    shown = sorted(outcomes.items(), key=lambda item: (-item[1], item[0]))
    lines.append("outcomes: " + ", ".join(f"{name} {count}" for name, count in shown))
    lines.append(f"corpus: {len(list(fuzzing.directory('corpus').iterdir()))} files")
    findings = fuzzing.findings()
    lines.append(f"findings: {len(findings)}")
    lines += [f"  {path}: {finding.error}" for path, finding in findings.items()]
    return "\n".join(lines) + "\n"


def _line(what: str, totals: Totals) -> str:
    rate = totals.executions / totals.seconds if totals.seconds else 0.0
    return (
        f"{what}: {totals.executions} executions, {rate:.0f}/s for each process, "
        f"slowest {totals.slowest_s * 1e3:.0f} ms, memory +{totals.growth_nbytes >> 20} MiB"
    )


def _say(state: State) -> None:
    totals = [state.guided, state.instrumented]
    broken = sum(each.outcomes.get("broken", 0) for each in totals)
    rates = [each.executions / each.seconds if each.seconds else 0 for each in totals]
    sys.stderr.write(
        f"{state.executions} executions, {broken} broken, {state.crashes} children died, "
        f"{rates[0]:.0f}/s guided, {rates[1]:.0f}/s instrumented\n"
    )


def _replay(files: Sequence[Path]) -> int:
    from .contract import Bounds, Watch

    broken = 0
    with Watch(Bounds()) as watch:
        for path in files:
            outcome = watch.load(path.read_bytes(), lambda _name: None)
            broken += outcome.error is not None
            text = outcome.name if outcome.error is None else f"{type(outcome.error).__name__}: {outcome.error}"
            sys.stdout.write(f"{path}: {text}, {watch.nanoseconds / 1e6:.1f} ms\n")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
