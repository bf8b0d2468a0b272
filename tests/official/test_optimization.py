"""Optimized programs on the official runtime: the same results, no larger arena, and memory limits that hold."""

from __future__ import annotations

import pytest
import torch
from tests.official.conftest import Oracle

from exirkit import ExecutorchBackendConfig, to_edge
