"""The tables of a bundled program under the names that they have in the official package."""

from exirkit.emit import BundledMethodTestCase as BundledMethodTestCase
from exirkit.emit import BundledMethodTestSuite as BundledMethodTestSuite
from exirkit.emit import BundledProgramTable as BundledProgram
from exirkit.emit import BundledTensor as Tensor
from exirkit.emit import BundledValue as Value

__all__ = ["BundledMethodTestCase", "BundledMethodTestSuite", "BundledProgram", "Tensor", "Value"]
