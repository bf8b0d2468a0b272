"""Names that vulture cannot see used: documented for callers, called by frameworks, or read through reflection.

vulture reads this file as code that uses them.
"""
# ruff: noqa: B018, F821
# mypy: ignore-errors

# Documented names of the ExecuTorch interface that exirkit itself does not call.
_.get_operator_delegation_dataframe
_._create_dummy_node_metadata
_.dump_executorch_program
_.get_etrecord
_.check_valid_op
_.check_additional
_.allowed_getattr_types
__instancecheck__
_.sym_shape_eval_pass
_.external_constants
_.external_mutable_weights
_.do_quant_fusion_and_const_prop
_.enable_non_cpu_memory_planning
_.live_at
_.loader_of
_.refuse

# Attributes of solvers.
_.num_workers
_.random_seed
_.max_deterministic_time

# Parameters and fields that kernels, models and files have, whatever reads them.
non_blocking
pin_memory
_.dtype_policy
_.rulebook
_.revision
_.tier
_.module_stack
_.flatbuffer
_.node_gap
_.dim_order_variant
_.is_functional
_.has_views
_.takes_scalars_as_tensors
_.REGISTERED

# Values of enumerations that the command line offers.
_.SIZE
_.PORTFOLIO
_.GREEDY
_.NAIVE

# Imported for what their modules register.
_.FAMILIES

# Oracles are found by their modules.
_.ByteRoundTrip
_.ChangingShapes
_.DialectAgreement
_.EagerRun
_.EquivalentProgram
_.ErrorBudget
_.MemoryPlan
_.MemorySanitizer
_.MetadataAgreement
_.OfficialFile
_.OfficialRuntimeRun
_.OtherMemoryPlan
_.PoisonedRun
_.RepeatedRuns
_.DeadCode
_.IdempotentPasses
_.LoweredAgain
_.MethodsInTurn
_.OtherNames
_.OperandLayouts
_.OtherOrder
_.OutputLayout
_.RuleContracts
_.TwoParts
_.TruthfulPasses
_.rung
_.refusals

# Tests: stand-ins that subclass or replace what is called by others, and layers that models only hold.
_.StandIn
_.Corpus
_.Checking
_.forget
_.screenshot
_.lower_nothing
_._edge_programs
_._tensor_data
_._emitter_output
_.never_used
_.plain_group
_.plain_layer
_.rms
_.trusts_an_input
_.hangs
_.sleeps
_.allocates
_.asks_for_too_much
_.dies

# Attributes of modules of others, for packages that are not installed.
_.get_state_dict
_.none_throws
_.__spec__

# Passes, which are found by their folder.
_.DecomposeCounting
_.InlineGradRegions
_.SymbolsToTensors
_.FreeUnbounded

# Called by the trees that `tools/selection_power` writes.
_.active

# Called by the classes of `exirkit.exir.provided`.
_.check_constraints
_.get_original_aten
_.get_partition

# A field of a report, written as JSON.
_.propagations

# Read from the YAML before the model is validated: what it names says the rest.
_.based_on

# What XNNPACK's serializer writes.
_.debug_handle

# Called by the import system.
_.get_code
