"""Graphs of ONNX in JAX beside onnxruntime: the files of tests/conformance/test_onnx_files.py.

Steady calls in turns, the best of the rounds, on as many threads as there are cores; below 1 anyjax
is faster. ``python benchmarks/onnx_files.py [--rounds 20] [--files silero_vad ...]``
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import jax
import onnxruntime

import anyjax
from tests.conformance.test_onnx_files import FILES, read


def best(calls, rounds):
    """The shortest time of each call, in seconds."""
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - began)
    return {name: min(x) for name, x in times.items()}


def measured(name, rounds):
    """(Seconds of anyjax's conversion and first call, following calls of anyjax, of onnxruntime)"""
    proto, inputs = read(name)
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), quiet)
    feeds = {x.name: v for x, v in zip(session.get_inputs(), inputs)}
    began = time.perf_counter()
    model = anyjax.from_onnx(proto)
    ours = lambda: jax.block_until_ready(model(*inputs))
    ours()
    first = time.perf_counter() - began
    times = best({"anyjax": ours, "onnxruntime": lambda: session.run(None, feeds)}, rounds)
    return first, times["anyjax"], times["onnxruntime"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--files", nargs="+", default=[*FILES], choices=[*FILES])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| file | first call, s | onnxruntime, ms | anyjax / onnxruntime |")
    print("| --- | --- | --- | --- |")
    for name in options.files:
        first, ours, theirs = measured(name, options.rounds)
        print(f"| {name} | {first:.2f} | {1e3 * theirs:.2f} | {ours / theirs:.2f} |", flush=True)


if __name__ == "__main__":
    main()
