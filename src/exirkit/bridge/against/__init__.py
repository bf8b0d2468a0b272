"""Passes of the official package beside rules: the same programs go through both, and a campaign compares them."""

from .absent_tools import install_absent_tools as install_absent_tools
from .bench import AgainstBench as AgainstBench
from .differences import compared_with_original as compared_with_original
from .original_passes import OriginalPass as OriginalPass
from .original_passes import original_pass as original_pass
