"""The report of a lowering: the program after every pass, with what changed, on one page."""

from .document import ReportOptions as ReportOptions
from .document import file_document as file_document
from .document import report_document as report_document
from .lowering import versions as versions
from .lowering import write_report as write_report
from .model_explorer import model_explorer_graphs as model_explorer_graphs
from .model_explorer import model_explorer_node_data as model_explorer_node_data
from .overlays import Measured as Measured
from .overlays import read_overlay as read_overlay
from .overlays import times_of_trace as times_of_trace
from .page import report_page as report_page
from .recording import LoweringRecord as LoweringRecord
from .recording import RecordedStage as RecordedStage
from .recording import StageChanges as StageChanges
from .recording import changes_between as changes_between
