"""The house rules as functions from source text to findings; tests/test_house.py applies them.

A finding is a pair: a name, which tests/expect/house.txt may list with a reason, and what is wrong.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from tests.floors import FENCES, FLOORS, FRONTENDS, NEIGHBOURS

PACKAGE = "anyjax"

MAX_LINES, HARD_LINES, MAX_FUNCTION, MAX_LOWERING, MAX_WIDTH = 400, 600, 50, 20, 100

Findings = list[tuple[str, str]]


class Import(NamedTuple):
    """One import of one of our modules, anywhere in a file."""

    target: str
    line: int
    lazy: bool  # inside a function, or for type checkers alone


def module_name(path: str) -> str:
    """``anyjax/torch/__init__.py`` -> ``anyjax.torch``."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def unit(module: str) -> str:
    """The part of the house that a module belongs to: ``anyjax.torch.ops.sort`` -> ``torch``."""
    return [*module.split("."), ""][1]


def imports(path: str, text: str, modules: Iterable[str]) -> list[Import]:
    """What a file imports of ours: statements and ``import_module`` of a literal, lazy ones too."""
    known = set(modules)
    here = module_name(path)
    package = here if path.endswith("__init__.py") else here.rpartition(".")[0]
    found: list[Import] = []

    def visit(node: ast.AST, lazy: bool) -> None:
        for target in _targets(node, package, known):
            if target.split(".")[0] == PACKAGE and target != here:
                found.append(Import(target, getattr(node, "lineno", 0), lazy))
        inside = lazy or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        inside |= isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(ast.parse(text), False)
    return found


def _targets(node: ast.AST, package: str, known: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parents = package.split(".")
        above = parents[: len(parents) - node.level + 1] if node.level else []
        base = ".".join([*above, node.module] if node.module else above)
        for alias in node.names:  # a submodule, or a name that the module defines
            inner = f"{base}.{alias.name}"
            yield inner if inner in known else base
    elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        name, value = ast.unparse(node.func).rpartition(".")[2], node.args[0].value
        if name in ("import_module", "__import__") and isinstance(value, str):
            yield package + value if value.startswith(".") else value


def floors(files: Mapping[str, str]) -> Findings:
    """Imports that go up, go sideways between frontends, or load the facade at once."""
    found: Findings = []
    modules = {module_name(path) for path in files}
    for path, text in files.items():
        here = module_name(path)
        if _floor(unit(here)) is None:
            found.append((path, f"{unit(here)!r} has no floor: give it one in tests/house.py"))
            continue
        for target, line, lazy in imports(path, text, modules):
            if target == PACKAGE and lazy:
                continue
            if why := _climbs(unit(here), unit(target)):
                found.append((f"{here} -> {target}", f"{path}:{line} {why}"))
    return found


def _floor(name: str) -> int | None:
    return next((i for i, names in enumerate(FLOORS) if name in names), None)


def _climbs(here: str, there: str) -> str | None:
    ours, theirs = _floor(here), _floor(there)
    if ours is None or theirs is None:
        return f"imports {there!r}, which has no floor"
    if theirs > ours:
        return f"imports upwards: {there or 'the facade'!r} is above {here or 'the facade'!r}"
    beside = here != there and {here, there} <= set(FRONTENDS)
    if beside and (here, there) not in NEIGHBOURS:
        return f"imports sideways: the frontend {here!r} does not know {there!r}"
    return None


def rooms(files: Mapping[str, str], inside: str, order: tuple[tuple[str, ...], ...]) -> Findings:
    """Imports that go up between the rooms of one part, and rooms without a floor."""
    found: Findings = []
    modules = {module_name(path) for path in files}
    floor = {room: i for i, names in enumerate(order) for room in names}
    room = lambda module: [*module.removeprefix(inside).split("."), ""][1]
    for path, text in files.items():
        here = module_name(path)
        if not f"{here}.".startswith(f"{inside}."):
            continue
        if room(here) not in floor:
            found.append((path, f"{room(here)!r} has no floor: give it one in tests/house.py"))
            continue
        for target, line, _ in imports(path, text, modules):
            if not f"{target}.".startswith(f"{inside}.") or room(target) not in floor:
                continue
            if floor[room(target)] > floor[room(here)]:
                found.append((f"{here} -> {target}", f"{path}:{line} imports upwards"))
    return found


def fences(files: Mapping[str, str]) -> Findings:
    """Imports of parts that a part must do without."""
    found: Findings = []
    modules = {module_name(path) for path in files}
    for path, text in files.items():
        here = module_name(path)
        for inside, allowed in FENCES.items():
            if not f"{here}.".startswith(f"{inside}."):
                continue
            for target, line, _ in imports(path, text, modules):
                if not any(f"{target}.".startswith(f"{x}.") for x in (inside, *allowed)):
                    found.append((f"{here} -> {target}", f"{path}:{line} is behind a fence"))
    return found


def untested(files: Mapping[str, str], tests: Iterable[str]) -> dict[str, str]:
    """Returns modules with functions but without a test file of their name, ``test_NAME.py`` or
    ``test_NAME_*.py``; for each the first of these names.
    """
    suites = [f"{path.removesuffix('.py')}_" for path in tests]
    missing = {}
    for path, text in files.items():
        folder, _, name = path.removesuffix(".py").rpartition("/")
        test = f"tests/{folder.removeprefix('anyjax/')}/test_{name.lstrip('_')}"
        if not name.startswith("__") and not any(x.startswith(f"{test}_") for x in suites):
            nodes = ast.walk(ast.parse(text))
            if any(isinstance(node, (ast.FunctionDef, ast.Lambda)) for node in nodes):
                missing[path] = f"{test}.py"
    return missing


def mirrored(
    files: Mapping[str, str], tests: Iterable[str], covers: Mapping[str, Iterable[str]]
) -> Findings:
    """Modules that neither a test file of their name nor a cover of their folder tests; covers of
    nothing, and by no file.

    Args:
      files: modules.
      tests: paths of test files.
      covers: folders, with the test files that run all of their modules.
    """
    tests = set(tests)
    missing = untested(files, tests)
    bare = {path: test for path, test in missing.items() if not path.startswith((*covers,))}
    idle = [folder for folder in covers if not any(path.startswith(folder) for path in missing)]
    gone = [(folder, x) for folder, suites in covers.items() for x in {*suites} - tests]
    return [
        *((f"test {path}", f"there is no {test}") for path, test in bare.items()),
        *((f"covered {folder}", "every module there has a test file") for folder in idle),
        *((f"covered {folder}", f"there is no {x}") for folder, x in gone),
    ]


def processes(path: str, text: str) -> Findings:
    """Test files that start processes, or stand where such do, without the mark that says so."""
    if not path.rpartition("/")[2].startswith("test_") or "pytest.mark.processes" in text:
        return []
    starts = r"^ *(from|import) (subprocess|multiprocessing|tests\.processes)\b"
    if path.startswith("tests/processes/") or re.search(starts, text, re.M):
        return [(f"processes {path}", "starts processes without pytest.mark.processes")]
    return []


def graph(files: Mapping[str, str]) -> dict[str, set[str]]:
    """Which module imports which, but for lazy imports of the facade."""
    modules = {module_name(path) for path in files}
    return {
        module_name(path): {
            i.target for i in imports(path, text, modules) if i.target != PACKAGE or not i.lazy
        }
        for path, text in files.items()
    }


def cycles(files: Mapping[str, str]) -> Findings:
    """A cycle of modules, and a cycle of whole parts of the house."""
    edges = graph(files)
    parts: dict[str, set[str]] = {}
    for module, targets in edges.items():
        others = {unit(target) for target in targets} - {unit(module)}
        parts.setdefault(unit(module), set()).update(others)
    found: Findings = []
    for what, nodes in (("modules", edges), ("parts", parts)):
        try:
            TopologicalSorter(nodes).prepare()
        except CycleError as error:  # it lists a node before the nodes that import it
            found.append((f"cycle of {what}", " -> ".join(reversed(error.args[1]))))
    return found


def lengths(path: str, text: str, limit: int = MAX_LINES) -> Findings:
    """A file that is too long."""
    count = len(text.splitlines())
    return [(f"lines {path}", f"{count} lines, at most {limit}")] if count > limit else []


def widths(path: str, text: str) -> Findings:
    """A file with lines that are too wide."""
    wide = [n for n, line in enumerate(text.splitlines(), 1) if len(line) > MAX_WIDTH]
    shown = ", ".join(map(str, wide[:8])) + (", ..." if len(wide) > 8 else "")
    return [(f"width {path}", f"above {MAX_WIDTH} characters: line {shown}")] if wide else []


def functions(path: str, text: str) -> Findings:
    """Functions that are too long, their docstrings not counted.

    In an ``ops`` folder only lines with code count; elsewhere comments and blank lines do as well.
    """
    lowering = "/ops/" in path
    limit = MAX_LOWERING if lowering else MAX_FUNCTION
    code = _code_lines(text) if lowering else None
    found: Findings = []
    for name, node in _defs(ast.parse(text)):
        lines = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        if ast.get_docstring(node, clean=False) is not None:
            doc = node.body[0]
            lines -= set(range(doc.lineno, (doc.end_lineno or doc.lineno) + 1))
        count = len(lines if code is None else lines & code)
        if count > limit:
            found.append((f"function {path}:{name}", f"{count} lines, at most {limit}"))
    return found


def _defs(
    tree: ast.AST, prefix: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Functions and methods; what a function defines inside belongs to it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _defs(node, f"{prefix}{node.name}.")
        else:  # a function under `if` or `try`
            yield from _defs(node, prefix)


def _code_lines(text: str) -> set[int]:
    empty = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in empty:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines


def old_names(path: str, text: str) -> Findings:
    """Uses of ``jax.experimental`` and of ``pmap``."""
    found: Findings = []
    for node in ast.walk(ast.parse(text)):
        used: list[str] = []
        if isinstance(node, ast.Import):
            used = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            used = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute):
            used = [ast.unparse(node)]
        for name in used:
            parts = name.split(".")
            if parts[0] == "jax" and ("experimental" in parts[1:2] or "pmap" in parts):
                line = getattr(node, "lineno", 0)
                found.append((f"old {path}:{name}", f"line {line}: use the public or current name"))
    return list(dict(found).items())


def shadows(files: Mapping[str, str], public: Iterable[str]) -> Findings:
    """Modules that share their name with a function that their folder's facade offers."""
    modules = {module_name(path) for path in files}
    found = [
        (f"shadow {PACKAGE}.{name}", "a module and a public function")
        for name in public
        if f"{PACKAGE}.{name}" in modules
    ]
    for path, text in files.items():
        if not path.endswith("__init__.py"):
            continue
        here = module_name(path)
        for node in ast.parse(text).body:
            for name, origin in _bound(node, here):
                own = f"{here}.{name}"
                if own in modules and origin != own:
                    found.append((f"shadow {own}", f"a module and what {path} binds"))
    return list(dict(found).items())


def _bound(node: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """Names that a statement of a facade binds, with where an imported one comes from."""
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level == 1:
            base = f"{package}.{base}" if base else package
        yield from ((alias.asname or alias.name, f"{base}.{alias.name}") for alias in node.names)
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name, ""


def foreign_imports(text: str) -> set[str]:
    """The top-level names of the other packages that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.split(".")[0])
    return found


# Written so that they do not find themselves.
_MACHINE_PATH = re.compile(r"(?<![\w./~-])/(?:root|work|home/[\w-]+)\b")
_REGISTRY = re.compile(
    r"\b(?:(?:pypi|pythonhosted|anaconda)\.org|download\.pytorch\.org|npmjs\.\w+)"
)


def private_text(path: str, text: str) -> Findings:
    """Absolute paths of one machine, and hosts of package registries."""
    found: Findings = []
    for number, line in enumerate(text.splitlines(), 1):
        for what, pattern in (("a machine's path", _MACHINE_PATH), ("a registry", _REGISTRY)):
            if match := pattern.search(line):
                found.append((f"text {path}:{number}", f"{what}: {match[0]}"))
    return found


def undocumented(name: str, thing: object) -> Findings:
    """A public function or class without a docstring that holds an example."""
    doc = getattr(thing, "__doc__", None) or ""
    if not doc.strip():
        return [(f"docstring {name}", "there is none")]
    return [] if ">>>" in doc else [(f"docstring {name}", "it has no example (>>>)")]


def foreign_private(text: str, known: Iterable[str], defined: Iterable[str]) -> list[str]:
    """Private names of torch and transformers that a file uses: by a dotted path, by an import, or
    as the attribute of an object; not operators, and not ``known`` or ``defined`` attributes.
    """
    allowed = {*known, *defined, "_getframe", "_fields", "_exit"}
    private = lambda name: name.startswith("_") and not name.startswith("__")
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            path = [*node.module.split("."), *(alias.name for alias in node.names)]
            theirs = path[0] in ("torch", "transformers") and "_pytree" not in path
            found += [node.module] if theirs and any(map(private, path)) else []
        elif isinstance(node, ast.Attribute) and private(node.attr):
            path = ast.unparse(node).split(".")
            dotted = path[0] in ("torch", "transformers", "F", "nn")
            operator = path[0] == "aten" or path[:2] == ["torch", "ops"] or "_pytree" in path
            if not operator and (dotted or node.attr not in allowed):
                found.append(ast.unparse(node))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
            name = node.args[1]
            if isinstance(name, ast.Constant) and private(str(name.value)):
                found += [] if name.value in allowed else [ast.unparse(node)]
    return found


def defined_names(text: str) -> set[str]:
    """Functions, classes, variables and attributes of self that a file defines."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found |= {node.attr} if ast.unparse(node.value) in ("self", "cls") else set()
    return found
