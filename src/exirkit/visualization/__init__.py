"""What a program looks like: the map of its memory, what takes space in it, and where quantization adds noise."""

from .memory_map import ArenaMap as ArenaMap
from .memory_map import MappedValue as MappedValue
from .memory_map import MemoryMap as MemoryMap
from .memory_map import MethodMap as MethodMap
from .memory_map import MethodNames as MethodNames
from .memory_map import Step as Step
from .memory_map import ValueKind as ValueKind
from .memory_map import arena_of_values as arena_of_values
from .memory_map import live_bytes as live_bytes
from .memory_map import memory_map_of_file as memory_map_of_file
from .memory_map import memory_map_of_manager as memory_map_of_manager
from .memory_map import method_names as method_names
from .noise_page import quantization_page as quantization_page
from .page import memory_map_page as memory_map_page
from .sizes import ProgramSizes as ProgramSizes
from .sizes import SizeEntry as SizeEntry
from .sizes import program_sizes as program_sizes
from .sizes import sizes_of_manager as sizes_of_manager
from .svg import memory_map_svg as memory_map_svg
from .trace import generate_memory_trace as generate_memory_trace
from .trace import memory_map_trace as memory_map_trace
