"""torch's own operator database against anyjax, entry by entry.

python tests/conformance/op_db.py                       # all entries, float32, values under jit
python tests/conformance/op_db.py 'softmax.*' --grad    # entries whose name matches in full
python tests/conformance/op_db.py --dtype int64 --x64 --shard 0/2 -v
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import re
import signal
import sys
import threading
import warnings
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).parents[2]))

import jax
import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.conformance.entries import SAMPLES, TorchFails, case_of, name_of, samples
from tests.conformance.modes import MODES, Eager

STATUSES = ("ok", "eager", "wrong", "error", "skip")
DERIVATIVES = ("grad", "jvp", "compiled", "bucketed", "on_jax_grad")
LIMIT = 60  # seconds of the processor's time for one entry


def supports(entry, mode: str, dtype: torch.dtype) -> bool:
    """Whether torch's CPU kernels claim this dtype, with gradients where the mode needs them."""
    if mode in DERIVATIVES:
        return entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")
    return dtype in entry.supported_dtypes("cpu")


def run(
    entry, mode: str, dtype: torch.dtype, jit: bool = True, count: int = SAMPLES
) -> tuple[str, str]:
    """(one of STATUSES, what happened); "eager" is right, but outside jit alone, by its nature."""
    try:
        with limited(LIMIT):
            return _run(entry, mode, dtype, jit, count)
    except TimeoutError:
        return "error", f"more than {LIMIT} seconds"


def _run(entry, mode, dtype, jit, count):
    derivative = mode in DERIVATIVES
    try:
        chosen = samples(entry, dtype, count, derivative)
    except TimeoutError:
        raise
    except Exception as e:  # the database itself cannot make samples for this dtype
        return "skip", f"{type(e).__name__}: {e}"[:150]
    seen, said = collections.Counter(), ""
    for i, sample in enumerate(chosen):
        try:
            wrong = MODES[mode](case_of(entry, sample, derivative), jit)
        except TimeoutError:
            raise
        except TorchFails as e:
            seen["skip"], said = seen["skip"] + 1, f"torch itself: {e}"
            continue
        except Eager:
            seen["eager"] += 1
            continue
        except Exception as e:
            lines = str(e).strip().splitlines() or [""]
            return "error", f"sample {i}: {type(e).__name__}: {lines[0]}"[:230]
        if wrong:
            return "wrong", f"sample {i}: {wrong}"
        seen["ok"] += 1
    if seen["eager"]:
        return "eager", ""
    return ("ok", "") if seen["ok"] else ("skip", said or "no samples")


@contextlib.contextmanager
def limited(seconds: int):
    """TimeoutError after so much of the processor's time, where the thread can take a signal."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def heading() -> str:
    return f"{'':28}" + "".join(f"{s:>8}" for s in STATUSES) + "   right"


def row(counts, title: str) -> str:
    """Counts, and the percentage of right ones among what torch itself can do."""
    done = sum(counts[s] for s in STATUSES if s != "skip")
    right = counts["ok"] + counts["eager"]
    shown = "".join(f"{counts[s]:8}" for s in STATUSES)
    return f"{title:28}{shown}  {100 * right / max(done, 1):5.1f} % of {done}"


def options_of(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pattern", nargs="?", default=".*", help="matches an entry's whole name")
    parser.add_argument("--dtype", default="float32")
    modes = parser.add_mutually_exclusive_group()
    for mode in MODES:
        modes.add_argument(
            f"--{mode}", dest="mode", action="store_const", const=mode, default="values"
        )
    parser.add_argument("--x64", action="store_true", help="JAX keeps 64-bit dtypes")
    parser.add_argument("--no-jit", dest="jit", action="store_false")
    parser.add_argument("--shard", default="0/1", metavar="I/N", help="every N-th entry, from I on")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="at most so many of an entry")
    parser.add_argument("--out", type=Path, help="append a line of JSON for each entry")
    parser.add_argument("-v", action="store_true", help="print entries that are right, too")
    return parser.parse_args(arguments)


def record(options, entry, status: str, what: str) -> None:
    """For coverage.py."""
    line = {"op": entry.aten_name, "entry": name_of(entry), "mode": options.mode}
    line |= {"dtype": options.dtype, "status": status, "what": what}
    with options.out.open("a") as file:
        file.write(json.dumps(line) + "\n")


def main():
    options = options_of()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    jax.config.update("jax_enable_x64", options.x64)
    dtype, counts = getattr(torch, options.dtype), collections.Counter()
    first, step = map(int, options.shard.split("/"))
    matching = [e for e in op_db if re.fullmatch(options.pattern, name_of(e))]
    chosen = [e for e in matching if supports(e, options.mode, dtype)][first::step]
    for i, entry in enumerate(chosen):
        status, what = run(entry, options.mode, dtype, options.jit, options.samples)
        counts[status] += 1
        if options.out:
            record(options, entry, status, what)
        if status != "ok" or options.v:
            print(f"{status:6} {name_of(entry):45} {what}", flush=True)
        if i % 32 == 31:  # compiled programs take memory
            jax.clear_caches()
    said = [options.mode, options.dtype, "x64" * options.x64, "" if options.jit else "no jit"]
    print(heading(), row(counts, " ".join(filter(None, said))), sep="\n")


if __name__ == "__main__":
    main()
