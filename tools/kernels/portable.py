"""Derive the description of the portable kernel library from measurements of the wheel, and write it.

Usage: python -m tools.kernels.portable [--output FILE.yaml]

The wheel registers portable kernels, but for some thirty operators that have an optimized one; the portable kernels
of these are not in it and cannot be measured with it. Each takes the costs of another operator whose portable kernel
is in the wheel and runs the same loop, and says so in a note. `tools.kernels.costs --programs` measures a
runtime with all of them.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import yaml

from exirkit.ir import find_out_variant
from exirkit.patterns import Registry, Target, read_target
from tools.kernels.costs import UNMEASURED

LOOP_OF_TWO = "aten.maximum.default"
LOOP_OF_ONE = "aten.clamp.default"
PRODUCT = "aten.addmm.default"
KIN = {
    **dict.fromkeys(("aten.add.Tensor", "aten.sub.Tensor", "aten.mul.Tensor", "aten.div.Tensor"), LOOP_OF_TWO),
    **dict.fromkeys(("aten.add.Scalar", "aten.sub.Scalar", "aten.mul.Scalar", "aten.div.Scalar"), LOOP_OF_ONE),
    **dict.fromkeys(("aten.mm.default", "aten.bmm.default"), PRODUCT),
    "aten._log_softmax.default": "aten._softmax.default",
    "aten.gelu.default": "aten.erf.default",
    "aten.native_layer_norm.default": "aten.native_group_norm.default",
    "aten.sum.dim_IntList": "aten.mean.dim",
    "aten.le.Scalar": "aten.lt.Scalar",
    "aten.le.Tensor": "aten.lt.Tensor",
}
"""Operators with an optimized kernel in the wheel, and another one whose portable kernel has the same loop."""
OWN = {
    "aten.exp.default": "optimized kernel of the wheel, which for integers runs a plain loop and is as fast (1.9 ns)",
    "aten.where.self": "optimized kernel of the wheel; the portable one is not faster",
}
"""Operators with an optimized kernel whose own measurement is taken, and why."""
WITHOUT_KIN = ("aten.elu.default", "aten.grid_sampler_2d.default")
DOC = (
    "Portable kernel library, without optimized kernels; derived, on x86_64, from measurements of kernels that the "
    "wheel of the official runtime has. A note says where another kernel was measured."
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="write the description to this file; standard output when absent")
    options = parser.parse_args()
    text = "# Written by tools/kernels/portable.py.\n" + yaml.safe_dump(portable(), sort_keys=False)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        sys.stdout.write(text)
    return 0


def portable() -> dict[str, Any]:
    """Return the description."""
    host, library = read_target("official_host"), library_operators()
    has = {name for name in host.kernels if _out_name(name) in library}
    kernels: dict[str, dict[str, Any]] = {}
    for name in sorted(has):
        kernels[name] = _costs(host, name)
    description = {
        "target": 1,
        "name": "portable",
        "doc": DOC,
        "registry": {"base": "official_host", "lacks": sorted(_registered() - library)},
        "kernels": kernels,
    }
    Target.model_validate(description)
    return description


def library_operators() -> set[str]:
    """Return the operators of the portable library, as they stand in program files: the wheel has the list."""
    found = find_spec("executorch.kernels.portable")
    places = [] if found is None else list(found.submodule_search_locations or ())
    if not places:
        raise SystemExit("the official package is not installed: pip install 'exirkit[executorch]'")
    entries = yaml.safe_load((Path(places[0]) / "functions.yaml").read_text(encoding="utf-8"))
    names = [str(one.get("op") or one["func"].partition("(")[0]) for one in entries]
    return {name if "::" in name else f"aten::{name}" for name in names}


def _registered() -> set[str]:
    """Return the kernels of the wheel's library; the others that programs call are parts of the runtime itself."""
    return {name for name in Registry(base="official_host").conditions() if name.startswith("aten::") and "out" in name}


def _costs(host: Target, name: str) -> dict[str, Any]:
    if name in WITHOUT_KIN:
        return dict(UNMEASURED)
    own = host.kernels[name].model_dump(exclude_defaults=True)
    if name in OWN:
        return own | {"note": OWN[name]}
    if name not in KIN:
        return own
    costs = host.kernels[KIN[name]].model_dump(exclude_defaults=True, exclude={"note"})
    # Which elements are counted as broadcast depends on the operands that an operator has, not on its loop.
    if "element_ns" not in costs and "mac_ns" not in costs:
        costs["element_ns"] = costs.pop("broadcast_ns")
    return costs | {"note": f"derived: the portable kernel of {KIN[name]}, which has the same loop, was measured"}


def _out_name(operator: str) -> str:
    """Return the name of an operator in program files: `aten::add.out` for `aten.add.Tensor`."""
    namespace, packet, overload = operator.split(".")
    if namespace == "dim_order_ops":
        return f"{namespace}::{packet}.out"
    out = find_out_variant(getattr(getattr(getattr(torch.ops, namespace), packet), overload))
    return "" if out is None else str(out.name())


if __name__ == "__main__":
    sys.exit(main())
