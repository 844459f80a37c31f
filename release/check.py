"""Builds the wheel and the sdist, and installs the wheel with each extra alone: is it a release?

python release/check.py                    # everything; a virtual environment for each extra
python release/check.py --extras core,hf   # some of them
python release/check.py --packages DIST    # a wheel and an sdist that are built already

Each extra has a probe, release/probes/EXTRA.py, that does what the extra is for. It runs outside of
the repository with a folder of inputs: `saved` (what model.save wrote), `tiny-llama`, `tiny.gguf`.
"""

from __future__ import annotations

import argparse
import os
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
        run(python, "-m", "pip", "install", "-q", requirement, "-c", CONSTRAINTS)
        run(python, "-m", "pip", "check")
        # -P: a probe may have the name of a package.
        return run(python, "-P", PROBES / f"{extra}.py", inputs, cwd=Path(folder))


def main() -> None:
    """Checks the release, and ends the process with 1 where something fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--extras", default=",".join(EXTRAS), help="with commas; core is none")
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
        for extra in options.extras.split(","):
            print(f"{extra:<12}", flush=True, end="")
            print(probe(extra, wheel, inputs).strip().splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
