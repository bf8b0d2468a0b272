"""The bridge to the official package: its partitioners and backends, unmodified, in our chain.

`import exirkit.bridge` needs the extra `executorch`; nothing else in exirkit imports it.
"""

from .against import AgainstBench as AgainstBench
from .against import OriginalPass as OriginalPass
from .against import compared_with_original as compared_with_original
from .against import install_absent_tools as install_absent_tools
from .against import original_pass as original_pass
from .backends import official_backend as official_backend
from .delegate_checks import check_delegates as check_delegates
from .incoming import edge_from_official as edge_from_official
from .memory_planning import OfficialMemoryPlanning as OfficialMemoryPlanning
from .official_edge import officially_lowered as officially_lowered
from .official_planners import official_planning_pass as official_planning_pass
from .operators import official_program as official_program
from .partitioners import OfficialPartitioner as OfficialPartitioner
from .porting import port_pass as port_pass
