"""How close is equal: one formula for tolerances, one comparison of pytrees.

Two correct programs that add the same numbers in different orders differ by rounding. Each of n
additions is off by at most half a unit in the last place, with a random sign, so the sum drifts
like sqrt(n). ``tolerance`` says so with one constant; a test that needs more states its reduction
length, not a number of its own.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Over 100,000 normal numbers in float32, XLA and torch differ by up to 2 eps of the largest value
# (erf, lgamma, tanh, gelu), and by less than sqrt(n)/4 eps in sums and products of n terms.
SAFETY = 4.0


def tolerance(dtype: Any, reduction: int = 1) -> float:
    """The error that rounding explains: ``4 * eps(dtype) * sqrt(reduction)``, 0 for integers.

    Args:
      dtype: of the less precise side; a complex dtype counts as its real one.
      reduction: how many numbers each result sums: the contracted length of a matmul, the window of
        a convolution; for a chain of layers the sum of their lengths.

    Returns:
      The largest error, as a fraction of the largest value.

    Example:
      >>> tolerance("float32"), tolerance("float32", reduction=64) / tolerance("float32")
      (4.76837158203125e-07, 8.0)
      >>> tolerance("int32")
      0.0
    """
    if reduction < 1:
        raise ValueError(f"a reduction has at least one term, not {reduction}")
    dtype = jnp.dtype(dtype)
    if not jnp.issubdtype(dtype, jnp.inexact):
        return 0.0
    return SAFETY * float(jnp.finfo(dtype).eps) * float(reduction) ** 0.5


def assert_close(
    got: Any,
    want: Any,
    *,
    reduction: int = 1,
    rtol: float | None = None,
    scale: float | None = None,
) -> None:
    """Fails unless two pytrees have the same structure, shapes and values up to rounding.

    NaN must meet NaN, infinity must meet the same infinity. All other values of a leaf may differ
    by ``rtol`` times the leaf's largest wanted magnitude: where large terms cancel, the small
    remainder is no measure.

    Args:
      got, want: pytrees of numpy, JAX or torch arrays and Python numbers.
      reduction: see ``tolerance``.
      rtol: in place of the formula.
      scale: in place of the largest wanted magnitude, where everything cancels.

    Raises:
      AssertionError: it names the first leaf that differs and where in it.

    Example:
      >>> assert_close({"a": 1.0}, {"a": 1.0})
      >>> assert_close({"a": np.ones(3)}, {"a": np.array([1.0, 1.0, 2.0])})
      Traceback (most recent call last):
      AssertionError: leaf ['a'] float64[3]: largest error 1 at [2] (got 1.0, want 2.0), allowed ...
    """
    have, shape = jax.tree_util.tree_flatten_with_path(got)
    wanted, wanted_shape = jax.tree_util.tree_flatten_with_path(want)
    if shape != wanted_shape:
        raise AssertionError(f"the structures differ:\n  got  {shape}\n  want {wanted_shape}")
    for (path, a), (_, b) in zip(have, wanted, strict=True):
        if complaint := _compare(_to_numpy(a), _to_numpy(b), reduction, rtol, scale):
            raise AssertionError(f"leaf {jax.tree_util.keystr(path) or '(the root)'} {complaint}")


def _compare(got, want, reduction, rtol, scale) -> str | None:
    """What is wrong with one leaf, None where nothing is."""
    head = f"{want.dtype}[{','.join(map(str, want.shape))}]: "
    if got.shape != want.shape:
        return head + f"got shape {got.shape}, want {want.shape}"
    if rtol is None:
        rtol = max(tolerance(side.dtype, reduction) for side in (got, want))
    a, b = _reals(got), _reals(want)
    for what, there in (("NaN", np.isnan), ("inf", np.isposinf), ("-inf", np.isneginf)):
        if (odd := there(a) != there(b)).any():
            return head + f"{what} on one side only" + _where(odd, got, want)
    finite = np.isfinite(b)
    if scale is None:
        scale = float(np.abs(b[finite]).max(initial=0.0))
    error = np.abs(np.subtract(a, b, out=np.zeros_like(b), where=finite))
    worst, allowed = float(error.max(initial=0.0)), rtol * scale
    if worst <= allowed:
        return None
    place = _where(error == worst, got, want)
    return head + f"largest error {worst:.3g}{place}, allowed {allowed:.3g} (rtol {rtol:.3g})"


def _where(mask: np.ndarray, got: np.ndarray, want: np.ndarray) -> str:
    """The first place of the mask, with the values of both sides there."""
    at = tuple(int(i) for i in np.argwhere(mask)[0][: want.ndim])
    return f" at {list(at)} (got {got[at]}, want {want[at]})"


def _reals(x: np.ndarray) -> np.ndarray:
    """The values wide enough to subtract: complex as pairs, small floats as float64."""
    if x.dtype.kind == "c":
        return np.stack([x.real, x.imag], axis=-1).astype(np.float64)
    # int64 beyond 2**53 would round in float64, and then differ or agree for the wrong reason
    return x.astype(np.longdouble if x.dtype.kind in "iu" else np.float64)


def _to_numpy(leaf: Any) -> np.ndarray:
    """A leaf of any framework as numpy, with its own dtype."""
    if type(leaf).__module__.split(".")[0] == "torch":
        return _from_torch(leaf)
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    if array.dtype.kind in "OUS":
        raise AssertionError(f"a leaf is no array but a {type(leaf).__name__}: {leaf!r}")
    return array


def _from_torch(tensor: Any) -> np.ndarray:
    import torch

    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize < 4:  # numpy knows no bfloat16
        name = str(tensor.dtype).removeprefix("torch.")
        return tensor.to(torch.float32).numpy().astype(jnp.dtype(name))
    return tensor.numpy()
