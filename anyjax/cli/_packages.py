"""The packages that anyjax uses, as they are installed, and the features that each serves."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata

from anyjax.errors import CORE, TESTED

DISTRIBUTIONS = {
    "jax_plugins": ("jax-cuda12-plugin", "jax-cuda13-plugin"),
    "orbax": ("orbax-checkpoint",),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-macos"),
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu"),
}
HF = "torch transformers huggingface_hub tokenizers tqdm"
# name, packages, the requirement that brings them
FEATURES = (
    ("PyTorch modules", "torch", "anyjax[torch]"),
    ("load Hugging Face checkpoints", HF, "anyjax[hf]"),
    ("generate text", HF, "anyjax[hf]"),
    ("GGUF files", f"{HF} gguf", "anyjax[gguf]"),
    ("pipelines of diffusers", f"{HF} diffusers", "anyjax[diffusers]"),
    ("TensorFlow models", "tensorflow keras", "anyjax[tensorflow]"),
    ("ONNX in", "onnx", "anyjax[onnx]"),
    ("simulators of atoms", "ase openmm lammps_jax", "anyjax[atoms]"),
    ("ONNX out", "jax2onnx onnx onnxruntime", "anyjax[onnx]"),
    ("Flax modules", "flax", "anyjax[flax]"),
    ("Flax source", "torch flax ruff", "anyjax[torch,flax]"),
    ("training", "optax orbax grain qwix tqdm", "anyjax[train]"),
    ("Ray", f"{HF} optax ray", "anyjax[ray]"),
    ("programs for TPUs", "libtpu", "anyjax[tpu]"),
    ("programs for GPUs", "jax_plugins", "anyjax[cuda]"),
    ("pictures", "matplotlib", "matplotlib"),
    ("command line", "typer rich", "anyjax[cli]"),
    ("size limit of the cache", "filelock", "anyjax[cli]"),
)
GENERATION = {"transformers": "5.8"}  # the first version that generates, see README.md
LONGEST = 300  # seconds of an import


@dataclass(frozen=True)
class Package:
    """An installed package, or one that is missing: then ``version`` is None.

    Attributes:
      distribution: its name for pip.
      lowest: the lower bound of pyproject.toml.
      problem: why it cannot be used, empty if nothing is known against it.
    """

    name: str
    distribution: str
    version: str | None
    lowest: str | None
    problem: str

    @property
    def tested(self) -> bool | None:
        """Whether the version is in the tested range; None where no range is recorded."""
        if self.version is None or self.name not in TESTED:
            return None
        first, last = (numbers(x)[:2] for x in TESTED[self.name])
        return first <= numbers(self.version)[:2] <= last

    @property
    def tested_with(self) -> str:
        """The tested versions, empty where none are recorded."""
        return " to ".join(dict.fromkeys(TESTED.get(self.name, ())))

    @property
    def note(self) -> str:
        """The problem, or that the version is not a tested one."""
        return self.problem or ("not tested, may fail" if self.tested is False else "")

    def fix(self) -> str:
        """Returns the command that installs the same version again."""
        return f'pip install --force-reinstall "{self.distribution}=={self.version}"'


def numbers(version: str) -> tuple[int, ...]:
    """Returns the numbers of a version.

    Example:
      >>> numbers("2.10.0+cu128")
      (2, 10, 0)
    """
    return tuple(int(x) for x in re.findall(r"\d+", version.partition("+")[0]))


def packages() -> dict[str, Package]:
    """Looks all packages up by name; nothing is imported."""
    bounds = _lower_bounds()
    served = [name for _, names, _ in FEATURES for name in names.split()]
    return {name: _package(name, bounds) for name in dict.fromkeys([*CORE, *served])}


def _lower_bounds() -> dict[str, str]:
    try:
        requirements = metadata.requires("anyjax") or []
    except Exception:  # a source tree that is not installed
        return {}
    matches = (re.match(r"([\w.-]+)(?:\[.*?\])?>=([\d.]+)", x) for x in requirements)
    return {m[1].lower().replace("_", "-"): m[2] for m in matches if m}


def _package(name: str, bounds: dict[str, str]) -> Package:
    version, distribution = None, name
    problem = "not installed"
    for distribution in DISTRIBUTIONS.get(name, (name,)):
        try:
            version = metadata.version(distribution)
            problem = "" if version else "its metadata is damaged"
            break
        except metadata.PackageNotFoundError:
            continue
        except Exception as error:  # damaged metadata raises many classes
            problem = f"its metadata is damaged: {type(error).__name__}"
    lowest = bounds.get(DISTRIBUTIONS.get(name, (name,))[0].replace("_", "-"))
    try:
        is_there = importlib.util.find_spec(name) is not None
    except Exception as error:
        is_there, problem = False, f"cannot be looked up: {type(error).__name__}: {error}"
    if version and not is_there:
        problem = problem or "its files are missing"
    elif version and lowest and numbers(version) < numbers(lowest):
        problem = f"too old: {lowest} is needed"
    elif is_there and problem == "not installed":
        version, problem = "unknown", ""  # without metadata, as from a source tree
    return Package(name, distribution, version, lowest, problem)


def import_problem(package: Package) -> str:
    """Imports a package in a process of its own, and returns its error, empty without one."""
    module = "orbax.checkpoint" if package.name == "orbax" else package.name
    command = [sys.executable, "-c", f"import {module}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=LONGEST
        )
    except subprocess.TimeoutExpired:
        return f"its import takes more than {LONGEST} s"
    if done.returncode == 0:
        return ""
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return f"cannot be imported: {last}"


@dataclass(frozen=True)
class Feature:
    """A feature, whether it works, and if not why and the command that helps."""

    name: str
    works: bool
    why: str
    fix: str


def features(installed: dict[str, Package]) -> list[Feature]:
    """Returns the features, as the packages allow them."""
    return [_feature(name, names.split(), extra, installed) for name, names, extra in FEATURES]


def _feature(name: str, names: list[str], extra: str, installed: dict[str, Package]) -> Feature:
    bad = [installed[x] for x in names if installed[x].problem]
    if not bad and name == "generate text":
        for package, lowest in GENERATION.items():
            version = installed[package].version or ""
            if version != "unknown" and numbers(version) < numbers(lowest):
                why = f"{package} {version}: {lowest} is needed"
                return Feature(name, False, why, f'pip install "{package}>={lowest}"')
    if not bad:
        return Feature(name, True, "", "")
    why = ", ".join(f"{x.name} {x.version or ''}".strip() + f" {x.problem}" for x in bad)
    # pip does nothing for a package that is there in a fitting version
    broken = [x.fix() for x in bad if x.version and not x.problem.startswith("too old")]
    missing = len(broken) < len(bad)
    return Feature(name, False, why, " && ".join([f'pip install "{extra}"'] * missing + broken))
