"""Official backends other than XNNPACK whose ahead-of-time part needs nothing but the wheel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Other:
    """A backend, and how to make its partitioner.

    Attributes:
        module: Module of the partitioner, in `executorch.backends`.
        partitioner: Name of its class.
        backend: What its delegates are for.
        choices: Arguments of the partitioner.
    """

    module: str
    partitioner: str
    backend: str
    choices: dict[str, Any] = field(default_factory=dict)


OTHERS = {
    "vulkan": Other("vulkan.partitioner.vulkan_partitioner", "VulkanPartitioner", "VulkanBackend"),
    "coreml": Other("apple.coreml.partition", "CoreMLPartitioner", "CoreMLBackend"),
    "native": Other("native.partitioner", "NativePartitioner", "NativeBackend", {"external_constants_tag": None}),
    # By default it puts weights in a data file.
    "native-data-file": Other("native.partitioner", "NativePartitioner", "NativeBackend"),
    "example": Other("example.example_partitioner", "ExamplePartitioner", "ExampleBackend"),
}
