"""``with on_jax():``, inside of which new tensors are on JAX."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax

from anyjax.errors import Unsupported
from anyjax.torch.core import current_trace
from anyjax.torch.eager import dispatch, random_keys, set_data
from anyjax.torch.eager.factories import Factories
from anyjax.torch.eager.functions import Functions
from anyjax.torch.eager.tensor import EagerTensor

SERVED_BY = dispatch, set_data  # their import makes tensors work


@contextlib.contextmanager
def on_jax(rng: jax.Array | None = None) -> Iterator[None]:
    """Runs torch code on JAX arrays, operator by operator.

    New tensors, also those that modules make of themselves, hold arrays; operators on them run in
    JAX by the lowerings that ``anyjax.from_torch`` uses, each compiled once for the same shapes.
    torch's autograd, optimizers, hooks, views and in-place writes work on them as on any tensor.
    ``x.jax()`` is the array, ``interop.torch_view(array)`` a tensor around one; nothing is copied.

    Tensors made elsewhere stay torch's. As between two devices of torch, they mix with those on JAX
    only where they have no dimensions, as indices and in ``copy_``; ``interop.to_jax`` moves them.
    Tensors on JAX go on to work after the context is left, which only decides where new ones are.
    It holds for this thread, and changes nothing of torch's.

    Args:
      rng: a key that random operators draw from. Without one, torch's own generator gives their
        seeds, so that ``torch.manual_seed`` and ``generator=`` mean what they mean in torch; the
        numbers are JAX's.

    Raises:
      Unsupported: inside, for float64 without ``jax_enable_x64``, tensors on "meta" beside those on
        JAX, or torch's own tensors beside them.
      MissingRng: inside a function that JAX compiles, for random numbers without ``rng``.

    Example:
      >>> import torch
      >>> with anyjax.torch.on_jax():
      ...     layer = torch.nn.Linear(3, 2)
      ...     x = torch.ones(4, 3)
      ...     layer(x).sum().backward()
      >>> layer.weight.grad.jax()
      Array([[4., 4., 4.],
             [4., 4., 4.]], dtype=float32)
    """
    if current_trace.active():
        raise Unsupported(
            "on_jax inside a model that anyjax traces",
            why="its tensors are JAX's already",
            do="leave it out: anyjax.from_torch runs the code on JAX arrays",
        )
    keys = None if rng is None else random_keys.Seeded(rng)
    with random_keys.drawing(keys), contextlib.ExitStack() as stack:
        if not Factories.inside():
            stack.enter_context(Factories())
            stack.enter_context(Functions())
        yield


EagerTensor.context = staticmethod(on_jax)
