"""A source around another one, whose params and state it gives in another form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import jax

from anyjax.calls.taps import Tap
from anyjax.numerics import packed_matrix
from anyjax.source import Source, SourceCache

Arrays = Mapping[str, jax.Array]
Self = TypeVar("Self", bound="Wrapped")


@dataclass(frozen=True, eq=False)
class Wrapped:
    """Calls ``base`` with what ``opened`` gives."""

    base: Source
    cache: SourceCache = field(default_factory=SourceCache, repr=False, compare=False, kw_only=True)

    def __eq__(self, other: object) -> bool:
        form = lambda x: [getattr(x, f.name) for f in fields(x) if f.compare]
        return type(self) is type(other) and form(self) == form(other)

    def __hash__(self) -> int:
        return hash(self.base)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.base, name)  # name, signature, module, framework, ...: the base's own

    def opened(self, params: Arrays, state: Arrays) -> tuple[dict, dict]:
        """(params, state) of the base."""
        raise NotImplementedError

    def __call__(self, params, state, args, kwargs, rng=None):
        with packed_matrix.registering():
            return self.base(*self.opened(params, state), args, kwargs, rng)

    def in_mode(self: Self, training: bool) -> Self:
        base = self.base.in_mode(training)
        return replace(self, base=base, cache=self.cache.variant(self.base, base))

    def tapped(self: Self, tap: Tap) -> Self:
        """Returns the same with a tap on the modules of the base."""
        return replace(self, base=self.base.tapped(tap), cache=SourceCache())

    def initial(self, params, state, rng, build=None) -> dict[str, jax.Array]:
        """Returns nothing: params in another form than the base's are not drawn."""
        return {}

    def write_back(self, params, state) -> Any:
        """Returns the source's own module, with the base's params and state."""
        return self.base.write_back(*self.opened(params, state))
