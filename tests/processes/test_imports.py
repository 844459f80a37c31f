"""What an import loads, and what it leaves until it is needed."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import house

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ("torch", "tensorflow", "transformers")


def loaded_after(code: str, *names: str) -> list[str]:
    """Which of these packages a fresh interpreter has loaded after running the code."""
    script = f"""
import sys
try:
    exec({code!r})
except SystemExit as end:
    if end.code:
        raise
print("loaded", *[name for name in {names} if name in sys.modules])
"""
    return last_line(script).split()[1:]


def last_line(script: str) -> str:
    """What a fresh interpreter prints at last."""
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.splitlines()[-1]


def test_import_is_lazy():
    assert loaded_after("import anyjax", "jax", "inspect", *FRAMEWORKS) == []


def test_the_torch_frontend_loads_no_room_of_jax_that_it_may_never_need():
    pytest.importorskip("torch")
    rooms = ("jax.extend", "jax._src.pallas.core", "numpy.polynomial", "transformers")
    rooms += ("torch._dynamo", "torch._functorch.aot_autograd")
    assert loaded_after("import anyjax.torch", *rooms) == []


MASKED = """
import jax, numpy, torch, anyjax
traces = []
{make}
for _ in range(2):
    call(numpy.ones((2, 3), numpy.float32))
print("traces", len(traces))
"""
TRACED = {  # what counts the traces of two calls
    "a function": """
model = anyjax.from_torch(lambda x: x.where(x > 0, 0))
call = jax.jit(lambda x: (traces.append(1), model.apply({}, x))[1])
""",
    "torch.compile": """
from anyjax.torch.dynamo.program import Program
compute = Program._compute
Program._compute = lambda *args: (traces.append(1), compute(*args))[1]
compiled = torch.compile(lambda x: x.where(x > 0, 0), backend="anyjax")
call = lambda x: compiled(torch.from_numpy(x))
""",
}


@pytest.mark.parametrize("kind", TRACED)
def test_a_trace_loads_nothing_that_would_repeat_it(kind):
    """Parts of JAX add options to its context when they are loaded, which every program has."""
    pytest.importorskip("torch")
    assert last_line(MASKED.format(make=TRACED[kind])) == "traces 1"


def test_what_is_below_and_beside_the_frontends_needs_none_of_them():
    heavy = {"torch", "torchax", "tensorflow", "hf", "diffusers", "cli", "__main__"}
    optional = {"flax": "flax", "train": "optax"}
    heavy |= {name for name, package in optional.items() if find_spec(package) is None}
    files = (path.relative_to(ROOT).as_posix() for path in (ROOT / "anyjax").rglob("*.py"))
    modules = [m for m in map(house.module_name, files) if house.unit(m) not in heavy]
    of_frameworks = (
        "anyjax.flax.codegen",
        "anyjax.compare.recorders.torch_",
        "anyjax.compare.sides.t",
        "anyjax.compare.torch_modes.",
        "anyjax.parity.operators",
        "anyjax.parity.reproduce.",
    )
    modules = [m for m in modules if not m.startswith(of_frameworks)]
    assert loaded_after("\n".join(f"import {m}" for m in modules), *FRAMEWORKS) == []


COMPLETED = {
    "Python": """
from rlcompleter import Completer
complete = lambda text: Completer({"anyjax": anyjax}).attr_matches(text)
""",
    "IPython": """
import warnings
from IPython.core.completer import IPCompleter
warnings.simplefilter("ignore")  # its interface is provisional
completer = IPCompleter(namespace={"anyjax": anyjax}, use_jedi=False)
complete = lambda text: [(x.text, x.type) for x in completer.completions(text, len(text))]
""",
}
COMPLETED["IPython with Jedi"] = COMPLETED["IPython"].replace("use_jedi=False", "use_jedi=True")


@pytest.mark.parametrize("where", COMPLETED)
def test_completing_a_name_loads_nothing(where):
    pytest.importorskip("IPython" if "IPython" in where else "rlcompleter")
    code = "import anyjax" + COMPLETED[where]
    names = (
        "assert 'from_torch' in str(complete('anyjax.')) and 'pipe' in str(complete('anyjax.hf.'))"
    )
    assert loaded_after(code + names, "jax", "flax", "optax", *FRAMEWORKS) == []


@pytest.mark.parametrize("where", COMPLETED)
def test_names_of_a_part_are_completed(where):
    pytest.importorskip("IPython" if "IPython" in where else "rlcompleter")
    pytest.importorskip("optax")
    code = "import anyjax" + COMPLETED[where] + "assert 'fit' in str(complete('anyjax.train.'))"
    assert loaded_after(code, "optax", *FRAMEWORKS) == ["optax"]


def test_importing_flax_names_loads_nothing():
    assert (
        loaded_after("import anyjax.flax; anyjax.flax", "flax", "jax", "torch", "tensorflow") == []
    )


def test_help_is_quick():
    code = "import sys; sys.argv = ['anyjax', '--help']; from anyjax.cli import main; main()"
    assert loaded_after(code, "jax", *FRAMEWORKS) == []


def test_loaded_after_can_fail():
    assert loaded_after("import json", "json", "jax") == ["json"]
