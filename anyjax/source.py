"""The source of a Model, which a frontend makes: a hashable callable that JAX can trace."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol, Self, TypeAlias

import jax
import numpy as np

from anyjax.dtypes import fitting
from anyjax.errors import Unsupported, WrongArguments

Arrays: TypeAlias = Mapping[str, jax.Array]
Result: TypeAlias = tuple[Any, dict[str, jax.Array]]  # of a call: the output, what it wrote


@dataclass(eq=False)
class SourceCache:
    """Programs and notes that calls of a source leave for later ones; copies of it are empty.

    Attributes:
      variants: the caches of the same source in other modes, by mode.
      programs: jitted functions of models, by function and names of weights.
      call_keys: by the key of a call, its program and its kind.
      call_kinds: the one object for all equal kinds of calls.
      static_arguments: by structure of the arguments, names of those that are static by value.
      floats: Python floats so far, by structure and name of an argument.
      calls: an example of each kind of call, by what tells them apart.
      notes: what other parts of the package keep, by a key of their own.

    Example:
      >>> import copy
      >>> copy.copy(SourceCache(notes={"a": 1})).notes
      {}
    """

    variants: dict[Any, SourceCache] = field(default_factory=dict)
    programs: dict[Any, Any] = field(default_factory=dict)
    call_keys: dict[Any, Any] = field(default_factory=dict)
    call_kinds: dict[Any, Any] = field(default_factory=dict)
    static_arguments: dict[Any, set[str]] = field(default_factory=dict)
    floats: dict[Any, dict[Any, bool]] = field(default_factory=dict)
    calls: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    notes: dict[Any, Any] = field(default_factory=dict)

    def __reduce__(self) -> tuple[Any, ...]:
        return SourceCache, ()

    def variant(self, mode: object, other: object) -> SourceCache:
        """Returns the cache for the ``other`` mode; this one is that of ``mode``."""
        self.variants[mode] = self
        new = self.variants.setdefault(other, SourceCache())
        new.variants = self.variants
        return new


class Source(Protocol):
    """A hashable callable that JAX can trace, with params and state as its first arguments.

    Example:
      >>> import torch
      >>> model = anyjax.from_torch(torch.nn.Linear(3, 2))
      >>> source = model.source
      >>> source.framework, source.name, source.positional, source.training
      ('torch', 'Linear', ['input'], (True,))
      >>> source.in_mode(False).training, source.as_array(torch.ones(2)).dtype
      ((False,), dtype('float32'))
      >>> source.write_back(model.params, model.state)
      Linear(in_features=3, out_features=2, bias=True)
      >>> source.compiled(model.params, model.state, (np.ones((1, 3)),), {})  # none: not loaded
    """

    @property
    def framework(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def positional(self) -> list[str]: ...
    @property
    def signature(self) -> inspect.Signature: ...
    @property
    def training(self) -> bool | tuple[bool, ...]: ...
    @property
    def module(self) -> Any: ...
    @property
    def cache(self) -> SourceCache: ...
    @property
    def taps(self) -> tuple[Any, ...]: ...
    @property
    def flags(self) -> Any: ...
    @property
    def layouts(self) -> frozenset[str]: ...
    def __call__(
        self, params: Arrays, state: Arrays, args: tuple[object, ...], kwargs: dict[str, object],
        rng: jax.Array | None = None,
    ) -> Result: ...  # fmt: skip
    def compiled(
        self, params: Arrays, state: Arrays, args: tuple[object, ...], kwargs: dict[str, object],
        rng: jax.Array | None = None,
    ) -> Result | None:  # fmt: skip
        """Returns (output, writes) of a program that is compiled already, None without one."""

    def in_mode(self, training: bool) -> Source:
        """Returns the source for training or for evaluation.

        Raises:
          Unsupported: it has one mode.
        """

    def as_array(self, leaf: object) -> Any:
        """Returns an input leaf as JAX takes it, others than arrays as they are.

        Raises:
          WrongArguments: it is an array that would lose something.
        """

    def tapped(self, tap: Any) -> Source:
        """Returns the source with a tap on its modules, which reads or replaces what they return.

        Example:
          >>> import torch
          >>> model = anyjax.from_torch(torch.nn.Sequential(torch.nn.Tanh()))
          >>> edited = anyjax.transforms.edit(model, {"0": lambda y: 0 * y})
          >>> [tap.pattern for tap in edited.source.taps]  # by tapped
          ['0']
        """

    def write_back(self, params: Arrays, state: Arrays) -> Any:
        """Returns the source framework's own model with these params and state.

        Raises:
          Unsupported: there is none.
        """

    def initial(
        self, params: Arrays, state: Arrays, rng: jax.Array, build: Any = None
    ) -> dict[str, jax.Array]: ...


@dataclass(frozen=True, eq=False)
class SourceBase:
    """The base of all sources: what a frontend has to say besides is in this example.

    Attributes:
      layouts: names of arguments whose values are part of its programs.

    Example:
      >>> class Scaling(SourceBase):
      ...     framework, name, training, module = "mine", "scaling", False, None
      ...     signature = inspect.signature(lambda x: x)
      ...     def __call__(self, params, state, args, kwargs, rng=None):
      ...         return params["scale"] * args[0], {}  # the output, what was written
      >>> anyjax.Model({"scale": np.float32(2)}, {}, Scaling())(np.ones(2))
      Array([2., 2.], dtype=float32)
    """

    layouts: ClassVar[frozenset[str]] = frozenset()
    cache: SourceCache = field(default_factory=SourceCache, repr=False, compare=False, kw_only=True)
    taps: tuple[Any, ...] = field(default=(), repr=False, kw_only=True)  # calls.taps.Tap

    @property
    def positional(self) -> list[str]:
        """Returns the names of the arguments that may be given by position."""
        parameters = self.signature.parameters.items()  # type: ignore[attr-defined]
        return [n for n, p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY)]

    @property
    def flags(self) -> Any:
        """Returns the settings of the framework that a program depends on."""
        return None

    @property
    def unpicklable(self) -> str:
        """The reason why no pickle can hold it, "" where one can."""
        return ""

    def __getstate__(self) -> dict[str, object]:
        """Returns the fields alone: what is cached about them has the ids of this process.

        Raises:
          Unsupported: no pickle can hold it.
        """
        if self.unpicklable:
            raise Unsupported(
                f"pickle of {self.name} from {self.framework}",  # type: ignore[attr-defined]
                why=self.unpicklable,
                do="write it with model.save(folder, *args), and read it with anyjax.load(folder)",
            )
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def compiled(
        self, params: Arrays, state: Arrays, args: tuple[object, ...], kwargs: dict[str, object],
        rng: jax.Array | None = None,
    ) -> Result | None:  # fmt: skip
        """Returns (output, writes) of a program that is compiled already, None without one."""
        return None

    def tapped(self, tap: Any) -> Self:
        """Returns the same source with a tap on its modules.

        Raises:
          Unsupported: its program has no modules.
        """
        framework = self.framework  # type: ignore[attr-defined]
        raise Unsupported(
            f"a look inside of a {framework} program",
            why="its operations belong to no modules",
            do="convert the model from the framework that it was written in",
        )

    def initial(
        self, params: Arrays, state: Arrays, rng: jax.Array, build: Any = None
    ) -> dict[str, jax.Array]:
        """Returns the params and state that initialisers of its own draw from a key, by name; none
        without initialisers.
        """
        return {}

    def as_array(self, leaf: object) -> Any:
        """Turns an input leaf into what JAX takes."""
        refuse_other_arrays(leaf)
        return fitting(np.asarray(leaf)) if isinstance(leaf, (np.ndarray, np.generic)) else leaf


def refuse_other_arrays(leaf: Any) -> None:
    """Raises WrongArguments for what numpy makes an array of, and loses something by it: columns of
    tables, masks, the names of fields.

    Example:
      >>> refuse_other_arrays(np.ones(2))
    """
    numpys = isinstance(leaf, (np.ndarray, np.generic))
    no_numbers = numpys and (leaf.dtype.names or leaf.dtype.kind in "OSUMm")
    if numpys and not (isinstance(leaf, np.ma.MaskedArray) or no_numbers):
        return
    converts = hasattr(leaf, "__array__") or hasattr(leaf, "__array_interface__")
    if not numpys and (isinstance(leaf, jax.Array) or not converts or isinstance(leaf, type)):
        return
    if type(leaf).__module__.startswith("PIL."):
        raise WrongArguments(
            "an argument is a picture of PIL",
            why="a model takes arrays [batch, channels, height, width], scaled as in its training",
            do="use the checkpoint's processor: AutoProcessor.from_pretrained(folder)"
            '(images=picture, return_tensors="np"), or anyjax.hf.pipeline(task, folder)(picture)',
        )
    kind = f"{type(leaf).__module__.partition('.')[0]} {type(leaf).__name__}"
    raise WrongArguments(
        f"an argument is a {kind}{f' of {leaf.dtype}' if no_numbers else ''}",
        why="a model takes arrays of numbers; columns, masks and names of fields would be lost",
        do="give the array that is meant: numpy.asarray(x), x.to_numpy(), x.filled(0)",
    )
