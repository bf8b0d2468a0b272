"""A change that changes nothing."""

from __future__ import annotations

from exirkit.fuzz.mutants import Mutant

SQUARE = Mutant(
    id="square",
    part="pass",
    culprits=("remove-noops",),
    doc="The same in other words.",
    module="passes.to_edge.edge_operators",
    function="_is_identity_permutation",
    old="list(range(len(dims)))",
    new="[*range(len(dims))]",
    program="""program(1)

def forward(x: "f32[3, 3]"):
    y = aten.permute_copy.default(x, [1, 0])
    return y

run("forward", x=dyadic(1))
""",
)
