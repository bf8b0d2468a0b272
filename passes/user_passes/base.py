"""The contracts of passes that people bring along: one for graph modules, one for exported programs.

exirkit's own passes follow another contract (`Pass`, edits through an editor). The classes here are the documented
ones, so that passes written for ExecuTorch run as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassBase as TorchPassBase
from torch.fx.passes.infra.pass_base import PassResult as PassResult

from exirkit.ir import ContractError, Diagnostic

PassType: TypeAlias = Callable[[GraphModule], PassResult | GraphModule | None]
"""What a `PassManager` takes: a function or object that is called with a graph module."""


def as_pass_result(result: object, graph_module: GraphModule, name: str) -> PassResult:
    """Understand what a pass returned.

    Args:
        result: A `PassResult`; a graph module, which counts as modified; or None, which stands for an edit in place.
        graph_module: The module that the pass was given.
        name: Name of the pass.

    Raises:
        ContractError: EK412, it is something else.
    """
    if result is None:
        return PassResult(graph_module, True)
    if isinstance(result, GraphModule):
        return PassResult(result, True)
    if isinstance(result, PassResult) and isinstance(result.graph_module, GraphModule):
        return PassResult(result.graph_module, bool(result.modified))
    raise ContractError(
        Diagnostic(
            code="EK412",
            message=f"pass {name} returned {type(result).__name__}",
            expected="a PassResult(graph_module, modified), a GraphModule, or None after an edit in place",
        )
    )


class PassBase(TorchPassBase):
    """A pass over a graph module: `requires`, then `call`, then `ensures`.

    Subclasses implement `call`; it may edit the module in place or return another one.
    """

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        """Run the pass between its two checks.

        Returns:
            What `call` returned. None stands for an edit in place.
        """
        self.requires(graph_module)
        result = self.call(graph_module)
        # The postcondition is about what comes out; torch's own base class hands in what went in.
        self.ensures(graph_module if result is None else result.graph_module)
        return result


@dataclass(frozen=True)
class ExportedProgramPassResult:
    """What a pass over a program returns.

    Attributes:
        exported_program: The program after the pass.
        modified: Whether it differs from the program before.
    """

    exported_program: ExportedProgram
    modified: bool


class ExportedProgramPassBase(ABC):
    """A pass over a whole program, for edits that need its parameters or its signature.

    Subclasses implement `call`; `requires` and `ensures` are optional checks that raise.
    """

    def __call__(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Check the program, run the pass, and check the program that came out.

        Raises:
            ContractError: EK412, `call` returned something other than an `ExportedProgramPassResult`.
        """
        self.requires(exported_program)
        result = self.call(exported_program)
        if not isinstance(result, ExportedProgramPassResult):
            raise ContractError(
                Diagnostic(
                    code="EK412",
                    message=f"pass {type(self).__name__} returned {type(result).__name__}",
                    expected="an ExportedProgramPassResult(exported_program, modified)",
                )
            )
        self.ensures(result.exported_program)
        return result

    @abstractmethod
    def call(self, exported_program: ExportedProgram) -> ExportedProgramPassResult:
        """Do the work of the pass."""

    def requires(self, exported_program: ExportedProgram) -> None:  # noqa: B027
        """Raise if the program is not one that the pass can take."""

    def ensures(self, exported_program: ExportedProgram) -> None:  # noqa: B027
        """Raise if the program that the pass made is not what it promises."""
