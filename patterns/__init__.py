"""What a rewrite says: rules as data, their static checks, the matcher and the engine that applies them."""

from typing import TYPE_CHECKING

from exirkit.ir import (
    SourceText,
    YamlError,
    YamlPath,
    YamlSource,
    describe_model,
    late_names,
    operators_with,
    read_yaml,
)

from .books.backend_classes import (
    BackendClass,
    BackendClasses,
    PackageClasses,
    backend_classes,
    other_backend_classes,
)
from .books.bound_patterns import bind_pattern_to_op, bound_book
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
from .books.unfusing import unfuse
from .engine.bisection import Bisection, bisect_rewrites
from .engine.cost_choice import LEAST_SHARE
from .engine.meanings import carry_out, put_attributes, with_meanings
from .engine.program_facts import ProgramFacts
from .engine.report import Application, Rejection, RewriteHistory, RewriteReport, RuleStatistics
from .engine.rewriting import RewriteOptions, RuleEngine
from .explain.mismatches import Mismatch
from .explain.program_notation import ProgramNotation, notation_of, surrounding, with_between
from .functions.graph import GraphFacts
from .functions.ranges import Range, widest
from .functions.registered import BuilderTools, builder, predicate
from .functions.words import language_words
from .matching.compiled_rule import CompiledRule, chosen_by_cost
from .matching.standalone_patterns import PatternMatch, StandalonePattern, compile_pattern
from .matching.state import FailureTrace
from .operators.arguments import normalized_arguments
from .operators.defined import beside_other_libraries, book_of_operator, defined_beside, registered_beside
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
    ELEMENT_RANGES,
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
from .syntax.attributes import Attribute, attributed_terms, attributed_variables
from .syntax.conditions import Condition, compile_condition
from .syntax.programs import Builder
from .types.tensors import TensorVariable

if TYPE_CHECKING:
    from .books.bucket_verdicts import BucketVerdict as BucketVerdict
    from .books.bucket_verdicts import bucket_verdicts as bucket_verdicts
    from .books.bucket_verdicts import verdict_on as verdict_on
    from .books.pages import rule_keys_page as rule_keys_page
    from .books.pages import rule_pages as rule_pages
    from .books.traces import TracedRule as TracedRule
    from .books.traces import trace_rule as trace_rule
    from .checking.acceptance import acceptance_file as acceptance_file
    from .checking.acceptance import record_acceptance as record_acceptance
    from .checking.acceptance import unaccepted_rules as unaccepted_rules
    from .checking.checks import BookVerdict as BookVerdict
    from .checking.checks import RuleVerdict as RuleVerdict
    from .checking.checks import check_book as check_book
    from .checking.checks import check_rule as check_rule
    from .checking.near_misses import INSTANCE_ERRORS as INSTANCE_ERRORS
    from .checking.near_misses import NearMiss as NearMiss
    from .checking.near_misses import near_instances as near_instances
    from .checking.near_misses import pattern_instance as pattern_instance
    from .checking.near_misses import takes_special_values as takes_special_values
    from .checking.numeric_agreement import tolerance as tolerance
    from .checking.parallel_checks import CheckRequest as CheckRequest
    from .checking.parallel_checks import CheckSettings as CheckSettings
    from .checking.parallel_checks import check_books as check_books
    from .checking.pattern_programs import PatternInstance as PatternInstance
    from .checking.relations import Relations as Relations
    from .checking.relations import relations_between as relations_between
    from .checking.relations import relations_of as relations_of
    from .checking.relations import relations_of_book as relations_of_book
    from .checking.witnesses import StoredRule as StoredRule
    from .checking.witnesses import WitnessBook as WitnessBook
    from .checking.witnesses import read_witnesses as read_witnesses
    from .checking.witnesses import shipped_witnesses as shipped_witnesses
    from .checking.witnesses import stored_rule as stored_rule
    from .checking.witnesses import witness_text as witness_text
    from .discovery.rules import Discovered as Discovered
    from .discovery.rules import Discovery as Discovery
    from .discovery.rules import discovered_book_text as discovered_book_text
    from .discovery.vocabulary import Vocabulary as Vocabulary
    from .discovery.vocabulary import read_vocabulary as read_vocabulary
    from .discovery.vocabulary import shipped_vocabularies as shipped_vocabularies
    from .explain.explanation import NodeExplanation as NodeExplanation
    from .explain.explanation import RuleExplanation as RuleExplanation
    from .explain.explanation import explain_rule as explain_rule
    from .propagation.trying import PropagationVerdict as PropagationVerdict
    from .propagation.trying import check_propagation as check_propagation
    from .proving.campaign import certificate_of as certificate_of
    from .proving.campaign import prove_rules as prove_rules
    from .proving.campaign import unconfirmed_certificate as unconfirmed_certificate
    from .proving.certificates import Certificate as Certificate
    from .proving.certificates import CertificateBook as CertificateBook
    from .proving.certificates import certificate_text as certificate_text
    from .proving.certificates import proof_sentences as proof_sentences
    from .proving.certificates import read_certificates as read_certificates
    from .proving.certificates import shipped_certificates as shipped_certificates
    from .proving.certificates import valid_certificates as valid_certificates
    from .proving.standing import RULE_STATUSES as RULE_STATUSES
    from .proving.standing import RuleStanding as RuleStanding
    from .proving.standing import RuleStatus as RuleStatus
    from .proving.standing import standings as standings
    from .types.reference import variable_types_page as variable_types_page

__all__ = [
    "DTYPES",
    "ELEMENT_RANGES",
    "FAMILIES",
    "INSTANCE_ERRORS",
    "LEAST_SHARE",
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
    "Discovered",
    "Discovery",
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
    "Vocabulary",
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
    "chosen_by_cost",
    "compile_condition",
    "compile_pattern",
    "defined_beside",
    "describe_model",
    "discovered_book_text",
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
    "read_vocabulary",
    "read_witnesses",
    "read_yaml",
    "record_acceptance",
    "registered_beside",
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
    "shipped_vocabularies",
    "shipped_witnesses",
    "size_names",
    "solve",
    "standings",
    "stored_rule",
    "surrounding",
    "takes_special_values",
    "tell_ranges",
    "tolerance",
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

if not TYPE_CHECKING:
    # What checks, proves and explains rules is not needed to apply them.
    __getattr__ = late_names(
        __name__,
        {
            "BookVerdict": "checking.checks",
            "BucketVerdict": "books.bucket_verdicts",
            "Certificate": "proving.certificates",
            "CertificateBook": "proving.certificates",
            "CheckRequest": "checking.parallel_checks",
            "CheckSettings": "checking.parallel_checks",
            "INSTANCE_ERRORS": "checking.near_misses",
            "Discovered": "discovery.rules",
            "Discovery": "discovery.rules",
            "Vocabulary": "discovery.vocabulary",
            "discovered_book_text": "discovery.rules",
            "read_vocabulary": "discovery.vocabulary",
            "shipped_vocabularies": "discovery.vocabulary",
            "NearMiss": "checking.near_misses",
            "NodeExplanation": "explain.explanation",
            "PatternInstance": "checking.pattern_programs",
            "PropagationVerdict": "propagation.trying",
            "RULE_STATUSES": "proving.standing",
            "Relations": "checking.relations",
            "RuleExplanation": "explain.explanation",
            "RuleStanding": "proving.standing",
            "RuleStatus": "proving.standing",
            "RuleVerdict": "checking.checks",
            "StoredRule": "checking.witnesses",
            "TracedRule": "books.traces",
            "WitnessBook": "checking.witnesses",
            "acceptance_file": "checking.acceptance",
            "bucket_verdicts": "books.bucket_verdicts",
            "certificate_of": "proving.campaign",
            "certificate_text": "proving.certificates",
            "check_book": "checking.checks",
            "check_books": "checking.parallel_checks",
            "check_propagation": "propagation.trying",
            "check_rule": "checking.checks",
            "explain_rule": "explain.explanation",
            "near_instances": "checking.near_misses",
            "pattern_instance": "checking.near_misses",
            "proof_sentences": "proving.certificates",
            "prove_rules": "proving.campaign",
            "read_certificates": "proving.certificates",
            "read_witnesses": "checking.witnesses",
            "record_acceptance": "checking.acceptance",
            "relations_between": "checking.relations",
            "relations_of": "checking.relations",
            "relations_of_book": "checking.relations",
            "rule_keys_page": "books.pages",
            "rule_pages": "books.pages",
            "shipped_certificates": "proving.certificates",
            "shipped_witnesses": "checking.witnesses",
            "standings": "proving.standing",
            "stored_rule": "checking.witnesses",
            "takes_special_values": "checking.near_misses",
            "tolerance": "checking.numeric_agreement",
            "trace_rule": "books.traces",
            "unaccepted_rules": "checking.acceptance",
            "unconfirmed_certificate": "proving.campaign",
            "valid_certificates": "proving.certificates",
            "variable_types_page": "types.reference",
            "verdict_on": "books.bucket_verdicts",
            "witness_text": "checking.witnesses",
        },
    )
