"""The one value inference: what calls return, from the recorded values of their arguments."""

from .cached_calls import Inference, Strategy
from .fake_tensors import fake_like, infer_value, no_new_guards, no_torch_logs, view_of_copy
from .meta_kernels import has_meta_value, infer_static_value, is_faster_on_ones, meta_value
from .sampled_sizes import Ranges, Sizes, all_sizes, evaluated, sample_sizes, sorted_symbols, symbols_within, with_sizes

__all__ = [
    "Inference",
    "Ranges",
    "Sizes",
    "Strategy",
    "all_sizes",
    "evaluated",
    "fake_like",
    "has_meta_value",
    "infer_static_value",
    "infer_value",
    "is_faster_on_ones",
    "meta_value",
    "no_new_guards",
    "no_torch_logs",
    "sample_sizes",
    "sorted_symbols",
    "symbols_within",
    "view_of_copy",
    "with_sizes",
]
