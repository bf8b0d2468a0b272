"""The bridge to the official package: its partitioners and backends, unmodified, in our chain.

`import exirkit.bridge` needs the extra `executorch`; nothing else in exirkit imports it.
"""

from .backends import official_backend
from .delegate_checks import check_delegates
from .incoming import edge_from_official
from .memory_planning import OfficialMemoryPlanning
from .official_edge import officially_lowered
from .operators import official_program
from .partitioners import OfficialPartitioner

__all__ = [
    "OfficialMemoryPlanning",
    "OfficialPartitioner",
    "check_delegates",
    "edge_from_official",
    "official_backend",
    "official_program",
    "officially_lowered",
]
