"""Developer tools under the names of `executorch.devtools`: bundled programs, traces and records."""

from .bundled_program.config import MethodTestCase as MethodTestCase
from .bundled_program.config import MethodTestSuite as MethodTestSuite
from .bundled_program.core import BundledProgram as BundledProgram
from .bundled_program.running import Bundle as Bundle
from .bundled_program.running import CaseResult as CaseResult
from .bundled_program.running import compared_outputs as compared_outputs
from .bundled_program.serialize import (
    deserialize_from_flatbuffer_to_bundled_program as deserialize_from_flatbuffer_to_bundled_program,
)
from .bundled_program.serialize import (
    serialize_from_bundled_program_to_flatbuffer as serialize_from_bundled_program_to_flatbuffer,
)
from .etrecord import ETRecord as ETRecord
from .etrecord import RecordedNode as RecordedNode
from .etrecord import generate_etrecord as generate_etrecord
from .etrecord import parse_etrecord as parse_etrecord
from .inspector import Event as Event
from .inspector import EventBlock as EventBlock
from .inspector import Inspector as Inspector
from .inspector import NumericalComparatorBase as NumericalComparatorBase
from .inspector import PerfData as PerfData
from .inspector import TimeScale as TimeScale
from .node_text import describe_node as describe_node
from .node_text import inspect_node as inspect_node
from .node_text import nodes_named as nodes_named
from .profile import GroupTimes as GroupTimes
from .profile import InstructionTimes as InstructionTimes
from .profile import MethodProfile as MethodProfile
from .profile import profile_of as profile_of
from .profile import trace_events as trace_events
from .tracing import debug_buffer_nbytes as debug_buffer_nbytes
