"""One evaluation of a graph. A frontend derives its own from it, which brings the nodes, the table
of rows and that of numpy functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

import jax

from anyjax.calls.taps import Readings
from anyjax.errors import AnyjaxError, MissingRng
from anyjax.graphs.origins import Origins
from anyjax.numerics.wide_integers import Checks
from anyjax.typing import PyTree


class Drawing(Protocol):
    """A node, by its operator."""

    @property
    def op(self) -> object: ...


class Evaluation:
    """The key of a call and how often it was drawn from, what taps read, the origins of values and
    the conditions on them.
    """

    def __init__(
        self,
        rng: jax.Array | None = None,
        readings: Readings | None = None,
        checks: Checks | None = None,
    ):
        self.rng, self.readings, self.drawn = rng, readings, 0
        if checks is not None:
            self.checks: Checks = checks
        self.origins = Origins()

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

    def fail(self, error: Exception, place: Callable[[], str], within: str = "") -> NoReturn:
        """Raises the error again, with the innermost node that it comes from and the arguments that
        decided it.
        """
        named = self.origins.name(error)
        if not getattr(named, "of_node", False):
            named.of_node = True  # type: ignore[attr-defined]
            if not isinstance(named, AnyjaxError):
                named.add_note(f"in {place()}{within}")
            elif not named.where:
                AnyjaxError.__init__(named, named.what, where=place(), why=named.why, do=named.do)
        if named is error:
            raise error
        raise named from error

    def tapped(
        self,
        path: str,
        value: PyTree,
        inputs: Sequence[PyTree],
        read: Callable[[Sequence[PyTree]], PyTree],
        as_jax: Callable[[PyTree], PyTree],
        is_known: Callable[[PyTree], bool],
    ) -> Any:
        """Returns a value with the edits of the taps on its path; lenient ones leave values as they
        are that the program does not compute.
        """
        readings = self.readings
        assert readings is not None
        fixed = is_known(value)
        taps = [i for i in readings.at(path) if not (fixed and readings.is_lenient_edit(i))]
        if not taps:
            return value
        edit = lambda function, value: as_jax(function(as_jax(value)))
        readings.enter(taps, path, inputs, read, edit)
        return readings.leave(taps, path, value, as_jax, edit)
