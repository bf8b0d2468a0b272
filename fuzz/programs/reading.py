"""Reading the printed form of programs; the text is never run."""

from __future__ import annotations

import ast
import warnings

from exirkit.ir import Diagnostic, Location, ModelError

from .checking import findings_of
from .expressions import DEEPEST, ExpressionReader
from .language import HIGHER_ORDER, STORED, is_name
from .model import Argument, Body, Call, Input, Method, Program, Ref, Run, Stored, Symbol

LONGEST_TEXT = 1_000_000
"""Characters of the longest text that is read."""


def parse_program(text: str, *, file: str | None = None) -> Program:
    """Read a program.

    Args:
        text: What `program_text` printed, or what was written by hand in the same language.
        file: Where it comes from, for diagnostics.

    Raises:
        ModelError: EK801 to EK807 and EK810, with line and column: it is not a program.
    """
    return _ProgramReader(text, file).read()


class _ProgramReader(ExpressionReader):
    def __init__(self, text: str, file: str | None) -> None:
        super().__init__(text, file)
        self.text = text
        self.places: dict[int, ast.AST] = {}
        self.stored: list[Stored] = []
        self.declared: list[Symbol] = []
        self.methods: list[Method] = []
        self.runs: list[Run] = []
        self.marks: dict[str, list[str]] = {"inexact": [], "undecided": []}

    def read(self) -> Program:
        statements = self._parsed()
        if not statements or ast.unparse(statements[0]) != "program(1)":
            raise self.error("EK801", statements[0] if statements else ast.Pass(), "a program begins with `program(1)`")
        for statement in statements[1:]:
            self._statement(statement)
        program = Program(
            tuple(self.declared),
            tuple(self.stored),
            tuple(self.methods),
            tuple(self.runs),
            frozenset(self.marks["inexact"]),
            frozenset(self.marks["undecided"]),
        )
        # What belongs to the whole program is complained about at its beginning.
        self.places[id(program)] = statements[0]
        findings = findings_of(program)
        if findings:
            raise ModelError(
                [self.finding(one.code, self.places[id(one.subject)], one.message, hint=one.hint) for one in findings]
            )
        return program

    def _parsed(self) -> list[ast.stmt]:
        if len(self.text) > LONGEST_TEXT:
            raise self.error("EK807", ast.Pass(), f"the text has more than {LONGEST_TEXT} characters")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return ast.parse(self.text).body
        except SyntaxError as error:
            line, column = error.lineno or 1, max(error.offset or 1, 1)
            text = self.lines[line - 1][:400] if line <= len(self.lines) else ""
            place = Location(file=self.file, line=line, column=column, text=text, span=1)
            raise ModelError(Diagnostic(code="EK801", message=f"not readable: {error.msg}", location=place)) from None
        except (ValueError, RecursionError, MemoryError):
            message = "not readable: nested too deep, or with characters that no text has"
            raise self.error("EK807", ast.Pass(), message) from None

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.FunctionDef):
            self._method(node)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
            self._declaration(node.targets[0], node.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            self._directive(node.value)
        else:
            raise self.error("EK801", node, "a program has declarations, methods and runs only")

    def _declaration(self, target: ast.expr, call: ast.Call) -> None:
        name = self._new_name(target)
        word = call.func.id if isinstance(call.func, ast.Name) else ""
        if call.keywords or len(call.args) != 2:
            raise self.error("EK801", call, "a declaration has two arguments")
        made: Symbol | Stored
        if word == "symbol":
            made = Symbol(name, self.whole(call.args[0]), self.whole(call.args[1]))
            self.declared.append(made)
            self.symbols.add(name)
        elif word in STORED:
            made = Stored(name, STORED[word], self.type(call.args[0]), self.contents(call.args[1]))
            self.stored.append(made)
        else:
            raise self.error("EK801", call, "a declaration is a symbol, parameter, buffer or constant")
        self.places[id(made)] = call

    def _directive(self, call: ast.Call) -> None:
        word = call.func.id if isinstance(call.func, ast.Name) else ""
        if word == "run":
            self._run(call)
        elif word in self.marks and not call.keywords:
            self.marks[word] += [self._name(one) for one in call.args]
        else:
            raise self.error("EK801", call, "outside of methods there are only run, inexact and undecided")

    def _run(self, call: ast.Call) -> None:
        if len(call.args) != 1:
            raise self.error("EK801", call, "a run has the name of a method and then sizes and contents by name")
        sizes, inputs = {}, {}
        for one in call.keywords:
            if one.arg is None or one.arg in sizes or one.arg in inputs:
                raise self.error("EK801", one.value, "given twice, or without a name")
            if one.arg in self.symbols:
                sizes[one.arg] = self.whole(one.value)
            else:
                inputs[one.arg] = self.contents(one.value)
        run = Run(self.string(call.args[0], "the name of a method"), sizes, inputs)
        self.places[id(run)] = call
        self.runs.append(run)

    def _method(self, node: ast.FunctionDef) -> None:
        inputs = []
        for one in self._parameters(node):
            if one.annotation is None:
                raise self.error("EK801", one, "an input has a type")
            made = Input(self._named_so(one, one.arg), self.type(one.annotation))
            self.places[id(made)] = one
            inputs.append(made)
        body, updates = list(node.body), []
        outputs = self._outputs(node, body.pop())
        while body and self._is_update(body[-1]):
            updates.append(self._update(body.pop()))
        steps = self._steps(body, 0)
        method = Method(self._named_so(node, node.name), tuple(inputs), steps, outputs, tuple(reversed(updates)))
        self.places[id(method)] = node
        self.methods.append(method)

    def _parameters(self, node: ast.FunctionDef) -> list[ast.arg]:
        taken = node.args
        odd = (taken.posonlyargs, taken.kwonlyargs, taken.vararg, taken.kwarg, taken.defaults, node.decorator_list)
        if any(odd) or node.returns is not None:
            raise self.error("EK801", node, "a function has plain parameters only")
        return taken.args

    def _outputs(self, function: ast.FunctionDef, node: ast.stmt) -> tuple[Argument, ...]:
        if not isinstance(node, ast.Return):
            raise self.error("EK801", node, f"{function.name} does not end with return")
        if node.value is None:
            return ()
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        return tuple(self.argument(one, DEEPEST) for one in values)

    def _is_update(self, node: ast.stmt) -> bool:
        call = node.value if isinstance(node, ast.Expr) else None
        return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "update"

    def _update(self, node: ast.stmt) -> tuple[str, Ref]:
        call = node.value if isinstance(node, ast.Expr) else None
        if not isinstance(call, ast.Call) or len(call.args) != 2 or call.keywords:
            raise self.error("EK801", node, "an update names what is written and the value")
        return self._name(call.args[0]), Ref(self._name(call.args[1]))

    def _steps(self, statements: list[ast.stmt], depth: int) -> tuple[Call, ...]:
        steps: list[Call] = []
        bodies: dict[str, Body] = {}
        for node in statements:
            if isinstance(node, ast.FunctionDef):
                body = self._body(node, depth + 1)
                bodies[body.name] = body
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
                steps.append(self._call(node.value, self._results(node.targets[0]), bodies))
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                steps.append(self._call(node.value, (), bodies))
            else:
                raise self.error("EK801", node, "a step is a call of an operator, with names for its results")
        if bodies:
            unused = next(iter(bodies.values()))
            raise self.error("EK803", self.places[id(unused)], f"nothing calls the body {unused.name}")
        return tuple(steps)

    def _body(self, node: ast.FunctionDef, depth: int) -> Body:
        if depth > DEEPEST:
            raise self.error("EK807", node, f"bodies are in each other more than {DEEPEST} deep")
        inputs = tuple(self._named_so(one, one.arg) for one in self._parameters(node))
        outputs = self._outputs(node, node.body[-1])
        body = Body(self._named_so(node, node.name), inputs, self._steps(node.body[:-1], depth), outputs)
        self.places[id(body)] = node
        return body

    def _call(self, node: ast.Call, results: tuple[str | None, ...], bodies: dict[str, Body]) -> Call:
        name = self.operator_name(node.func)
        given, called = list(node.args), []
        if name in HIGHER_ORDER:
            leading = HIGHER_ORDER[name].leading
            for one in given[leading : leading + HIGHER_ORDER[name].bodies]:
                if not (isinstance(one, ast.Name) and one.id in bodies):
                    raise self.error("EK803", one, "not a body that is defined before this step and not called yet")
                called.append(bodies.pop(one.id))
            del given[leading : leading + len(called)]
        args = tuple(map(self.argument, given))
        kwargs = []
        for pair in node.keywords:
            if pair.arg is None:
                raise self.error("EK801", pair.value, "arguments are written one by one")
            kwargs.append((pair.arg, self.argument(pair.value)))
        call = Call(name, args, tuple(kwargs), results, tuple(called))
        self.places[id(call)] = node
        return call

    def _results(self, node: ast.expr) -> tuple[str | None, ...]:
        targets = node.elts if isinstance(node, ast.Tuple) else [node]
        return tuple(None if ast.unparse(one) == "_" else self._new_name(one) for one in targets)

    def _new_name(self, node: ast.expr) -> str:
        return self._named_so(node, self._name(node))

    def _named_so(self, node: ast.AST, name: str) -> str:
        if not is_name(name):
            raise self.error(
                "EK802", node, f"`{name}` cannot be a name", hint="it is a word of Python or of this language"
            )
        return name

    def _name(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Name):
            raise self.error("EK801", node, "a name is wanted here")
        return node.id
