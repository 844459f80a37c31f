"""What type checkers say of users' code: nothing of right lines, and something of each wrong one.

They run as for a user, beside no configuration of ours: anyjax is a package that is installed.
mypy keeps what it knows of anyjax, torch and JAX in .mypy_cache; without it this takes a minute.
"""

import ast
import inspect
import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import get_overloads

import pytest

from tests.docs import test_api

pytestmark = pytest.mark.processes

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
SCRIPTS = {FOLDER / "script.py": "failed", FOLDER / "torch_on_jax.py": "as_torchax"}  # and its end
MISTAKES = FOLDER / "mistakes.py"
# What is the source framework's own.
ANY = {"Source.module", "Source.as_array", "Source.write_back", "SourceBase.as_array"}

# Names that editors show without an example: of an alias they show what it stands for.
WITHOUT_EXAMPLE = {"anyjax.typing.ArrayLike"}
# Parameters that are Any: objects of frameworks that checkers do not see through (TensorFlow's,
# operators), what stands on a floor above, functions of batches, whose class they know, and what
# `generate(model, **batch)` would be refused for.
ANY_PARAMETERS = {
    "convert": {"source"}, "static": {"model"}, "from_tensorflow": {"source"},
    "generate": {"streamer", "tokenizer"}, "parallel.estimate": {"step", "state"},
    "tensorflow.convert_from_restored": {"tf_func"}, "tensorflow.split_preprocessing": {"source"},
    "torch.interop.jax_view_elem": {"value"}, "source.Source.tapped": {"tap"},
    "table.Table.update": {"rows"}, "train.evaluate": {"metric_fn"},
    "train.make_step": {"loss_fn"},
}  # fmt: skip


def checked(*command: str | Path, cwd: Path) -> str:
    run = subprocess.run(
        [sys.executable, "-m", *command, *SCRIPTS, MISTAKES],
        cwd=cwd, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 1, run.stdout + run.stderr  # of errors found, for both
    return run.stdout


def mypy(cwd: Path) -> set[tuple[str, int, str]]:
    """Its errors: (file, line, message)."""
    cache = ROOT / ".mypy_cache" / "users"
    text = checked("mypy", "--strict", "--config-file=", "--cache-dir", cache, cwd=cwd)
    found = re.findall(r"^(.+?):(\d+): error: (.*)$", text, re.M)
    return {(Path(file).name, int(line), message) for file, line, message in found}


def pyright(cwd: Path) -> set[tuple[str, int, str]]:
    """Its errors: (file, line, message)."""
    if shutil.which("node") is None:
        pytest.skip("pyright needs node")
    text = checked("pyright", "--pythonpath", sys.executable, "--outputjson", cwd=cwd)
    return {
        (Path(found["file"]).name, found["range"]["start"]["line"] + 1, found["message"])
        for found in json.loads(text)["generalDiagnostics"]
        if found["severity"] == "error"
    }


@pytest.fixture
def frameworks():
    for package in ("torch", "transformers", "tensorflow", "flax", "optax", "onnx", "jax2onnx"):
        pytest.importorskip(package)


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_right_and_wrong_lines(checker, frameworks, tmp_path):
    pytest.importorskip(checker.__name__)
    errors = checker(tmp_path)
    assert [error for error in errors if error[0] != MISTAKES.name] == []
    lines = enumerate(MISTAKES.read_text().splitlines(), 1)
    wrong = {number for number, line in lines if line.endswith("# wrong")}
    assert {line for name, line, _ in errors if name == MISTAKES.name} == wrong


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_script_runs(script, frameworks):
    run = subprocess.run([sys.executable, script], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split()[-1] == SCRIPTS[script]


def documented() -> dict[str, object]:
    """Public names of the API's pages but for errors, and the methods that the pages list."""
    found = {}
    for page in test_api.PAGES.values():
        for block in re.split(r"^\.\. ", page, flags=re.M)[1:]:
            name = block.split("\n")[0].split(":: ")[-1].partition("(")[0]
            if name.startswith("anyjax.") and not name.startswith("anyjax.errors."):
                members = re.findall(r"^ +:members: (.+)$", block, re.M)
                names = [name, *(f"{name}.{x}" for x in ", ".join(members).split(", ") if x)]
                found |= {x: test_api.resolved(x) for x in names if "mhlo" not in x}
    return found


def test_the_script_has_every_public_name(frameworks):
    nodes = [node for script in SCRIPTS for node in ast.walk(ast.parse(script.read_text()))]
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    used |= {x.name for node in nodes if isinstance(node, ast.ImportFrom) for x in node.names}
    names = {name.rpartition(".")[2] for name in documented()}
    for page in ("README.md", "docs/all-of-anyjax.md"):
        text = "".join(re.findall(r"^```.*?^```", (ROOT / page).read_text(), re.M | re.S))
        names |= {path.rpartition(".")[2] for path in re.findall(r"\banyjax((?:\.\w+)+)", text)}
    assert len(names) > 100
    assert names - used == set()


def test_no_public_function_returns_anything(frameworks):
    """What is overloaded tells its kinds of results apart."""
    functions = {n: inspect.unwrap(f) for n, f in documented().items() if inspect.isroutine(f)}
    bare = {
        ".".join(name.split(".")[-2:])
        for name, function in functions.items()
        if inspect.isfunction(function) and not get_overloads(function)
        if inspect.signature(function).return_annotation in ("Any", inspect.Signature.empty)
    }
    assert len(functions) > 100
    assert bare <= ANY, bare - ANY


def test_parameters_are_any_where_no_type_can_be_said(frameworks):
    loose = {}
    for name, function in documented().items():
        if callable(function) and inspect.isfunction(function := inspect.unwrap(function)):
            parameters = inspect.signature(function).parameters.values()
            named = [x for x in parameters if x.kind not in (x.VAR_POSITIONAL, x.VAR_KEYWORD)]
            wide = {x.name for x in named if re.search(r"\bAny\b", str(x.annotation))}
            loose |= {name.removeprefix("anyjax."): wide} if wide else {}
    assert loose == ANY_PARAMETERS


def test_what_a_function_raises_is_in_its_docstring(frameworks):
    silent = set()
    for name, function in documented().items():
        if inspect.isfunction(function := inspect.unwrap(getattr(function, "fget", function))):
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
            calls = [x.exc for x in ast.walk(tree) if isinstance(x, ast.Raise)]
            errors = any(isinstance(x, ast.Call) for x in calls)
            silent |= {name} if errors and "Raises" not in inspect.getdoc(function) else set()
    assert silent == set()


def test_every_public_name_has_an_example(frameworks):
    """Its own, or, of a member, a use in that of its class."""
    examples = {
        n: (inspect.getdoc(x) or "").partition("Example")[2] for n, x in documented().items()
    }
    poor = set()
    for name, example in examples.items():
        of_class, _, member = name.rpartition(".")
        if ">>>" not in example and not re.search(rf"\.{member}\b", examples.get(of_class, "")):
            poor.add(name)
    assert poor == WITHOUT_EXAMPLE
