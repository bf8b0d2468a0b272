"""A bench with programs that are texts: what becomes of a seed is said by the policy of the configuration."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from exirkit.fuzz.campaigns import Analysis, CampaignConfig, Case, Checked, Found

HERE = str(Path(__file__).resolve())
BENCH = f"{HERE}:StandIn"


def config(**changes: Any) -> CampaignConfig:
    """A campaign on the stand-in; `policy` says at which seeds what happens."""
    return CampaignConfig(**{"bench": BENCH, "seeds": 40, "batch": 5, **changes})


class StandIn:
    """Fails, dies, hangs, grows or raises at the seeds that the policy lists under these names."""

    def __init__(self, config: CampaignConfig) -> None:
        self._policy: dict[str, Any] = config.policy or {}
        self._hoard: list[bytes] = []

    @staticmethod
    def quotas(config: CampaignConfig) -> dict[str, float]:
        return {"mod0": 0.3, "mod1": 0.9, "never": 0.01}

    def make(self, seed: int) -> Case[Any]:
        self._note(seed)
        if self._is("raise_in_make", seed):
            raise ValueError("no program")
        return Case(
            seed,
            seed,
            f"program(1)  # {seed % 30}",
            steps=seed % 7,
            features=frozenset({f"mod{seed % 3}", "op:aten.add.Tensor"}),
        )

    def check(self, case: Case[Any]) -> Checked:
        seed = case.seed
        time.sleep(self._policy.get("sleep", 0))
        if self._is("die", seed):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._is("hang", seed):
            time.sleep(1000)
        if self._is("raise", seed):
            raise ValueError("the oracle is wrong")
        if self._is("grow", seed):
            self._hoard.append(b"x" * (64 << 20))
        seconds = {"eager-run": 0.001, "dialect-agreement": 0.002}
        if self._is("unsupported", seed):
            return Checked(
                "unsupported", (Found(oracle="eager-run", symptom="EK432", message="m", bucket="EK432"),), seconds
            )
        if self._is("fail", seed):
            found = Found(
                oracle="dialect-agreement", symptom="values", message="1 is not 2", node="y", bucket="O3/values"
            )
            return Checked("failed", (found,), seconds, compared=2, bitwise=1)
        return Checked(
            "passed",
            (),
            seconds,
            compared=2,
            bitwise=2,
            not_run={"official-runtime": "no runtime"} if seed == 1 else {},
        )

    def analyse(self, case: Case[Any], number: int) -> Analysis:
        if self._is("die_in_analysis", case.seed):
            os.kill(os.getpid(), signal.SIGKILL)
        return Analysis(
            seed=case.seed,
            number=number,
            bucket="O3/values/MergeEqualNodes",
            culprit="MergeEqualNodes",
            reduced="program(1)",
            repro="assert 1 == 2",
        )

    def _is(self, what: str, seed: int) -> bool:
        return seed in self._policy.get(what, ())

    def _note(self, seed: int) -> None:
        """Append to a file which process has made which program."""
        if "log" in self._policy:
            with open(self._policy["log"], "a") as file:
                file.write(f"{seed} {os.getpid()}\n")
