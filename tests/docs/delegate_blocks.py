"""The Python blocks of the ExecuTorch documents about delegates, partitioners and debugging of delegates.

The code is what users of the official package have in their files; only imports are changed. Placeholders of the
documents (`...`) are filled in with what the text around them says. The flows run in one namespace, in this order.
"""

from __future__ import annotations

LOWER_WHOLE = """
from exirkit import to_backend
import exirkit as exir
import torch
from torch.export import export
from exirkit import to_edge

class LowerableSubModel(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.sin(x)

to_be_lowered = LowerableSubModel()
example_input = (torch.ones(1), )
to_be_lowered_exir_submodule = to_edge(export(to_be_lowered, example_input))

from exirkit import (
    BackendWithCompilerDemo,
)
lowered_module = to_backend('BackendWithCompilerDemo', to_be_lowered_exir_submodule.exported_program(), [])
"""

SAVE = """
save_path = "delegate.pte"
with open(save_path, "wb") as f:
    f.write(lowered_module.buffer())
"""

COMPOSE = """
class NonLowerableSubModel(torch.nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.bias = bias

    def forward(self, a, b):
        return torch.add(torch.add(a, b), self.bias)


class CompositeModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.non_lowerable = NonLowerableSubModel(torch.ones(1) * 0.3)
        self.lowerable = lowered_module

    def forward(self, x):
        a = self.lowerable(x)
        b = self.lowerable(a)
        ret = self.non_lowerable(a, b)
        return a, b, ret

composite_model = CompositeModel()
model_inputs = (torch.ones(1), )
exec_prog = to_edge(export(composite_model, model_inputs)).to_executorch()

save_path = "delegate.pte"
with open(save_path, "wb") as f:
    f.write(exec_prog.buffer)
"""

PARTITION = """
import exirkit as exir
from exirkit import to_backend
from exirkit import AddMulPartitionerDemo
from exirkit import (
    EdgeProgramManager,
    to_edge,
)
from torch.export import export
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x, y):
        x = x + y
        x = x * y
        x = x - y
        x = x / y
        x = x * y
        x = x + y
        return x

model = Model()
model_inputs = (torch.randn(1, 3), torch.randn(1, 3))
core_aten_ep = export(model, model_inputs)
edge: EdgeProgramManager = to_edge(core_aten_ep)
edge = edge.to_backend(AddMulPartitionerDemo())
exec_prog = edge.to_executorch()

save_path = "delegate.pte"
with open(save_path, "wb") as f:
    f.write(exec_prog.buffer)
"""

# The two partitioners and the two backends that the document only names.
TWO_BACKENDS = """
from exirkit import (
    BackendDetails, CapabilityBasedPartitioner, DelegationSpec, Partitioner, PartitionResult, PreprocessResult,
    ReferenceBackend,
)
from exirkit.runtime_ref import Runtime
from torch.fx.passes.operator_support import any_chain, OperatorSupportBase


class Backend1(ReferenceBackend):
    pass


class Backend2(ReferenceBackend):
    pass


registry = Runtime.get().backend_registry
for backend in (Backend1, Backend2):
    registry.register(backend.__name__, registry.loader_of("ReferenceBackend"))


class Named(OperatorSupportBase):
    def __init__(self, *parts):
        self.parts = parts

    def is_node_supported(self, submodules, node):
        return node.op == "call_function" and any(part in str(node.target) for part in self.parts)


class backend_1_parititioner(Partitioner):
    def partition(self, exported_program):
        tags = {}
        found = CapabilityBasedPartitioner(exported_program.graph_module, Named("sub", "div"), True)
        for one in found.propose_partitions():
            tags[f"backend1_tag{one.id}"] = DelegationSpec("Backend1", [])
            for node in one.nodes:
                node.meta["delegation_tag"] = f"backend1_tag{one.id}"
        return PartitionResult(exported_program, tags)


backend_2_parititioner = AddMulPartitionerDemo
exported_program = to_edge(core_aten_ep).exported_program()

exported_program_backend_1 = to_backend(exported_program, backend_1_parititioner())
exported_program_backend_1_and_2 = to_backend(exported_program_backend_1, backend_2_parititioner())
"""

ONE_PARTITIONER_FOR_TWO = '''
class Backend_1_2_Partitioner(Partitioner):
    """
    Partitions all add/mul nodes regardless of order for Backend2
    """

    def __init__(self) -> None:
        super().__init__()
        self.delegation_spec_1 = DelegationSpec("Backend1", [])
        self.delegation_spec_2 = DelegationSpec("Backend2", [])
        self.partition_tags = {}

    def partition(
        self, exported_program
    ):
        # Tag all nodes in the first partiton to backend 1
        for partitioner_1 in CapabilityBasedPartitioner(
            exported_program.graph_module, Named("sub", "div"), True
        ).propose_partitions():
            for node in partitioner_1.nodes:
                delegation_tag = f"backend1_tag{partitioner_1.id}"
                node.meta["delegation_tag"] = delegation_tag
                self.partition_tags[delegation_tag] = self.delegation_spec_1

        # Tag all nodes in the first partiton to backend 2
        for partitioner_2 in CapabilityBasedPartitioner(
            exported_program.graph_module, any_chain(Named("add"), Named("mul")), True
        ).propose_partitions():
            for node in partitioner_2.nodes:
                delegation_tag = f"backend2_tag{partitioner_2.id}"
                node.meta["delegation_tag"] = delegation_tag
                self.partition_tags[delegation_tag] = self.delegation_spec_2
        return PartitionResult(exported_program, self.partition_tags)


delegated = to_edge(core_aten_ep).to_backend(Backend_1_2_Partitioner())
'''

MAPPING_BUILDERS = """
from exirkit import DelegateMappingBuilder

# Manual Identifiers, Default
builder = DelegateMappingBuilder(generated_identifiers=False)

# Generated Identifiers
builder = DelegateMappingBuilder(generated_identifiers=True)
"""

CAPABILITIES = """
import torch
from exirkit import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import any_chain, OperatorSupportBase

class AddMulOperatorSupport(OperatorSupportBase):
    def is_node_supported(self, submodules, node: torch.fx.Node) -> bool:
        return node.op == "call_function" and node.target in [
            torch.ops.aten.add.Tensor, torch.ops.aten.mul.Tensor,
        ]

op_support = AddMulOperatorSupport()
capability_partitioner = CapabilityBasedPartitioner(
    graph_module,
    op_support,
)

# Returns a list of partitions (list of nodes that belong in each partition)
partition_list = capability_partitioner.propose_partitions()
"""

SUBGRAPHS = """
from torch.fx.passes.utils.matcher_utils import SubgraphMatcher

class LargeModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self._weight = torch.nn.Parameter(torch.ones(3, 3))
        self._bias = torch.nn.Parameter(torch.ones(3, 3))

    def forward(self, x):
        return torch.ops.aten.addmm.default(self._bias, x, self._weight)

large_inputs = (torch.randn(3, 3),)
large_model_graph = to_edge(export(LargeModel(), large_inputs)).exported_program().graph_module.graph

class PatternModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self._weight_1 = torch.nn.Parameter(torch.ones(5, 5))
        self._bias_1 = torch.nn.Parameter(torch.ones(5, 5))

    def forward(self, x):
        return torch.ops.aten.addmm.default(self._bias_1, x, self._weight_1)

pattern_inputs = (torch.randn(5, 5),)
pattern_graph = to_edge(export(PatternModel(), pattern_inputs)).exported_program().graph_module.graph

subgraph_matcher = SubgraphMatcher(pattern_graph)
match_result = subgraph_matcher.match(large_model_graph)
"""

SOURCES = """
from torch.fx.passes.utils.source_matcher_utils import get_source_partitions

class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear1 = torch.nn.Linear(3, 3)
        self.relu = torch.nn.ReLU()
        self.linear2 = torch.nn.Linear(3, 5)

    def forward(self, x):
        x = self.linear1(x)
        x = self.linear1(x)
        x = self.relu(x)
        x = self.linear2(x)
        return x

inputs = (torch.randn(3, 3),)
edge_graph = to_edge(export(M(), inputs)).exported_program().graph_module.graph
print(edge_graph)

module_partitions = get_source_partitions(edge_graph, [torch.nn.Linear, torch.nn.ReLU])
print(module_partitions)
"""
