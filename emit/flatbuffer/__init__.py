"""The flatbuffer codec: tables become bytes and bytes become tables, driven by the pydantic models of a schema."""

from .layout import Absent as Absent
from .layout import Blob as Blob
from .layout import Fault as Fault
from .layout import FieldLayout as FieldLayout
from .layout import Flag as Flag
from .layout import Float32 as Float32
from .layout import Float64 as Float64
from .layout import Int8 as Int8
from .layout import Int32 as Int32
from .layout import Int64 as Int64
from .layout import Kind as Kind
from .layout import SmallBlob as SmallBlob
from .layout import Table as Table
from .layout import TableLayout as TableLayout
from .layout import UInt8 as UInt8
from .layout import UInt32 as UInt32
from .layout import UInt64 as UInt64
from .layout import UnionTable as UnionTable
from .layout import layout_of as layout_of
from .layout import member_name as member_name
from .layout import read_blob as read_blob
from .reader import PREFIX_NBYTES as PREFIX_NBYTES
from .reader import decode as decode
from .writer import Chunk as Chunk
from .writer import EncodedTable as EncodedTable
from .writer import encode as encode
