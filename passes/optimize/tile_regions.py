"""Less memory at once: parts of a program are computed band by band."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from exirkit.ir import GraphEditor
from exirkit.passes.contract import ReportingPass
from exirkit.patterns import Target, read_target

from .tiling.regions import Region, find_regions
from .tiling.rewriting import compute_in_bands


@dataclass(frozen=True)
class Tiling:
    """What was computed in bands.

    Attributes:
        regions: Regions, in order, as they were before.
        is_met: Whether the limit is met.
    """

    regions: tuple[Region, ...]
    is_met: bool


@dataclass(eq=False)
class TileRegions(ReportingPass[Tiling]):
    """Compute runs of calls in bands of their result, so that at most a given number of bytes is alive at once.

    A run of convolutions, products and elementwise calls that only its last result leaves needs no whole value between:
    a band of rows of the result follows from a band of rows of what it reads, wider by what windows overlap. What lies
    in two bands is computed twice. Runs, dims and numbers of bands are chosen such that the limit is met at the least
    cost by the target description. Where it cannot be met nothing is changed.

    Results are the same, bit for bit if products of matrices stay whole (`exact`): a product of fewer rows may add in
    another order.

    Only values of fixed sizes, row-major, in the main graph are computed in bands, by operators for which the operator
    catalogue says how (`bands`).

    Args:
        limit: Bytes of inputs and results that may be alive at once; without it nothing is done.
        target: What calls cost: the name of a shipped description, a file, or a description; `official_host` when
            absent.
        in_place: Count a result that may lie over its argument once, for planners with that option.
        exact: Leave products of matrices whole.

    Before: `%a = convolution(%x, %w, ...)`; `%b = relu(%a)`; `%c = max_pool2d_with_indices(%b, ...)`
    After: for each band `slice_copy`, `convolution`, `relu`, `max_pool2d_with_indices`; then `cat`
    """

    name = "tile-regions"
    requires = ("edge-operators", "functional")

    limit: int | None = None
    target: Any = None
    in_place: bool = False
    exact: bool = False

    def edit(self, editor: GraphEditor) -> None:
        """Replace the regions."""
        if self.limit is None:
            return
        target = self.target if isinstance(self.target, Target) else read_target(self.target or "official_host")
        found = find_regions(editor.program, self.limit, target, in_place=self.in_place, exact=self.exact)
        self.reports.append(Tiling(tuple(found or ()), found is not None))
        compute_in_bands(editor, found or ())
