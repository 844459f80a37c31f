"""When an output is torch's: shape and dtype exactly, values up to rounding, by one formula.

A value may differ by ``tolerance(dtype, n)`` of its own magnitude plus the output's usual one, n
being the number of values that went in. Where that is not enough, torch computes the same in
float64, and the result has to be as near to that as torch's own was, up to a factor: what torch
itself lost, and what rounding the inputs once would change, is no fault.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from anyjax.torch.core import interop
from anyjax.torch.core.dtypes import to_jax
from tests.tolerance import tolerance

FEWEST = 16  # a special function of one number is a polynomial of some 16 terms
SMALL = 0.01  # beside operands of about 1: where everything cancels, what is left is rounding
FACTOR = 8.0  # two programs' rounding, and the largest of many errors beside the usual one


def tensors_in(out) -> list[torch.Tensor]:
    return [x for x in tree_leaves(out) if isinstance(x, torch.Tensor)]


def arrays_in(out) -> list[jax.Array]:
    return [x for x in jax.tree.leaves(out) if isinstance(x, jax.Array)]


def shapes(out) -> list:
    """Shapes and dtypes of all arrays, as JAX has them."""
    dtype = lambda x: to_jax(x.dtype) if isinstance(x, torch.Tensor) else x.dtype
    arrays = [x for x in tree_leaves(out) if isinstance(x, (torch.Tensor, jax.Array))]
    return [(tuple(x.shape), str(dtype(x))) for x in arrays]


def rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.abs(x) ** 2))) if x.size else 0.0


def error_of(want: torch.Tensor, got, inputs: int = FEWEST, exact=None) -> str | None:
    """What is wrong with an output, None if nothing.

    Args:
      want, got: torch's output and the array to judge.
      inputs: how many numbers went in.
      exact: float64 results for the same inputs, and for inputs rounded once more, in some draws.
    """
    want = interop.to_jax(want)
    if want.shape != got.shape:
        return f"shape {got.shape}, torch {want.shape}"
    if want.dtype != got.dtype:
        return f"dtype {got.dtype}, torch {want.dtype}"
    kind = np.complex128 if jnp.issubdtype(want.dtype, jnp.complexfloating) else np.float64
    if not jnp.issubdtype(want.dtype, jnp.inexact):
        kind = np.asarray(want).dtype
    eps = tolerance(want.dtype, max(inputs, FEWEST))
    want, got = np.asarray(want).astype(kind), np.asarray(got).astype(kind)
    if kind not in (np.float64, np.complex128):
        return None if np.array_equal(want, got) else _off(want != got, want, got)
    finite = np.isfinite(want)
    if not np.array_equal(want[~finite], got[~finite], equal_nan=True):
        return "non-finite values differ"
    want, got = want[finite], got[finite]
    allowed = eps * (np.abs(want) + rms(want) + SMALL)
    near = want
    if exact is not None:
        near, *moved = (x.resolve_conj().numpy().astype(kind)[finite] for x in exact)
        allowed = allowed + FACTOR * rms(near - want)
        spread = max(rms(x - near) for x in moved)
        if spread < np.sqrt(eps) * rms(near):  # more is a step, not rounding
            allowed = allowed + FACTOR * spread
    with np.errstate(invalid="ignore"):
        wrong = ~(np.abs(near - got) <= allowed)
    return _off(wrong, want, got) if wrong.any() else None


def _off(wrong, want, got) -> str:
    place = int(np.flatnonzero(wrong)[0])
    a, b = got.reshape(-1)[place], want.reshape(-1)[place]
    return f"{wrong.sum()} of {wrong.size} values are off, such as {a:.8g}, torch {b:.8g}"


def compare(want, got, inputs: int = FEWEST, exact=None) -> str | None:
    """The first thing wrong between two trees of outputs, arrays and Python numbers.

    ``exact()`` gives the float64 results; it is called only where it decides.
    """
    kinds = (bool, int, float, complex)
    numbers = [[x for x in tree_leaves(o) if isinstance(x, kinds)] for o in (want, got)]
    want, got = tensors_in(want), arrays_in(got)
    if len(want) != len(got):
        return f"{len(got)} outputs, torch has {len(want)}"
    if [len(x) for x in numbers[:1]] != [len(x) for x in numbers[1:]] or not np.allclose(
        *map(np.asarray, numbers), rtol=1e-5, equal_nan=True
    ):
        return f"{numbers[1]}, torch {numbers[0]}"
    for i, pair in enumerate(zip(want, got)):
        wrong = error_of(*pair, inputs)
        if wrong and exact is not None and pair[0].is_floating_point() | pair[0].is_complex():
            try:
                pairs = list(zip(*map(tensors_in, exact())))
            except Exception:  # no float64 form: the kernel or a buffer takes no other dtype
                return wrong
            wrong = error_of(*pair, inputs, pairs[i])
        if wrong:
            return wrong
    return None
