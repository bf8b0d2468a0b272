"""What a rewrite says: rules as data, their static checks, the matcher and the engine that applies them."""

from .acceptance import acceptance_file, record_acceptance, unaccepted_rules
from .argument_view import normalized_arguments
from .book_pages import rule_pages
from .book_schema import describe_model, rulebook_schema, rulebook_schema_text
from .book_writer import write_book
from .bound_patterns import bind_pattern_to_op, bound_book
from .claimed_dialects import offer_lowering
from .compiled_rule import CompiledRule
from .conditions import Condition, compile_condition
from .defined_ops import book_of_operator
from .explanation import NodeExplanation, Obstacle, RuleExplanation, explain_rule
from .functions import language_words
from .graph_functions import GraphFacts
from .key_reference import rule_keys_page
from .model import Equivalence, Guard, OperatorDefinition, Rule, RuleBook, RuleSet
from .near_misses import NearMiss
from .operator_facts import FAMILIES, operators_with
from .operator_table import DTYPES, OperatorTable, UnknownNameError, name_of
from .operator_work import Work, work_of
from .parallel_checks import CheckRequest, CheckSettings, check_books
from .pattern_instances import INSTANCE_ERRORS, PatternInstance, near_instances, pattern_instance, takes_special_values
from .program_compiler import Builder
from .program_facts import ProgramFacts
from .program_notation import ProgramNotation, notation_of, surrounding, with_between
from .python_books import PythonBook
from .registered import BuilderTools, builder, predicate
from .rewrite_bisection import Bisection, bisect_rewrites
from .rewrite_history import RewriteHistory
from .rewrite_report import Application, Refusal, RewriteReport, RuleStatistics
from .rewriting import RewriteOptions, RuleEngine
from .rule_books import LoadedBook, book_from_rules, import_libraries, load_book, parse_book, shipped_books
from .rule_checks import BookVerdict, RuleVerdict, check_book, check_rule
from .rule_relations import Relations, relations_between, relations_of, relations_of_book
from .source_text import SourceText
from .standalone_patterns import StandalonePattern, compile_pattern
from .target_description import KernelCost, Registry, Target, read_target, shipped_targets
from .trace_front_end import TracedRule, trace_rule
from .traced_literals import TracedLiteral
from .unfusing import unfuse
from .variable_reference import variable_types_page
from .witnesses import StoredRule, WitnessBook, read_witnesses, shipped_witnesses, stored_rule, witness_text
from .yaml_source import YamlError, YamlPath, YamlSource, read_yaml

__all__ = [
    "DTYPES",
    "FAMILIES",
    "INSTANCE_ERRORS",
    "Application",
    "Bisection",
    "BookVerdict",
    "Builder",
    "BuilderTools",
    "CheckRequest",
    "CheckSettings",
    "CompiledRule",
    "Condition",
    "Equivalence",
    "GraphFacts",
    "Guard",
    "KernelCost",
    "LoadedBook",
    "NearMiss",
    "NodeExplanation",
    "Obstacle",
    "OperatorDefinition",
    "OperatorTable",
    "PatternInstance",
    "ProgramFacts",
    "ProgramNotation",
    "PythonBook",
    "Refusal",
    "Registry",
    "Relations",
    "RewriteHistory",
    "RewriteOptions",
    "RewriteReport",
    "Rule",
    "RuleBook",
    "RuleEngine",
    "RuleExplanation",
    "RuleSet",
    "RuleStatistics",
    "RuleVerdict",
    "SourceText",
    "StandalonePattern",
    "StoredRule",
    "Target",
    "TracedLiteral",
    "TracedRule",
    "UnknownNameError",
    "WitnessBook",
    "Work",
    "YamlError",
    "YamlPath",
    "YamlSource",
    "acceptance_file",
    "bind_pattern_to_op",
    "bisect_rewrites",
    "book_from_rules",
    "book_of_operator",
    "bound_book",
    "builder",
    "check_book",
    "check_books",
    "check_rule",
    "compile_condition",
    "compile_pattern",
    "describe_model",
    "explain_rule",
    "import_libraries",
    "language_words",
    "load_book",
    "name_of",
    "near_instances",
    "normalized_arguments",
    "notation_of",
    "offer_lowering",
    "operators_with",
    "parse_book",
    "pattern_instance",
    "predicate",
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
    "shipped_targets",
    "shipped_witnesses",
    "stored_rule",
    "surrounding",
    "takes_special_values",
    "trace_rule",
    "unaccepted_rules",
    "unfuse",
    "variable_types_page",
    "with_between",
    "witness_text",
    "work_of",
    "write_book",
]
