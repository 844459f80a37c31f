"""Holds the floors, sizes and manners of the house over every file; and each check can fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import tojax
from tests import house
from tests.expectations import complaints, expected_failures
from tests.floors import ROOMS

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TOPS = ("tojax", "tests", "examples", "benchmarks", "docs")
NESTED = {"jaxlib": "jax", "ml-dtypes": "jax", "protobuf": "tensorflow"}  # come with these


@cache
def sources() -> dict[str, str]:
    """Every Python file of the repository by its path."""
    paths = [ROOT / "conftest.py", *(p for top in TOPS for p in sorted((ROOT / top).rglob("*.py")))]
    return {p.relative_to(ROOT).as_posix(): p.read_text(encoding="utf-8") for p in paths}


def product() -> dict[str, str]:
    return {path: text for path, text in sources().items() if path.startswith("tojax/")}


def texts() -> dict[str, str]:
    """Every text file that is or could be committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    found = {}
    for name in filter(os.path.isfile, (str(ROOT / line) for line in listed.stdout.splitlines())):
        try:
            found[os.path.relpath(name, ROOT)] = Path(name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # weights and the like
    return found


def none(findings):
    """Fails with one finding a line."""
    if findings:
        lines = [": ".join(f) if isinstance(f, tuple) else f for f in findings]
        pytest.fail("\n  ".join([f"{len(lines)} findings", *lines]), pytrace=False)


def each(check, files):
    return [finding for path, text in files.items() for finding in check(path, text)]


def facade():
    """The facade's names with what they are; what its folder or its extra lacks is left out."""
    for name in tojax.__all__:
        try:
            yield name, getattr(tojax, name)
        except ImportError as error:
            if error.name in {house.module_name(path) for path in product()}:
                raise


def documentation():
    return [f for name, thing in facade() for f in house.undocumented(name, thing)]


def untested():
    parts = tuple(f"tojax/{x}/" for x in (*house.FRONTENDS, "hf", "train", "transforms"))
    tests = [path for path in sources() if path.startswith("tests/")]
    return house.mirrored((path for path in product() if path.startswith(parts)), tests)


RULES = {
    "lines": lambda: each(house.lengths, sources()),
    "width": lambda: each(house.widths, sources()),
    "function": lambda: each(house.functions, sources()),
    "old": lambda: each(house.old_names, sources()),
    "docstring": documentation,
    "test": untested,
    "processes": lambda: each(house.processes, sources()),
}


@pytest.mark.parametrize("rule", RULES)
def test_rule(rule):
    listed = expected_failures("house.txt")
    expected = {name: why for name, why in listed.items() if name.split()[0] == rule}
    none(complaints(dict(RULES[rule]()), expected))


def test_exceptions_belong_to_a_rule():
    assert {name.split()[0] for name in expected_failures("house.txt")} <= set(RULES)


def test_tests_that_cover_others_exist():
    reasons = [why for name, why in expected_failures("house.txt").items() if name[:5] == "test "]
    named = {path for why in reasons for path in re.findall(r"tests/[\w/]+\.py", why)}
    assert named and all(re.search(r"tests/[\w/]+\.py", why) for why in reasons)
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_no_file_is_above_the_hard_stop():
    none(each(lambda path, text: house.lengths(path, text, house.HARD_LINES), sources()))


def test_imports_go_down():
    none(house.floors(product()))


def test_imports_go_down_inside_of_the_frontends():
    none([f for part, order in ROOMS.items() for f in house.rooms(product(), part, order)])


def test_parts_that_could_be_packages_need_little_of_the_others():
    none(house.fences(product()))


def test_private_names_of_others_are_in_one_place():
    pytest.importorskip("transformers")
    from tojax.hf.generation.request import private as generation
    from tojax.hf.loading import private as loading
    from tojax.tensorflow.core import private as tensorflow
    from tojax.torch.core import private as torch

    known = {n for x in (torch, loading, generation, tensorflow) for n in x.ATTRIBUTES}
    files = {k: v for k, v in product().items() if not k.endswith("/private.py")}
    defined = set().union(*map(house.defined_names, files.values()))
    none([(k, name) for k, v in files.items() for name in house.foreign_private(v, known, defined)])


def test_no_import_cycles():
    none(house.cycles(product()))


def test_the_import_graph_is_the_one_that_grimp_sees():
    grimp = pytest.importorskip("grimp")
    theirs = grimp.build_graph("tojax", cache_dir=None)
    ours = house.graph(product())
    for module, targets in ours.items():
        # theirs counts lazy imports of the facade, and none by import_module
        seen = theirs.find_modules_directly_imported_by(module)
        assert seen - {"tojax"} <= targets, module


def test_no_module_shares_its_name_with_a_public_function():
    none(house.shadows(product(), [name for name, thing in facade() if callable(thing)]))


def test_no_model_is_written_by_hand():
    assert not [path for path in product() if "/models/" in path or path.endswith("/models.py")]


def test_imported_packages_are_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {
        requirement.split(">")[0].split("[")[0].lower().replace("_", "-")
        for group in (project["dependencies"], *project["optional-dependencies"].values())
        for requirement in group
    }
    provided = packages_distributions()
    missing = [
        f"{path}: {name}"
        for path, text in product().items()
        for name in house.foreign_imports(text) - set(sys.stdlib_module_names) - {house.PACKAGE}
        for dists in [{x.lower().replace("_", "-") for x in provided.get(name, [name])}]
        if not declared & {NESTED.get(x, x) for x in dists}
    ]
    none(missing)


def test_what_jax_keeps_of_its_internals_is_looked_up_in_one_place():
    """By ``need`` and ``optional``: an import of a name that is gone would say less."""
    none(
        [
            f"{path}: {name}"
            for path, text in product().items()
            if path != "tojax/jaxprs.py"  # imports them for type checkers alone
            for name in re.findall(
                r"^ *(?:from|import) (jaxlib|jax\.extend|jax\._src)\b", text, re.M
            )
        ]
    )


def test_a_file_of_each_folder_runs_with_all_optimizations():
    (listed,) = re.findall(r"^OPTIMIZED := \$\(addprefix (.*?), ([^)]*)\)", MAKEFILE, re.M | re.S)
    files = {listed[0] + name for name in listed[1].replace("\\", " ").split()}
    assert files <= {*sources()}
    compiling = {path.split("/")[1] for path in sources() if re.match(r"tests/\w+/", path)}
    compiling -= {"cli", "conformance", "processes"}  # whole suites; what compiles elsewhere
    assert {path.split("/")[1] for path in files} == compiling


def test_text_speaks_of_no_machine_and_no_registry():
    none(each(house.private_text, texts()))


# The checks themselves, on small bad houses.

UP = {"tojax/errors.py": "def f():\n    from tojax import hf\n", "tojax/hf/__init__.py": ""}
BAD_FLOORS = {
    "upwards, in a function": UP,
    "upwards, relative": {"tojax/model.py": "from . import cli", "tojax/cli/__init__.py": ""},
    "upwards, by name": {
        "tojax/model.py": "import importlib\nimportlib.import_module('tojax.hf')",
        "tojax/hf/__init__.py": "",
    },
    "upwards, two levels": {"tojax/torch/ops/sort.py": "from ...flax.wrap import to_nnx"},
    "sideways": {"tojax/torch/a.py": "import tojax.stablehlo.module"},
    "the facade at the top": {"tojax/torch/a.py": "import tojax"},
    "a name of the facade": {"tojax/hf/a.py": "from tojax import Model", "tojax/model.py": ""},
    "no floor": {"tojax/utils.py": ""},
}
GOOD_FLOORS = {
    "tojax/__init__.py": "import tojax.hf",
    "tojax/errors.py": "def f():\n    import tojax\n    from tojax import Model\n",
    "tojax/model.py": "from tojax import errors\nfrom . import trees\nimport jax",
    "tojax/trees.py": "",
    "tojax/tensorflow/a.py": "from tojax.stablehlo.module import run",
    "tojax/hf/a.py": "from ..parallel import shard\nfrom .b import c",
    "tojax/hf/b.py": "",
    "tojax/cli/run.py": "import tojax",
}


@pytest.mark.parametrize("files", BAD_FLOORS.values(), ids=BAD_FLOORS)
def test_floors_can_fail(files):
    assert len(house.floors(files)) == 1


def test_floors_can_pass():
    assert house.floors(GOOD_FLOORS) == []
    assert house.cycles(GOOD_FLOORS) == []


def test_rooms_can_fail():
    order = (("core",), ("engine", "ops"), ("",))
    files = {
        "tojax/torch/core/a.py": "from tojax.torch.engine import b",
        "tojax/torch/engine/b.py": "def f():\n    import tojax.torch",
        "tojax/torch/ops/c.py": "import tojax.torch.core.a",
        "tojax/torch/other/d.py": "",
        "tojax/torch/__init__.py": "import tojax.torch.ops.c",
    }
    names = [name for name, _ in house.rooms(files, "tojax.torch", order)]
    assert names == [
        "tojax.torch.core.a -> tojax.torch.engine.b",
        "tojax.torch.engine.b -> tojax.torch",
        "tojax/torch/other/d.py",
    ]


def test_mirrored_can_fail():
    files = ["tojax/torch/core/a.py", "tojax/torch/core/__init__.py", "tojax/hf/_b.py"]
    assert len(house.mirrored(files, [])) == 2
    tests = ["tests/torch/core/test_a_fast.py", "tests/hf/test_b.py", "tests/hf/test_ab.py"]
    assert house.mirrored(files, tests) == []


def test_processes_can_fail():
    starts, mark = "import os\ndef f():\n    import subprocess\n", "x = pytest.mark.processes\n"
    assert len(house.processes("tests/a/test_b.py", starts)) == 1
    assert len(house.processes("tests/a/test_b.py", "from tests.processes.jobs import Job")) == 1
    assert len(house.processes("tests/processes/a/test_b.py", "import os")) == 1
    assert house.processes("tests/a/test_b.py", mark + starts) == []
    assert house.processes("tests/a/test_b.py", "import os") == []
    assert house.processes("tests/processes/jobs.py", starts) == []


BAD_NAMES = [
    "torch._C.x()",
    "from torch._ops import HigherOrderOperator",
    "from torch.nn.modules import _functions",
    "module._prepare_it()",
    'getattr(module, "_prepare_it", None)',
]


@pytest.mark.parametrize("text", BAD_NAMES)
def test_foreign_private_can_fail(text):
    assert len(house.foreign_private(text, ["_known"], [])) == 1
    good = "self._mine, op._known, torch.ops.aten._sum, aten._sum.default, x.__class__"
    good += "\nfrom torch.utils._pytree import tree_map\nfrom tojax.t import _u\nself._mine = 1"
    assert house.foreign_private(good, ["_known"], house.defined_names(good)) == []


def test_cycles_can_fail():
    modules = {"tojax/hf/a.py": "from . import b", "tojax/hf/b.py": "def f(): import tojax.hf.a"}
    assert [name for name, _ in house.cycles(modules)] == ["cycle of modules"]
    package = {
        "tojax/hf/__init__.py": "from .a import x",
        "tojax/hf/a.py": "from tojax.hf import y",
    }
    assert [name for name, _ in house.cycles(package)] == ["cycle of modules"]
    parts = {
        "tojax/train/a.py": "import tojax.flax.b",
        "tojax/train/c.py": "",
        "tojax/flax/b.py": "",
        "tojax/flax/d.py": "import tojax.train.c",
    }
    ((name, path),) = house.cycles(parts)
    assert name == "cycle of parts"
    assert path in ("flax -> train -> flax", "train -> flax -> train")


def test_sizes_can_fail():
    assert house.lengths("a.py", "\n" * 401) == [("lines a.py", "401 lines, at most 400")]
    assert house.lengths("a.py", "\n" * 400) == []
    assert house.widths("a.py", "x" * 101) == [("width a.py", "above 100 characters: line 1")]
    assert house.widths("a.py", "x" * 100) == []


def function(body: int, doc: int = 1, filler: str = "x = 1") -> str:
    doc_lines = "\n    more" * (doc - 2) + '\n    """' if doc > 1 else '"""'
    lines = f"\n    {filler}" * body
    return f'class C:\n  def f(self):\n    """Doc.{doc_lines}{lines}\n    return 1\n'


def test_function_length_can_fail():
    long = ("function tojax/a.py:C.f", "51 lines, at most 50")
    assert house.functions("tojax/a.py", function(49)) == [long]
    assert house.functions("tojax/a.py", function(48, doc=30)) == []
    assert house.functions("tojax/torch/ops/a.py", function(18)) == []
    assert house.functions("tojax/torch/ops/a.py", function(18, 5, "# why\n\n    x = 1")) == []
    assert len(house.functions("tojax/torch/ops/a.py", function(19))) == 1
    under_if = "if 1:\n  def f():" + "\n    x = 1" * 60
    assert len(house.functions("tojax/a.py", under_if)) == 1


OLD = [
    "import jax.experimental.pallas",
    "from jax import experimental",
    "from jax.experimental import sparse",
    "import jax\njax.pmap(f)",
    "def f():\n    from jax import pmap",
]


@pytest.mark.parametrize("text", OLD)
def test_old_names_can_fail(text):
    assert len(house.old_names("a.py", text)) == 1
    assert house.old_names("a.py", "import jax\njax.vmap(f)\nfrom jax import shard_map") == []


def test_shadows_can_fail():
    verify = {"tojax/verify/__init__.py": "", "tojax/hf/generate.py": ""}
    assert house.shadows(verify, ["verify", "generate"])[0][0] == "shadow tojax.verify"
    roll = {
        "tojax/transforms/__init__.py": "from .roll import roll",
        "tojax/transforms/roll.py": "",
    }
    assert len(house.shadows(roll, [])) == 1
    private = {"tojax/t/__init__.py": "from ._roll import roll", "tojax/t/_roll.py": ""}
    assert house.shadows(private, ["roll"]) == []
    module = {"tojax/t/__init__.py": "from tojax.t import table", "tojax/t/table.py": ""}
    assert house.shadows(module, []) == []


def test_private_text_can_fail():
    for text in (
        "see /ro" + "ot/x",
        '"/wo' + 'rk/a"',
        "in /ho" + "me/me",
        "https://py" + "pi.org/x",
    ):
        assert len(house.private_text("a.md", text)) == 1, text
    assert house.private_text("a.md", "a/work/b, /workspace, https://x.org/root/b, ~/work/c") == []


def test_undocumented_can_fail():
    def bare(): ...

    def told():
        """Says it."""

    def shown(): ...

    shown.__doc__ = ">>> shown()"
    found = [bool(house.undocumented("f", f)) for f in (bare, told, shown)]
    assert found == [True, True, False]


def test_foreign_imports_are_seen():
    text = "import jax.numpy as jnp\nfrom . import a\ndef f():\n    from flax import nnx\n"
    assert house.foreign_imports(text) == {"jax", "flax"}
