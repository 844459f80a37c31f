"""The checks of the house fail on small bad houses."""

from __future__ import annotations

import pytest

from tests import house

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
    body = "def f(): ..."
    files = ["tojax/torch/core/a.py", "tojax/torch/core/__init__.py", "tojax/hf/_b.py"]
    files = dict.fromkeys(files, body) | {"tojax/hf/names.py": "NAMES = [1]"}
    assert len(house.mirrored(files, [], {})) == 2
    tests = ["tests/torch/core/test_a_fast.py", "tests/hf/test_b.py", "tests/hf/test_ab.py"]
    assert house.mirrored(files, tests, {}) == []
    cover = {"tojax/torch/core/": ["tests/test_x.py"]}
    assert house.mirrored(files, [*tests[1:], "tests/test_x.py"], cover) == []
    (gone,) = house.mirrored(files, tests[1:], cover)
    assert gone[1] == "there is no tests/test_x.py"
    (idle,) = house.mirrored(files, [*tests, "tests/test_x.py"], cover)
    assert idle == ("covered tojax/torch/core/", "every module there has a test file")


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
