"""For scale: the attention that Inductor's own patterns find; no compiler runs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from .columns import exported
from .models import Built, build


def attention_found_by_inductor(make: Callable[[], Built]) -> int | str:
    """Return how many times `torch._inductor.fx_passes.fuse_attention` fires in a model.

    The model is traced to ATen with Inductor's decompositions, as before its joint graph passes; attention that is one
    operator stays one, as Inductor leaves it.

    Returns:
        The count, or why it does not run here.
    """
    from torch._dynamo.utils import counters
    from torch._guards import detect_fake_mode
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.fx_passes import joint_graph
    from torch._inductor.virtualized import V

    model, inputs = build(make)
    try:
        module = exported(model, inputs).module()
        whole = make_fx(
            module, decomposition_table=select_decomp_table(), tracing_mode="fake", _allow_non_fake_inputs=True
        )(*inputs)
        before = counters["inductor"]["fuse_attention"]
        with V.set_fake_mode(detect_fake_mode([node.meta["val"] for node in whole.graph.nodes if "val" in node.meta])):
            joint_graph.joint_graph_passes(whole, torch.device("cpu"))
        return int(counters["inductor"]["fuse_attention"] - before)
    except Exception as error:
        return f"{type(error).__name__}"
