"""Records of a lowering (ETRecord): which nodes of the model are behind each instruction of a program."""

from .record import ETRecord as ETRecord
from .record import RecordedNode as RecordedNode
from .record import generate_etrecord as generate_etrecord
from .record import parse_etrecord as parse_etrecord
