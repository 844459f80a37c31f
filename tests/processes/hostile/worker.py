"""The process that reads mutants, one after another, as it is told on its standard input.

It watches for what must not happen: code of a file that runs, a path outside of the folder, memory,
time. What ends the process is seen by the one that started it.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from anyjax.errors import AnyjaxError
from tests.processes.hostile.corpus import BY_NAME
from tests.processes.hostile.formats import FORMATS, Values
from tests.processes.hostile.mutators import MARKER, OUTSIDE, Mutant

SECONDS = 20  # for a mutant; the slowest valid file takes 0.5 on an idle core
PEAK = 256 * 2**20  # above what the process had before, in bytes
ADDRESSES = 4 * 2**30
STARTS = {"os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect"}
OF_MEMORY = re.compile(
    r"allocat(e|ing)\b|bad_alloc|MemoryError|out of memory|RESOURCE_EXHAUSTED", re.I
)


class TooSlow(BaseException):
    """The time is over; no `except Exception` stops it."""


class Watch:
    """Notes what Python opens, starts and imports: hooks cannot be removed, so there is one."""

    def __init__(self, outside: Path):
        self.outside, self.events, self.active = str(outside), [], False
        sys.addaudithook(self.note)
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Finds nothing, and notes modules that a file asks for."""
        if self.active and name.startswith("anyjax_payload"):
            self.events.append(f"import {name}")

    def note(self, event: str, args: tuple) -> None:
        if not self.active:
            return
        if event in STARTS:
            self.events.append(f"{event} {args[0]!r}")
        elif event == "open" and isinstance(args[0], (str, bytes)):
            path = os.fsdecode(args[0])
            if os.path.realpath(path).startswith(self.outside + os.sep):
                self.events.append(f"open {path}")


def status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(x for x in lines if x.startswith(field)).split()[1])


def equal(one: Values, other: Values, exact: bool = True) -> bool:
    """Returns whether two readings agree; outputs of two frameworks differ by rounding."""
    same_kind = lambda x, y: x.shape == y.shape and x.dtype == y.dtype
    close = lambda x, y: np.allclose(
        x.astype(np.float64), y.astype(np.float64), rtol=1e-4, atol=1e-5, equal_nan=True
    )
    agree = lambda x, y: x.tobytes() == y.tobytes() if exact else close(x, y)
    return one.keys() == other.keys() and all(
        same_kind(one[k], other[k]) and agree(one[k], other[k]) for k in one
    )


class Bench:
    """The originals, and what anyjax reads in them."""

    def __init__(self, root: Path):
        self.root, self.originals, self.values = root, {}, {}
        (root / OUTSIDE).mkdir()
        self.watch = Watch(root / OUTSIDE)

    def original(self, name: str) -> Values:
        """Returns the values of a format's original, which is written at the first call."""
        if name not in self.values:
            folder = self.root / "originals" / name
            folder.mkdir(parents=True)
            FORMATS[name].write(folder)
            FORMATS[name].read(folder)  # imports what is imported late
            if FORMATS[name].refer is not None:
                FORMATS[name].refer(folder)
            self.originals[name], self.values[name] = folder, FORMATS[name].read(folder)
            if name in ("safetensors", "index"):  # a valid file to be led astray to
                for file in folder.glob("*.safetensors"):
                    shutil.copy(file, self.root / OUTSIDE)
        return self.values[name]

    def judge(self, mutant: Mutant) -> tuple[str, str]:
        """Returns (outcome, detail): refused, same or other; everything else is a failure."""
        original = self.original(mutant.format)
        folder = self.root / "mutant"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.originals[mutant.format], folder)
        (self.root / OUTSIDE / "vocabulary.txt").write_text("secret\n")
        mutant.change(folder, random.Random(mutant.name))
        marker = self.root / OUTSIDE / MARKER
        marker.unlink(missing_ok=True)
        outcome, detail = self._read(mutant, folder, original)
        if marker.exists():
            return "executed", detail
        if self.watch.events:
            return "outside", "; ".join(self.watch.events)[:300]
        if mutant.refused and outcome in ("same", "other"):
            return "accepted", detail
        return outcome, detail

    def _read(self, mutant: Mutant, folder: Path, original: Values) -> tuple[str, str]:
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts here
        before = status("VmRSS")
        values, refusal, raw = None, None, None
        self.watch.events.clear()
        self.watch.active = True
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            values = FORMATS[mutant.format].read(folder)
        except AnyjaxError as error:
            refusal = error
        except TooSlow:
            raw = f"slow: {''.join(traceback.format_exc().splitlines()[-6:])}"
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)
            ours = [
                f"{Path(x.filename).name}:{x.lineno}" for x in where if "/anyjax/" in x.filename
            ]
            raw = f"{type(error).__name__}: {' '.join(str(error).split())[:200]} at {ours[-3:]}"
            if OF_MEMORY.search(raw):
                return "memory", raw
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self.watch.active = False
        if raw is not None:
            return ("slow" if raw.startswith("slow") else "raw"), raw
        if (grown := status("VmHWM") - before) > PEAK:
            return "memory", f"{grown >> 20} MiB"
        if refusal is not None:
            return self._refusal(refusal)
        assert values is not None
        if equal(values, original):
            return "same", ""
        refer = FORMATS[mutant.format].refer
        if refer is None:
            return "different", "no checksum"
        try:
            return ("other" if equal(values, refer(folder), exact=False) else "different"), ""
        except Exception as error:
            return "different", f"the library refuses: {' '.join(str(error).split())[:200]}"

    @staticmethod
    def _refusal(error: AnyjaxError) -> tuple[str, str]:
        chain, cause = [], error
        while cause is not None:
            chain.append(f"{type(cause).__name__}: {cause}")
            cause = cause.__cause__ or cause.__context__
        text = " ".join(str(error).split())[:300]
        if any(OF_MEMORY.search(x[:500]) for x in chain):
            return "memory", " | ".join(" ".join(x.split())[:150] for x in chain)
        if not (error.what and error.why and error.do):
            return "mute", text
        return "refused", f"{type(error).__name__}: {text}"


def stop(*_: object) -> None:
    raise TooSlow


def main() -> None:
    """Reads names, answers with JSON; what libraries print goes nowhere."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    if not os.environ.get("HOSTILE_SHOWN"):
        os.dup2(nowhere, 2)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, stop)
    if find_spec("torch"):  # Keras imports it when a file names a torch layer: that starts ldconfig
        import_module("torch")
    with tempfile.TemporaryDirectory(prefix="anyjax-hostile-") as root:
        bench = Bench(Path(root).resolve())
        for line in sys.stdin:
            mutant = BY_NAME[line.strip()]
            bench.original(mutant.format)
            limit = status("VmSize") + ADDRESSES
            resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
            start = time.monotonic()
            outcome, detail = bench.judge(mutant)
            seconds = time.monotonic() - start
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
            answers.write(json.dumps([outcome, detail, round(seconds, 3)]) + "\n")


if __name__ == "__main__":
    main()
