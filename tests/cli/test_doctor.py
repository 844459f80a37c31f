"""``anyjax doctor``: what is installed, what works, and the traps, with packages of any state."""

import dataclasses
import json
import sys
from importlib import metadata
from pathlib import Path

import pytest

from anyjax import errors
from anyjax.cli import _doctor, _machine, _packages, _traps
from anyjax.numerics import high_rank
from tests.cli.test_messages import anyjax

__all__ = ["anyjax"]  # the fixture

JAX = _machine.JaxState(devices=(_machine.Device("cpu", "cpu", 1, None),), x64=False)
GPU = _machine.JaxState(devices=(_machine.Device("gpu", "H100", 1, 85_000_000_000),))
BROKEN = _machine.JaxState(error="RuntimeError: no device")


def installed(**versions):
    """The packages here, some of them in other versions; None is not installed."""
    packages = _packages.packages()
    for name, version in versions.items():
        problem = "" if version else "not installed"
        packages[name] = dataclasses.replace(packages[name], version=version, problem=problem)
    return packages


def broken(name, problem="cannot be imported: SyntaxError"):
    packages = _packages.packages()
    return packages | {name: dataclasses.replace(packages[name], problem=problem)}


def trap(packages=None, jax=JAX, **variables):
    """All traps of a machine, as a text."""
    return "\n".join(_traps.traps(packages or installed(), jax, variables))


def feature(name, packages):
    return next(x for x in _packages.features(packages) if x.name == name)


def test_every_package_of_the_extras_serves_a_feature():
    served = {x for _, names, _ in _packages.FEATURES for x in names.split()}
    assert served >= {*errors.EXTRAS} - {"click"}  # it comes with typer
    extras = {*metadata.metadata("anyjax").get_all("Provides-Extra")}
    for _, _, requirement in _packages.FEATURES:
        if "[" in requirement:
            assert {*requirement.removeprefix("anyjax[").rstrip("]").split(",")} <= extras


def test_what_is_installed():
    packages = _packages.packages()
    for name in ("jax", "torch", "transformers"):
        assert packages[name].version == metadata.version(name)
        assert not packages[name].problem and packages[name].lowest
    assert packages["jax"].tested and packages["numpy"].tested is None


def test_versions_outside_of_the_tested_range():
    assert installed(torch="2.99.0+cu128")["torch"].tested is False
    assert installed(torch="2.99.0")["torch"].note == "not tested, may fail"
    assert installed(torch="2.13.9")["torch"].tested


def test_features_and_their_fixes():
    without = installed(flax=None, transformers=None)
    assert feature("Flax modules", without).fix == 'pip install "anyjax[flax]"'
    assert feature("load Hugging Face checkpoints", without).fix == 'pip install "anyjax[hf]"'
    assert feature("PyTorch modules", without).works
    old = feature("generate text", installed(transformers="5.0.1"))
    assert (old.works, old.fix) == (False, 'pip install "transformers>=5.8"')
    assert feature("load Hugging Face checkpoints", installed(transformers="5.0.1")).works
    fix = feature("Flax modules", broken("flax")).fix
    assert fix == f'pip install --force-reinstall "flax=={metadata.version("flax")}"'


def test_a_package_that_is_damaged(monkeypatch, tmp_path):
    """Metadata without files, files without metadata, and a lower bound that is not reached."""
    monkeypatch.setattr(metadata, "version", lambda name: "0.1")
    package = _packages._package("no_such_package", {})
    assert package.problem == "its files are missing"
    assert _packages._package("flax", {"flax": "0.12"}).problem == "too old: 0.12 is needed"
    monkeypatch.setattr(metadata, "version", lambda name: 1 / 0)
    assert "its metadata is damaged: ZeroDivisionError" in _packages._package("flax", {}).problem
    monkeypatch.undo()
    (tmp_path / "of_a_source_tree.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    package = _packages._package("of_a_source_tree", {})
    assert (package.version, package.problem) == ("unknown", "")


def test_the_core(anyjax, monkeypatch):
    code, out, _ = anyjax("doctor", "--json")
    about = json.loads(out)
    assert code == 0 and about["works"] and not about["problems"]
    assert about["jax"]["devices"][0]["count"] >= 1
    monkeypatch.setattr(_machine, "jax_state", lambda: BROKEN)
    code, out, _ = anyjax("doctor")
    assert code == 1 and "the core does not work" in out and "RuntimeError: no device" in out


def test_a_jax_that_is_broken(monkeypatch):
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "jax", None)
        assert _machine.jax_state().error.startswith("ModuleNotFoundError")
    problems = _doctor.core_problems(broken("numpy"), JAX)
    assert problems == [
        "numpy: cannot be imported: SyntaxError: "
        f'pip install --force-reinstall "numpy=={metadata.version("numpy")}"'
    ]


def test_no_secret_is_printed(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("https_proxy", "http://me:secret@proxy:8080")
    about = _machine.environment()
    assert about["HF_TOKEN"] == "(set)" and about["HTTPS_PROXY"] == "http://...@proxy:8080"


def test_traps(monkeypatch):
    with monkeypatch.context() as sound:  # Python 3.11 and a CPU build of torch have no trap
        sound.setattr(_traps, "torch_cuda", lambda: None)
        sound.setattr(_traps, "_version", lambda name: None)
        sound.setattr(_traps, "HIGH_RANK", {})
        sound.setattr(sys, "version_info", (3, 11, 14))
        assert trap() == ""
    assert "jaxlib 0.0.1 is installed" in trap(installed(jaxlib="0.0.1"))
    assert "jaxlib 99.0 is installed" in trap(installed(jaxlib="99.0"))
    assert "64-bit" in trap(jax=dataclasses.replace(JAX, x64=True))
    assert "HTTPS_PROXY" in trap(HTTPS_PROXY="http://proxy")
    offline = trap(HTTPS_PROXY="http://proxy", HF_HUB_OFFLINE="1")
    assert "HF_HUB_OFFLINE" in offline and "HTTPS_PROXY" not in offline
    monkeypatch.setattr(sys, "version_info", (3, 12, 1))
    assert "import torch and transformers first" in trap(installed(tensorflow="2.21"))
    assert "import torch and transformers first" not in trap(installed(tensorflow=None))


def test_the_trap_of_seven_dimensions():
    assert high_rank.RELEASES == _traps.HIGH_RANK
    for version in _traps.HIGH_RANK:
        assert f"jaxlib {version} can end a process" in trap(installed(jaxlib=version))
    for version in ("0.10.1", "0.12.0.1", None):
        assert "can end a process" not in trap(installed(jaxlib=version))


def test_the_project_that_has_the_name_of_before(monkeypatch, tmp_path):
    """Found by its distribution: a module of that name alone says nothing."""
    packages = installed()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    (tmp_path / "tojax.py").touch()
    assert "tojax" not in trap(packages)
    about = tmp_path / "tojax-1.0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.4\nName: tojax\nVersion: 1.0.1\n")
    text = trap(packages)
    assert "tojax 1.0.1 is another project" in text and "import anyjax" in text


def test_traps_of_gpus(monkeypatch, tmp_path):
    monkeypatch.setattr(_traps, "torch_cuda", lambda: "12.8")
    monkeypatch.setattr(_traps, "NVIDIA", tmp_path / "nothing")
    assert "a build for CUDA 12.8" in trap() and "there is a GPU" not in trap()
    monkeypatch.setattr(_traps, "NVIDIA", tmp_path)
    assert "a build for CUDA" not in trap()
    assert 'pip install "jax[cuda13]"' in trap()
    assert "unset JAX_PLATFORMS" in trap(JAX_PLATFORMS="cpu")
    assert "there is a GPU" not in trap(jax=GPU)
    assert _doctor._devices(GPU)[0] == "JAX device: 1 x gpu (H100), 85.00 GB each"


def test_the_build_of_torch_is_read_from_its_file(monkeypatch, tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("1 / 0")
    file = tmp_path / "torch" / "version.py"
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    for text, cuda in {
        "cuda: Optional[str] = '12.8'\n": "12.8",
        "cuda: Optional[str] = None\n": None,
    }.items():
        file.write_text(text)
        assert _traps.torch_cuda() == cuda


def test_a_small_disk(monkeypatch):
    usage = _traps.shutil.disk_usage(Path.cwd())
    monkeypatch.setattr(_traps.shutil, "disk_usage", lambda path: usage._replace(free=2_000_000))
    assert "2.00 MB are free for the compilation cache" in trap()


def test_the_hub_folder(monkeypatch):
    for name in ("HF_HOME", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert _machine.hub_folder() == Path("/x/huggingface/hub")
    monkeypatch.setenv("HF_HOME", "/hf")
    assert _machine.hub_folder() == Path("/hf/hub")
    monkeypatch.setenv("HF_HUB_CACHE", "/hub")
    assert _machine.hub_folder() == Path("/hub")


@pytest.mark.processes
def test_imports_that_fail(monkeypatch, tmp_path):
    (tmp_path / "broken.py").write_text("import os\nraise SystemError('no luck')")
    (tmp_path / "killed.py").write_text("import os\nos.kill(os.getpid(), 9)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    package = lambda name: _packages.Package(name, name, "1.0", None, "")
    assert _packages.import_problem(package("json")) == ""
    problem = _packages.import_problem(package("broken"))
    assert problem == "cannot be imported: SystemError: no luck"
    assert _packages.import_problem(package("killed")) == "cannot be imported: exit code -9"
