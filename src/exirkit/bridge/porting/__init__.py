"""Rules from passes: what a pass does to programs is observed, and becomes the beginning of a book."""

from .observing import observe as observe
from .porting import PortedBook as PortedBook
from .porting import PortedRule as PortedRule
from .porting import port_pass as port_pass
