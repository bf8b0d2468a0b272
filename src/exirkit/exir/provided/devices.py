"""Tensors on devices: which copies between the memories of host and device are left out."""

from __future__ import annotations

from dataclasses import dataclass

TARGET_DEVICE_COMPILE_SPEC_KEY = "target_device"
"""Key of the compile spec by which a partitioner says on which device its delegate runs, such as `cuda:0`."""


@dataclass(frozen=True)
class PropagateDeviceConfig:
    """Which copies at the border of a method the caller takes upon itself; by method name, or for all methods.

    Attributes:
        skip_h2d_for_method_inputs: Inputs that a delegate on a device reads are given in the memory of the device.
        skip_d2h_for_method_outputs: Outputs of such delegates that the method returns stay there.
    """

    skip_h2d_for_method_inputs: bool | dict[str, bool] = False
    skip_d2h_for_method_outputs: bool | dict[str, bool] = False

    def __hash__(self) -> int:
        return hash((str(self.skip_h2d_for_method_inputs), str(self.skip_d2h_for_method_outputs)))
