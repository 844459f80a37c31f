"""Random keys of a trace: each draw folds its number into the key that the caller gave."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax

from anyjax.errors import MissingRng
from anyjax.torch.core import diagnostics


class Keys:
    """Keys of ``rng``, None where the caller gave none."""

    def __init__(self, rng: jax.Array | None):
        self.rng, self.draws = rng, 0

    def _next(self) -> jax.Array:
        assert self.rng is not None
        self.draws += 1
        return jax.random.fold_in(self.rng, self.draws)

    def draw(self, op: object) -> jax.Array:
        """Returns a fresh key for one random operator.

        Raises:
          MissingRng: the caller gave none.
        """
        if self.rng is None:
            raise MissingRng(
                f"{op} draws random numbers and there is no rng",
                where=diagnostics.where(),
                why="a JAX function gets its randomness as an argument",
                do="pass rng=jax.random.key(0), or use model.eval() if nothing should be random",
            )
        return self._next()

    def split(self, count: int) -> jax.Array | None:
        """Keys for parts that JAX traces on their own, None where the caller gave none."""
        return None if self.rng is None else jax.random.split(self._next(), count)

    @contextlib.contextmanager
    def of(self, rng: jax.Array | None) -> Iterator[None]:
        """Draws from another key for a while."""
        outer = self.rng, self.draws
        self.rng, self.draws = rng, 0
        try:
            yield
        finally:
            self.rng, self.draws = outer
