"""What a target has and what it costs: data, written by a script that measures, asked by rules that choose."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from exirkit.ir import Diagnostic, Location, UsageError

from .model import Strict
from .yaml_source import YamlError, read_yaml


class KernelCost(Strict):
    """What one kernel costs.

    Attributes:
        call_ns: Nanoseconds of a call that computes nothing.
        element_ns: Nanoseconds for each element of the result.
        mac_ns: Nanoseconds for each multiplication with addition, for products of matrices and convolutions.
        note: Where the figure does not hold.
    """

    call_ns: float = Field(default=0.0, ge=0)
    element_ns: float = Field(default=0.0, ge=0)
    mac_ns: float = Field(default=0.0, ge=0)
    note: str | None = None


class Target(Strict):
    """A runtime and its kernels.

    Attributes:
        target: Version of the form: 1.
        name: Name of the target.
        kernels: Costs by operator: `aten.linear.default`.
        features: Other things that rules may ask for.
    """

    target: int = Field(ge=1, le=1)
    name: str
    doc: str | None = None
    kernels: dict[str, KernelCost] = Field(default_factory=dict)
    features: tuple[str, ...] = ()

    def has(self, capability: str) -> bool:
        """Whether the target has a kernel for an operator, or a feature."""
        return capability in self.kernels or capability in self.features

    def cost_ns(self, operator: str, *, elements: int = 0, macs: int = 0) -> float | None:
        """Return the estimated time of a call in nanoseconds, or None for an operator without a kernel."""
        known = self.kernels.get(operator)
        return None if known is None else known.call_ns + known.element_ns * elements + known.mac_ns * macs


def read_target(path: str | Path) -> Target:
    """Read a description.

    Args:
        path: YAML file.

    Raises:
        UsageError: EK209, it is none.
        OSError: It cannot be read.
    """
    file = Path(path)
    try:
        data = read_yaml(file.read_text(encoding="utf-8"), str(file)).data
        return Target.model_validate(data)
    except (YamlError, ValueError) as error:
        message = str(error).splitlines()[0]
        raise UsageError(
            Diagnostic(
                code="EK209",
                message=f"this is no target description: {message}",
                location=Location(file=str(file)),
                hint="`target: 1`, `name`, and `kernels` by operator name",
            )
        ) from error
