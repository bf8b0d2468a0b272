"""What a rewrite says: rules as data, their static checks, the matcher and the engine that applies them."""

from exirkit.ir import SourceText, YamlError, YamlPath, YamlSource, describe_model, operators_with, read_yaml

from .books.backend_classes import (
    BackendClass,
    BackendClasses,
    PackageClasses,
    backend_classes,
    other_backend_classes,
)
from .books.bound_patterns import bind_pattern_to_op, bound_book
from .books.bucket_verdicts import BucketVerdict, bucket_verdicts, verdict_on
from .books.loading import (
    LoadedBook,
    book_from_rules,
    import_libraries,
    load_book,
    load_books,
    parse_book,
)
from .books.model import (
    Equivalence,
    Guard,
    OperatorDefinition,
    Rule,
    RuleBook,
    RuleSet,
    rulebook_schema,
    rulebook_schema_text,
    write_book,
)
from .books.pages import rule_keys_page, rule_pages
from .books.python_books import PythonBook
from .books.shipped import (
    backend_books,
    backend_chain_text,
    book_text,
    is_shipped,
    named_books,
    shipped_books,
)
from .books.traced_bodies import BodyExample
from .books.traced_literals import TracedLiteral, size_names
from .books.traces import TracedRule, trace_rule
from .books.unfusing import unfuse
from .checking.acceptance import acceptance_file, record_acceptance, unaccepted_rules
from .checking.checks import BookVerdict, RuleVerdict, check_book, check_rule
from .checking.near_misses import (
    INSTANCE_ERRORS,
    NearMiss,
    near_instances,
    pattern_instance,
    takes_special_values,
)
from .checking.parallel_checks import CheckRequest, CheckSettings, check_books
from .checking.pattern_programs import PatternInstance
from .checking.relations import Relations, relations_between, relations_of, relations_of_book
from .checking.witnesses import (
    StoredRule,
    WitnessBook,
    read_witnesses,
    shipped_witnesses,
    stored_rule,
    witness_text,
)
from .engine.bisection import Bisection, bisect_rewrites
from .engine.meanings import carry_out, put_attributes, with_meanings
from .engine.program_facts import ProgramFacts
from .engine.report import Application, Rejection, RewriteHistory, RewriteReport, RuleStatistics
from .engine.rewriting import RewriteOptions, RuleEngine
from .explain.explanation import NodeExplanation, RuleExplanation, explain_rule
from .explain.mismatches import Mismatch
from .explain.program_notation import ProgramNotation, notation_of, surrounding, with_between
from .functions.graph import GraphFacts
from .functions.ranges import Range, widest
from .functions.registered import BuilderTools, builder, predicate
from .functions.words import language_words
from .matching.compiled_rule import CompiledRule
from .matching.standalone_patterns import PatternMatch, StandalonePattern, compile_pattern
from .matching.state import FailureTrace
from .operators.arguments import normalized_arguments
from .operators.defined import beside_other_libraries, book_of_operator
from .operators.table import DTYPES, FAMILIES, OperatorTable, UnknownNameError, name_of
from .operators.targets import KernelCost, Registry, Target, Work, read_target, shipped_targets, work_of
from .propagation.account import NodeAccount, account_of_fact, account_of_node, fact_text
from .propagation.backward import NeededRanges, account_of_need, apply_shorter
from .propagation.declaration import Propagation
from .propagation.demands import Demands
from .propagation.domains import Constant
from .propagation.fixpoint import InferredValues, facts_of, tell_ranges
from .propagation.inference import Inference
from .propagation.loading import (
    Analysis,
    load_analysis,
    load_inference,
    load_propagation,
    parse_analysis,
    parse_propagation,
    shipped_propagations,
)
from .propagation.materialising import apply_solution
from .propagation.model import PropagationModel, Solver, propagation_schema, propagation_schema_text
from .propagation.noting import Notes, write_notes
from .propagation.problem import Conversion, Problem, Solution, problem_of
from .propagation.solvers import solve
from .propagation.trying import PropagationVerdict, check_propagation
from .proving.campaign import certificate_of, prove_rules
from .proving.campaign import unconfirmed as unconfirmed_certificate
from .proving.certificates import (
    Certificate,
    CertificateBook,
    certificate_text,
    proof_sentences,
    read_certificates,
    shipped_certificates,
    valid_certificates,
)
from .proving.standing import RULE_STATUSES, RuleStanding, RuleStatus, standings
from .syntax.attributes import Attribute, attributed_terms, attributed_variables
from .syntax.conditions import Condition, compile_condition
from .syntax.programs import Builder
from .types.reference import variable_types_page
from .types.tensors import TensorVariable

__all__ = [
    "DTYPES",
    "FAMILIES",
    "INSTANCE_ERRORS",
    "RULE_STATUSES",
    "Analysis",
    "Application",
    "Attribute",
    "BackendClass",
    "BackendClasses",
    "Bisection",
    "BodyExample",
    "BookVerdict",
    "BucketVerdict",
    "Builder",
    "BuilderTools",
    "Certificate",
    "CertificateBook",
    "CheckRequest",
    "CheckSettings",
    "CompiledRule",
    "Condition",
    "Constant",
    "Conversion",
    "Demands",
    "Equivalence",
    "FailureTrace",
    "GraphFacts",
    "Guard",
    "Inference",
    "InferredValues",
    "KernelCost",
    "LoadedBook",
    "Mismatch",
    "NearMiss",
    "NeededRanges",
    "NodeAccount",
    "NodeExplanation",
    "Notes",
    "OperatorDefinition",
    "OperatorTable",
    "PackageClasses",
    "PatternInstance",
    "PatternMatch",
    "Problem",
    "ProgramFacts",
    "ProgramNotation",
    "Propagation",
    "PropagationModel",
    "PropagationVerdict",
    "PythonBook",
    "Range",
    "Registry",
    "Rejection",
    "Relations",
    "RewriteHistory",
    "RewriteOptions",
    "RewriteReport",
    "Rule",
    "RuleBook",
    "RuleEngine",
    "RuleExplanation",
    "RuleSet",
    "RuleStanding",
    "RuleStatistics",
    "RuleStatus",
    "RuleVerdict",
    "Solution",
    "Solver",
    "SourceText",
    "StandalonePattern",
    "StoredRule",
    "Target",
    "TensorVariable",
    "TracedLiteral",
    "TracedRule",
    "UnknownNameError",
    "WitnessBook",
    "Work",
    "YamlError",
    "YamlPath",
    "YamlSource",
    "acceptance_file",
    "account_of_fact",
    "account_of_need",
    "account_of_node",
    "apply_shorter",
    "apply_solution",
    "attributed_terms",
    "attributed_variables",
    "backend_books",
    "backend_chain_text",
    "backend_classes",
    "beside_other_libraries",
    "bind_pattern_to_op",
    "bisect_rewrites",
    "book_from_rules",
    "book_of_operator",
    "book_text",
    "bound_book",
    "bucket_verdicts",
    "builder",
    "carry_out",
    "certificate_of",
    "certificate_text",
    "check_book",
    "check_books",
    "check_propagation",
    "check_rule",
    "compile_condition",
    "compile_pattern",
    "describe_model",
    "explain_rule",
    "fact_text",
    "facts_of",
    "import_libraries",
    "is_shipped",
    "language_words",
    "load_analysis",
    "load_book",
    "load_books",
    "load_inference",
    "load_propagation",
    "name_of",
    "named_books",
    "near_instances",
    "normalized_arguments",
    "notation_of",
    "operators_with",
    "other_backend_classes",
    "parse_analysis",
    "parse_book",
    "parse_propagation",
    "pattern_instance",
    "predicate",
    "problem_of",
    "proof_sentences",
    "propagation_schema",
    "propagation_schema_text",
    "prove_rules",
    "put_attributes",
    "read_certificates",
    "read_target",
    "read_witnesses",
    "read_yaml",
    "record_acceptance",
    "relations_between",
    "relations_of",
    "relations_of_book",
    "rule_keys_page",
    "rule_pages",
    "rulebook_schema",
    "rulebook_schema_text",
    "shipped_books",
    "shipped_certificates",
    "shipped_propagations",
    "shipped_targets",
    "shipped_witnesses",
    "size_names",
    "solve",
    "standings",
    "stored_rule",
    "surrounding",
    "takes_special_values",
    "tell_ranges",
    "trace_rule",
    "unaccepted_rules",
    "unconfirmed_certificate",
    "unfuse",
    "valid_certificates",
    "variable_types_page",
    "verdict_on",
    "widest",
    "with_between",
    "with_meanings",
    "witness_text",
    "work_of",
    "write_book",
    "write_notes",
]
