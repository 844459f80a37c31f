"""The checks of the house fail on small bad houses."""

from __future__ import annotations

import pytest

from tests import house

UP = {"anyjax/errors.py": "def f():\n    from anyjax import hf\n", "anyjax/hf/__init__.py": ""}
BAD_FLOORS = {
    "upwards, in a function": UP,
    "upwards, relative": {"anyjax/model.py": "from . import cli", "anyjax/cli/__init__.py": ""},
    "upwards, by name": {
        "anyjax/model.py": "import importlib\nimportlib.import_module('anyjax.hf')",
        "anyjax/hf/__init__.py": "",
    },
    "upwards, two levels": {"anyjax/torch/ops/sort.py": "from ...flax.wrap import to_nnx"},
    "sideways": {"anyjax/torch/a.py": "import anyjax.stablehlo.module"},
    "the facade at the top": {"anyjax/torch/a.py": "import anyjax"},
    "a name of the facade": {"anyjax/hf/a.py": "from anyjax import Model", "anyjax/model.py": ""},
    "no floor": {"anyjax/utils.py": ""},
}
GOOD_FLOORS = {
    "anyjax/__init__.py": "import anyjax.hf",
    "anyjax/errors.py": "def f():\n    import anyjax\n    from anyjax import Model\n",
    "anyjax/model.py": "from anyjax import errors\nfrom . import trees\nimport jax",
    "anyjax/trees.py": "",
    "anyjax/tensorflow/a.py": "from anyjax.stablehlo.module import run",
    "anyjax/hf/a.py": "from ..parallel import shard\nfrom .b import c",
    "anyjax/hf/b.py": "",
    "anyjax/cli/run.py": "import anyjax",
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
        "anyjax/torch/core/a.py": "from anyjax.torch.engine import b",
        "anyjax/torch/engine/b.py": "def f():\n    import anyjax.torch",
        "anyjax/torch/ops/c.py": "import anyjax.torch.core.a",
        "anyjax/torch/other/d.py": "",
        "anyjax/torch/__init__.py": "import anyjax.torch.ops.c",
    }
    names = [name for name, _ in house.rooms(files, "anyjax.torch", order)]
    assert names == [
        "anyjax.torch.core.a -> anyjax.torch.engine.b",
        "anyjax.torch.engine.b -> anyjax.torch",
        "anyjax/torch/other/d.py",
    ]


def test_mirrored_can_fail():
    body = "def f(): ..."
    files = ["anyjax/torch/core/a.py", "anyjax/torch/core/__init__.py", "anyjax/hf/_b.py"]
    files = dict.fromkeys(files, body) | {"anyjax/hf/names.py": "NAMES = [1]"}
    assert len(house.mirrored(files, [], {})) == 2
    tests = ["tests/torch/core/test_a_fast.py", "tests/hf/test_b.py", "tests/hf/test_ab.py"]
    assert house.mirrored(files, tests, {}) == []
    cover = {"anyjax/torch/core/": ["tests/test_x.py"]}
    assert house.mirrored(files, [*tests[1:], "tests/test_x.py"], cover) == []
    (gone,) = house.mirrored(files, tests[1:], cover)
    assert gone[1] == "there is no tests/test_x.py"
    (idle,) = house.mirrored(files, [*tests, "tests/test_x.py"], cover)
    assert idle == ("covered anyjax/torch/core/", "every module there has a test file")


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
    good += "\nfrom torch.utils._pytree import tree_map\nfrom anyjax.t import _u\nself._mine = 1"
    assert house.foreign_private(good, ["_known"], house.defined_names(good)) == []


def test_cycles_can_fail():
    modules = {"anyjax/hf/a.py": "from . import b", "anyjax/hf/b.py": "def f(): import anyjax.hf.a"}
    assert [name for name, _ in house.cycles(modules)] == ["cycle of modules"]
    package = {
        "anyjax/hf/__init__.py": "from .a import x",
        "anyjax/hf/a.py": "from anyjax.hf import y",
    }
    assert [name for name, _ in house.cycles(package)] == ["cycle of modules"]
    parts = {
        "anyjax/train/a.py": "import anyjax.flax.b",
        "anyjax/train/c.py": "",
        "anyjax/flax/b.py": "",
        "anyjax/flax/d.py": "import anyjax.train.c",
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
    long = ("function anyjax/a.py:C.f", "51 lines, at most 50")
    assert house.functions("anyjax/a.py", function(49)) == [long]
    assert house.functions("anyjax/a.py", function(48, doc=30)) == []
    assert house.functions("anyjax/torch/ops/a.py", function(18)) == []
    assert house.functions("anyjax/torch/ops/a.py", function(18, 5, "# why\n\n    x = 1")) == []
    assert len(house.functions("anyjax/torch/ops/a.py", function(19))) == 1
    under_if = "if 1:\n  def f():" + "\n    x = 1" * 60
    assert len(house.functions("anyjax/a.py", under_if)) == 1


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
    verify = {"anyjax/verify/__init__.py": "", "anyjax/hf/generate.py": ""}
    assert house.shadows(verify, ["verify", "generate"])[0][0] == "shadow anyjax.verify"
    roll = {
        "anyjax/transforms/__init__.py": "from .roll import roll",
        "anyjax/transforms/roll.py": "",
    }
    assert len(house.shadows(roll, [])) == 1
    private = {"anyjax/t/__init__.py": "from ._roll import roll", "anyjax/t/_roll.py": ""}
    assert house.shadows(private, ["roll"]) == []
    module = {"anyjax/t/__init__.py": "from anyjax.t import table", "anyjax/t/table.py": ""}
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
