"""What traces say: times by event, operator, module and source line, and how far values are from a reference."""

from .events import Event as Event
from .events import EventBlock as EventBlock
from .events import PerfData as PerfData
from .events import TimeScale as TimeScale
from .inspector import Inspector as Inspector
from .numeric_gap import NumericalComparatorBase as NumericalComparatorBase
