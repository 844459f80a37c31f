"""Keys of one evaluation of a graph: a new one for every node that draws."""

from __future__ import annotations

from typing import Protocol

import jax

from anyjax.errors import MissingRng


class Drawing(Protocol):
    """A node, by its operator."""

    @property
    def op(self) -> object: ...


class Draws:
    """The key of a call, and how many nodes have drawn from it."""

    rng: jax.Array | None
    drawn: int = 0

    def key(self, node: Drawing) -> jax.Array:
        """Returns a new key for every node that draws.

        Raises:
          MissingRng: the caller gave none.
        """
        if self.rng is None:
            raise MissingRng(
                f"{node.op} draws random numbers",
                why="no key was given",
                do="pass rng=jax.random.key(0)",
            )
        self.drawn += 1
        return jax.random.fold_in(self.rng, self.drawn)
