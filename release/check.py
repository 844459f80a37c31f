"""Builds the wheel and the sdist, and installs them as users do: is it a release?

python release/check.py                    # everything; a virtual environment for each line
python release/check.py --extras core,hf   # some of the extras; --extras "" none
python release/check.py --pythons 3.12     # some of the Pythons; --pythons "" none
python release/check.py --packages DIST    # a wheel and an sdist that are built already

Each extra has a probe, release/probes/EXTRA.py, that does what the extra is for: the wheel, the
tested versions, this Python. It runs outside of the repository with a folder of inputs: `saved`
(what model.save wrote), `tiny-llama`, `tiny.gguf`.

On each Python wheel and sdist are installed with the newest releases of everything that they need,
and on the oldest one with the lowest that they allow: README's first example runs, `anyjax doctor`,
and a model of each frontend (release/probes/frontends.py). A Python that is not here is told.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROBES = Path(__file__).with_name("probes")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ("core", *(x for x in PROJECT["optional-dependencies"] if x not in ("dev", "docs")))
CONSTRAINTS = ROOT / ("constraints.txt" if sys.version_info < (3, 12) else "constraints-3.12.txt")
REFUSED = {"atoms": "jaxlib"}  # lammps-jax excludes the tested one

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
FRONTENDS = "hf,cli,onnx,tensorflow"
LOWEST = "hf,cli"  # TensorFlow and ONNX pin what JAX needs newer

INPUTS = """
import sys, numpy as np, anyjax, torch, transformers
from benchmarks import gguf_file
folder = sys.argv[1]
llama = transformers.AutoModelForCausalLM.from_pretrained("examples/tiny-llama")
gguf_file.write(llama, folder + "/tiny.gguf", None)
module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
model = anyjax.from_torch(module)
x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
model.save(folder + "/saved", x)
np.save(folder + "/saved.npy", model(x))
"""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Runs a command and returns what it prints; its output is shown where it fails."""
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment = clean | {"JAX_PLATFORMS": "cpu", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        print(done.stdout)
        raise SystemExit(f"failed: {' '.join(map(str, command))}")
    return done.stdout


def packages(folder: Path) -> Path:
    """Builds wheel and sdist into a folder, checks what is in them, and returns the wheel."""
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    run(sys.executable, "-m", "twine", "check", "--strict", *folder.iterdir())
    return next(folder.glob("*.whl"))


def assert_contents(wheel: Path) -> None:
    """Checks that a wheel has the whole package and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    pages = run("git", "ls-files", "docs/errors").split()
    tracked = [*run("git", "ls-files", "anyjax").split(), *_moved(pages)]
    missing = {name for name in tracked if name not in names}
    further = {name for name in names - set(tracked) if ".dist-info/" not in name}
    if missing or further:
        raise SystemExit(f"{wheel.name}: missing {sorted(missing)}, not tracked {sorted(further)}")


def _moved(pages: list[str]) -> list[str]:
    """Returns where a wheel has the pages of errors, which `anyjax explain` shows."""
    return [page.replace("docs/errors", "anyjax/pages") for page in pages]


def probe(extra: str, wheel: Path, inputs: Path) -> str:
    """Installs the wheel with an extra into an empty environment, and runs the extra's probe."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "bin", "python")
        requirement = str(wheel) + ("" if extra == "core" else f"[{extra}]")
        pins = CONSTRAINTS.read_text().splitlines(True)
        tested = Path(folder, "constraints.txt")
        tested.write_text("".join(x for x in pins if x.split("==")[0] != REFUSED.get(extra)))
        run(python, "-m", "pip", "install", "-q", requirement, "-c", tested)
        run(python, "-m", "pip", "check")
        # -P: a probe may have the name of a package.
        return run(python, "-P", PROBES / f"{extra}.py", inputs, cwd=Path(folder))


def interpreter(version: str) -> str | None:
    """Returns a Python of this version: of the path, or of pyenv."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    places = [shutil.which(f"python{version}"), *versions.glob(f"{version}.*/bin/python")]
    for place in filter(None, places):
        ask = [place, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(ask, capture_output=True, text=True)
        if done.stdout.strip() == version:  # what pyenv has on the path may be another one, or none
            return str(place)
    return None


def lowest(extras: str) -> list[str]:
    """Returns the lowest versions that the project allows, as constraints."""
    names = {"torch", *extras.split(",")}  # which hf brings
    optional = PROJECT["optional-dependencies"]
    lines = [*PROJECT["dependencies"], *(x for name in sorted(names) for x in optional[name])]
    bounds = (re.match(r"([\w.-]+)(?:\[.*\])?>=([\w.]+)", x) for x in lines)
    return sorted({f"{x[1]}=={x[2]}" for x in bounds if x})


def first_example() -> tuple[str, str]:
    """Returns README's first example and the line that it prints."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code, printed = (
        re.search(rf"^```{kind}\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
        for kind in ("python", "text")
    )
    return code[1], printed[1].strip()


def as_users_do(
    python: str, package: Path, inputs: Path, constraints: list[str], extras: str
) -> str:
    """Installs a package into an empty environment, and does what a user does on the first day."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(python, "-m", "venv", folder / "venv")
        inside = folder / "venv" / "bin"
        (folder / "constraints.txt").write_text("\n".join(constraints))
        (folder / "work").mkdir()
        requirement = f"{package}[{extras}]"
        run(inside / "pip", "install", "-q", requirement, "-c", folder / "constraints.txt")
        run(inside / "pip", "check")
        code, printed = first_example()
        (folder / "work" / "example.py").write_text(code)
        out = run(inside / "python", "example.py", cwd=folder / "work")
        if printed not in out:
            raise SystemExit(f"README's example prints {out.splitlines()[:1]}, not {printed}")
        run(inside / "anyjax", "doctor", cwd=folder / "work")
        probed = run(inside / "python", "-P", PROBES / "frontends.py", inputs, cwd=folder / "work")
        return probed.strip().splitlines()[-1]


def check_pythons(versions: list[str], wheel: Path, sdist: Path, inputs: Path) -> None:
    """Installs wheel and sdist on each Python, and says which are not here."""
    for version in versions:
        python = interpreter(version)
        if python is None:
            print(f"Python {version}: absent, nothing was tested on it", flush=True)
            continue
        cases = {"wheel, newest": (wheel, [], FRONTENDS), "sdist, newest": (sdist, [], FRONTENDS)}
        if version == PYTHONS[0]:
            cases["wheel, lowest"] = wheel, lowest(LOWEST), LOWEST
        for case, (package, constraints, extras) in cases.items():
            print(f"Python {version}, {case}, [{extras}]: ", flush=True, end="")
            print(as_users_do(python, package, inputs, constraints, extras), flush=True)


def main() -> None:
    """Checks the release, and ends the process with 1 where something fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extras", default=",".join(EXTRAS), help="with commas; core is none")
    parser.add_argument("--pythons", default=",".join(PYTHONS), help="with commas")
    parser.add_argument("--packages", type=Path, help="folder of a wheel and an sdist")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        if options.packages:
            wheel = next(options.packages.glob("*.whl"))
        else:
            wheel = packages(Path(scratch, "dist"))
        assert_contents(wheel)
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
        inputs = Path(scratch, "inputs")
        shutil.copytree(ROOT / "examples/tiny-llama", inputs / "tiny-llama")
        run(sys.executable, "-c", INPUTS, inputs)
        for extra in filter(None, options.extras.split(",")):
            print(f"{extra:<12}", flush=True, end="")
            print(probe(extra, wheel, inputs).strip().splitlines()[-1], flush=True)
        versions = [*filter(None, options.pythons.split(","))]
        check_pythons(versions, wheel, next(wheel.parent.glob("*.tar.gz")), inputs)


if __name__ == "__main__":
    main()
