"""torch's own operator database against tojax, entry by entry.

python tests/conformance/op_db.py                       # all entries, float32, values under jit
python tests/conformance/op_db.py 'softmax.*' --grad    # entries whose name matches in full,
gradients too python tests/conformance/op_db.py --dtype int64 -v      # what went wrong, one line
per entry
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import sys
import warnings
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
sys.path.insert(0, str(Path(__file__).parents[2]))

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

import tojax
from tojax.errors import DataDependent
from tojax.torch import weights

SAMPLES = 6


def name_of(entry) -> str:
    """An entry's name with its variant."""
    return entry.name + (f".{entry.variant_test_name}" if entry.variant_test_name else "")


def samples(entry, dtype, grad=False):
    """Up to six samples, spread over what the entry offers."""
    found = list(entry.sample_inputs("cpu", dtype, requires_grad=grad))
    step = max(1, (len(found) - 1) / max(SAMPLES - 1, 1))
    return [found[round(i * step)] for i in range(min(SAMPLES, len(found)))]


def closed(entry, sample):
    """(function of the sample's tensors alone, those tensors)"""
    leaves, structure = tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]

    def function(*tensors):
        full = list(leaves)
        for place, tensor in zip(places, tensors):
            full[place] = tensor
        first, args, kwargs = tree_unflatten(full, structure)
        out = entry.op(first, *args, **kwargs)
        return out if sample.output_process_fn_grad is None else sample.output_process_fn_grad(out)

    return function, [leaves[i] for i in places]


def error_of(want: torch.Tensor, got) -> str | None:
    """What is wrong with an output, None if nothing."""
    want = weights.to_jax(want)
    if want.shape != got.shape:
        return f"shape {got.shape}, torch {want.shape}"
    if want.dtype != got.dtype:
        return f"dtype {got.dtype}, torch {want.dtype}"
    if want.size == 0:
        return None
    kind = np.complex128 if jnp.issubdtype(want.dtype, jnp.complexfloating) else np.float64
    exact = not jnp.issubdtype(want.dtype, jnp.inexact)
    eps = 0 if exact else float(jnp.finfo(want.dtype).eps)
    want, got = np.asarray(want).astype(kind), np.asarray(got).astype(kind)
    finite = np.isfinite(want)
    if not np.array_equal(want[~finite], got[~finite], equal_nan=True):
        return "non-finite values differ"
    if not finite.any():
        return None
    allowed = 200 * eps * np.maximum(np.abs(want[finite]), np.abs(want[finite]).max() * 0.05 + 1e-2)
    worst = np.abs(want[finite] - got[finite])
    if not (worst <= allowed).all():
        return (
            f"off by {worst.max():.3g} where the largest value is {np.abs(want[finite]).max():.3g}"
        )
    return None


def compare(want, got) -> str | None:
    """The first thing wrong between two trees of outputs, arrays and Python numbers."""
    kinds = (bool, int, float, complex)
    numbers = [[x for x in tree_leaves(o) if isinstance(x, kinds)] for o in (want, got)]
    want = [x for x in tree_leaves(want) if isinstance(x, torch.Tensor)]
    got = [x for x in tree_leaves(got) if isinstance(x, jax.Array)]
    if len(want) != len(got):
        return f"{len(got)} outputs, torch has {len(want)}"
    if not np.allclose(*map(np.asarray, numbers), rtol=1e-5, equal_nan=True):
        return f"{numbers[1]}, torch {numbers[0]}"
    return next((e for e in map(error_of, want, got) if e), None)


def values(entry, sample) -> str | None:
    """Compares the outputs under jit."""
    function, tensors = closed(entry, sample)
    with torch.no_grad():
        want, random = (
            function(*[t.detach().clone() for t in tensors]),
            is_random(function, tensors),
        )
    model = tojax.from_torch(function)
    arrays = [weights.to_jax(t) for t in tensors]
    call = lambda *xs: model.apply({}, *xs, rng=jax.random.key(0))
    try:
        got = jax.jit(lambda *xs: arrays_of(call(*xs)))(*arrays)
        want = [x for x in tree_leaves(want) if is_tensor(x)]
    except DataDependent as error:
        if "at " not in error.where and ":" not in error.where:
            return "the DataDependent error names no line"
        got = call(*arrays)  # values decide the shape: right outside jit
    if random:
        return None if shapes(want) == shapes(got) else f"{shapes(got)}, torch {shapes(want)}"
    return compare(want, got)


class RandomOps(TorchDispatchMode):
    """Notes whether a random operator runs."""

    seen = False

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        self.seen |= torch.Tag.nondeterministic_seeded in op.tags
        return op(*args, **(kwargs or {}))


def is_random(function, tensors) -> bool:
    """Whether the result is drawn: then only shapes and dtypes can agree."""
    with RandomOps() as mode:
        function(*[t.detach().clone() for t in tensors])
    return mode.seen


def arrays_of(out) -> list:
    """The arrays of an output; under jit nothing else can be returned."""
    return [x for x in jax.tree.leaves(out) if isinstance(x, jax.Array)]


def is_tensor(x) -> bool:
    return isinstance(x, torch.Tensor)


def shapes(out) -> list:
    """Shapes and dtypes of all arrays."""
    leaves = [weights.to_jax(x) if is_tensor(x) else x for x in tree_leaves(out)]
    return [(tuple(x.shape), str(x.dtype)) for x in leaves if isinstance(x, jax.Array)]


def _floats(out):
    return [x for x in tree_leaves(out) if isinstance(x, torch.Tensor) and x.requires_grad]


def gradients(entry, sample) -> str | None:
    """Compares the gradient of a weighted sum of squares of the outputs."""
    function, tensors = closed(entry, sample)
    given = [t.detach().clone().requires_grad_(t.requires_grad) for t in tensors]
    wanted = [i for i, t in enumerate(given) if t.requires_grad]
    with torch.no_grad():
        if is_random(function, tensors):
            return None  # no two draws have the same gradient
    outs = tree_leaves(function(*[t.clone() if t.requires_grad else t for t in given]))
    used = [
        i for i, x in enumerate(x for x in outs if isinstance(x, torch.Tensor)) if x.requires_grad
    ]
    outs = [x for x in outs if isinstance(x, torch.Tensor)]
    if not wanted or not used:
        return None
    weight = lambda i: 1 + 0.1 * i
    loss = sum((weight(i) * (outs[i].abs() ** 2)).sum() for i in used)
    want = torch.autograd.grad(
        loss, [given[i] for i in wanted], allow_unused=True, materialize_grads=True
    )
    model = tojax.from_torch(function)
    arrays = [weights.to_jax(t) for t in tensors]

    def scalar(chosen):
        full = list(arrays)
        for i, x in zip(wanted, chosen):
            full[i] = x
        got = [
            x
            for x in jax.tree.leaves(model.apply({}, *full, rng=jax.random.key(0)))
            if isinstance(x, jax.Array)
        ]
        return sum((weight(i) * (jnp.abs(got[i]) ** 2)).sum() for i in used)

    got = jax.jit(jax.grad(scalar))([arrays[i] for i in wanted])
    got = [
        jnp.conj(g) if jnp.iscomplexobj(g) else g for g in got
    ]  # JAX's convention is the conjugate of torch's
    return compare(list(want), got)


def run(entry, dtype, grad) -> tuple[str, str]:
    """("ok" | "wrong" | "error" | "skip", what happened)"""
    try:
        chosen = samples(entry, dtype, grad)
    except Exception as e:  # the database itself cannot make samples for this dtype
        return "skip", f"{type(e).__name__}: {e}"[:150]
    for i, sample in enumerate(chosen):
        try:
            wrong = (gradients if grad else values)(entry, sample)
        except Exception as e:
            lines = str(e).strip().splitlines() or [""]
            return "error", f"sample {i}: {type(e).__name__}: {lines[0]}"[:230]
        if wrong:
            return "wrong", f"sample {i}: {wrong}"
    return "ok", ""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "pattern",
        nargs="?",
        default=".*",
        help="regular expression the entry's name matches in full",
    )
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--grad", action="store_true")
    parser.add_argument("-v", action="store_true", help="print entries that are right, too")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dtype, counts = getattr(torch, options.dtype), collections.Counter()
    for entry in op_db:
        name = name_of(entry)
        supported = (
            entry.supported_backward_dtypes("cpu")
            if options.grad
            else entry.supported_dtypes("cpu")
        )
        if (
            not re.fullmatch(options.pattern, name)
            or dtype not in supported
            or (options.grad and not entry.supports_autograd)
        ):
            continue
        status, what = run(entry, dtype, options.grad)
        counts[status] += 1
        if status != "ok" or options.v:
            print(f"{status:6} {name:45} {what}", flush=True)
        jax.clear_caches()
    print(dict(counts))


if __name__ == "__main__":
    main()
