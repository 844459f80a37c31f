"""The waist of the house: a pure function plus its params and state, whichever framework it came
from.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, overload

import jax

from anyjax import saved, summary
from anyjax.calls import call, methods
from anyjax.errors import DataDependent, WrongArguments
from anyjax.numerics import high_rank
from anyjax.source import Source
from anyjax.typing import PyTree

if TYPE_CHECKING:
    import torch

    import anyjax
    from anyjax.calls.initialise import Build
    from anyjax.typing import ArrayLike, Output


high_rank.protect()


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A model as a pure JAX function plus a params pytree.

    Attributes:
      params: what an optimizer updates, by the source's own names.
      state: everything else the model holds: BatchNorm statistics, masks, counters.
      source: the frontend's callable, static.

    It is a pytree of ``params`` and ``state``, so ``jax.device_put(model, sharding)`` and
    ``jax.tree.map`` work.

    Example:
      >>> import jax, numpy as np, torch
      >>> model = anyjax.from_torch(torch.nn.Linear(3, 2))
      >>> x = np.ones((4, 3), np.float32)
      >>> loss = lambda params: (model.apply(params, x) ** 2).mean()
      >>> jax.grad(loss)(model.params)["weight"].shape
      (2, 3)
    """

    params: dict[str, jax.Array]
    state: dict[str, jax.Array]
    source: Source

    def __call__(self, *args: Any, rng: jax.Array | None = None, **kwargs: Any) -> Output:
        """Returns the output, jitted: arrays are traced; bool, int, float, str and None are static
        by themselves.

        Args:
          *args: as the source's forward takes them; numpy, JAX or source tensors in any
            pytree.
          **kwargs: the same, by name.
          rng: a key, where the forward pass draws random numbers.

        Returns:
          What the source returns, in its own classes, with JAX arrays.

        Raises:
          WrongArguments, MissingOps, MissingRng, DataDependent: see anyjax.errors.
          Exception: what the source raises about values that it checks.
        """
        try:
            return call.call(self, args, kwargs, rng)
        except (TypeError, AttributeError, ValueError, RuntimeError) as error:
            self._explain(error, args, kwargs)
            raise

    @overload
    def apply(
        self,
        params: Mapping[str, ArrayLike],
        *args: Any,
        state: Mapping[str, ArrayLike] | None = None,
        rng: jax.Array | None = None,
        mutable: Literal[False] = False,
        **kwargs: Any,
    ) -> Output: ...

    @overload
    def apply(
        self,
        params: Mapping[str, ArrayLike],
        *args: Any,
        mutable: Literal[True],
        state: Mapping[str, ArrayLike] | None = None,
        rng: jax.Array | None = None,
        **kwargs: Any,
    ) -> tuple[Output, dict[str, jax.Array]]: ...

    @overload
    def apply(
        self,
        params: Mapping[str, ArrayLike],
        *args: Any,
        mutable: bool,
        state: Mapping[str, ArrayLike] | None = None,
        rng: jax.Array | None = None,
        **kwargs: Any,
    ) -> Output | tuple[Output, dict[str, jax.Array]]: ...

    def apply(
        self,
        params: Mapping[str, ArrayLike],
        *args: Any,
        state: Mapping[str, ArrayLike] | None = None,
        rng: jax.Array | None = None,
        mutable: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Returns the pure function: what ``jax.jit``, ``grad``, ``vmap`` and ``shard_map`` take.

        Args:
          params: arrays with the names and shapes of ``model.params``.
          *args: as the source's forward takes them. Arrays of integers that ``jit`` or
            ``grad`` do not trace, but a function closes over, may decide shapes.
          **kwargs: the same, by name.
          state: arrays as in ``model.state``, which is the default.
          rng: a key, where the forward pass draws random numbers.
          mutable: return what the forward pass wrote to the state, and to params, too.

        Returns:
          The output; with ``mutable=True`` the pair (output, new state).

        Raises:
          WrongArguments, MissingOps, MissingRng, DataDependent: see anyjax.errors.

        Example:
          >>> import numpy as np, torch
          >>> model = anyjax.from_torch(torch.nn.BatchNorm1d(3).train())
          >>> x = np.ones((4, 3), np.float32)
          >>> out, state = model.apply(model.params, x, mutable=True)
          >>> int(state["num_batches_tracked"])
          1
        """
        state = self.state if state is None else state
        try:
            out, written = call.apply(self.source, params, state, args, kwargs, rng)
        except (TypeError, AttributeError, ValueError, RuntimeError) as error:
            self._explain(error, args, kwargs)
            raise
        if mutable:
            return out, {**state, **written}
        call.warn_dropped(written, state)
        return out

    def train(self) -> Model:
        """Returns a new Model in training mode: dropout drops, BatchNorm measures the batch.

        Raises:
          Unsupported: the program has no training mode, such as an ONNX file's.

        Example:
          >>> import jax, numpy as np, torch
          >>> model = anyjax.from_torch(torch.nn.Dropout(0.5)).train()
          >>> sorted(set(model(np.ones(64, np.float32), rng=jax.random.key(0)).tolist()))
          [0.0, 2.0]
        """
        return replace(self, source=self.source.in_mode(True))

    def eval(self) -> Model:
        """Returns a new Model in evaluation mode: nothing is random, and no statistics are written.

        Example:
          >>> import numpy as np, torch
          >>> model = anyjax.from_torch(torch.nn.Dropout(0.5)).eval()
          >>> model(np.ones(3, np.float32)).tolist()
          [1.0, 1.0, 1.0]
        """
        return replace(self, source=self.source.in_mode(False))

    @overload
    def init(
        self, rng: jax.Array, *, mutable: Literal[False] = False, build: Build = None
    ) -> dict[str, jax.Array]: ...

    @overload
    def init(
        self, rng: jax.Array, *, mutable: Literal[True], build: Build = None
    ) -> tuple[dict[str, jax.Array], dict[str, jax.Array]]: ...

    def init(self, rng: jax.Array, *, mutable: bool = False, build: Build = None) -> Any:
        """Returns fresh params, drawn from a key by the source's own initialisers.

        Of torch they are ``reset_parameters`` of each module, and ``_init_weights`` of
        transformers; those of Keras run on the host. It is a pure function of the key:
        ``jax.vmap(model.init)`` of several gives an ensemble. On a mesh each device draws its part.

        Args:
          rng, mutable: a key; whether to return the state, too, with statistics as they begin.
          build: makes the torch module anew, for draws of its constructor: ``lambda: Net(64)``.

        Returns:
          Params, or (params, state). What no initialiser makes keeps its value: ``NoInitialiser``.

        Raises:
          Unsupported, WrongArguments: no initialiser makes any; ``build`` makes another module.

        Example:
          >>> import jax, torch
          >>> model = anyjax.from_torch(torch.nn.Linear(3, 2))
          >>> ensemble = jax.vmap(model.init)(jax.random.split(jax.random.key(0), 5))
          >>> ensemble["weight"].shape
          (5, 2, 3)
        """
        params, state = import_module("anyjax.calls.initialise").init(self, rng, build)
        return (params, state) if mutable else params

    def with_params(self, params: Mapping[str, jax.typing.ArrayLike]) -> Model:
        """Returns a new Model with these params, arrays with the names of ``model.params``.

        Example:
          >>> import jax, numpy as np, torch
          >>> model = anyjax.from_torch(torch.nn.Linear(3, 2))
          >>> zeros = model.with_params(jax.tree.map(lambda x: 0 * x, model.params))
          >>> zeros(np.ones(3, np.float32)).tolist()
          [0.0, 0.0]

        Raises:
          WrongArguments: a name is missing or unknown, or a value is no array.
        """
        arrays: dict[str, Any] = {**params}
        wrong = [f"{k} is missing" for k in self.params if k not in arrays]
        wrong += [f"{k} is unknown" for k in arrays if k not in self.params]
        numbers = (k for k, x in arrays.items() if isinstance(x, (bool, int, float, str)))
        if wrong := wrong + [f"{k} is a {type(arrays[k]).__name__}" for k in numbers]:
            raise WrongArguments(
                f"params do not fit the model: {'; '.join(wrong[:9])}{'; ...' * (len(wrong) > 9)}",
                why="params have the names of model.params, and arrays as values",
                do="start from model.params, e.g. jax.tree.map(f, model.params)",
            )
        return replace(self, params=arrays)

    def with_state(self, state: Mapping[str, jax.typing.ArrayLike]) -> Model:
        """Returns a new Model with this state, such as ``apply(..., mutable=True)`` returned; with
        the params that are in it, too, for forward may write to weights.

        Example:
          >>> import numpy as np, torch
          >>> model = anyjax.from_torch(torch.nn.BatchNorm1d(3).train())
          >>> out, state = model.apply(model.params, np.ones((4, 3), np.float32), mutable=True)
          >>> int(model.with_state(state).state["num_batches_tracked"])
          1
        """
        params: dict[str, Any] = {k: state.get(k, x) for k, x in self.params.items()}
        arrays: dict[str, Any] = {k: x for k, x in state.items() if k not in params}
        return replace(self, params=params, state=arrays)

    def to_torch(self) -> torch.nn.Module:
        """Returns the torch module with params and state written into it.

        Returns:
          The module that ``from_torch`` was given, written to; a new one where the model came from
          a checkpoint.

        Raises:
          Unsupported: the model was not made of a torch module.

        Example:
          >>> import torch
          >>> module = torch.nn.Linear(3, 2)
          >>> model = anyjax.from_torch(module)
          >>> tripled = model.with_params({k: 3 * v for k, v in model.params.items()})
          >>> tripled.to_torch() is module
          True
        """
        return self.source.write_back(self.params, self.state)

    def save(
        self,
        folder: str | os.PathLike[str],
        *args: Any,
        rng: jax.Array | None = None,
        shapes: Mapping[str, str] | None = None,
        constraints: Sequence[str] = (),
        platforms: Sequence[str] = saved.PLATFORMS,
        generate: Mapping[str, object] | None = None,
        executables: bool | Sequence[str] = False,
        **kwargs: Any,
    ) -> None:
        """Writes the model so that ``anyjax.load`` runs it again without the source framework.

        A model on a mesh of several processes is saved by all of them together: array by array
        comes to the first one, which writes.

        Args:
          folder: where to; it appears whole or not at all.
          *args: an example of the call to save (shapes and dtypes count, values of
            arrays do not), or ``jax.ShapeDtypeStruct``s. Without one, every kind of call made with
            ``model(...)`` so far is saved.
          rng: the key of that call, where it draws random numbers.
          **kwargs: its arguments by name.
          shapes: the arguments that may have other sizes, as ``jax.export.symbolic_shape`` writes
            them: ``{"input_ids": "batch, length"}``. Sizes of one name are equal in a call; ``...``
            and ``_`` stand for what the example has.
          constraints: what holds for these sizes, such as ``("length <= 2048",)``.
          platforms: what the programs run on: "cpu", "cuda", "rocm", "tpu".
          generate: options of ``anyjax.generate``, whose whole decoding loop is saved, too. The
            example is then the longest prompt, in any number of rows where ``shapes`` names its
            batch; with pictures, sounds or an encoder a batch of the shapes and the layout that
            are to be served. See ``anyjax.generate``.
          executables: also keep the programs as compiled for this kind of machine and these
            versions, so that the first call after ``anyjax.load`` compiles nothing; open sizes are
            those of the example. They are tried in a process of their own. Elsewhere they are not
            used. Or for chips that are not here, by their own compilers: ``("v6e-4", "h100-1")``,
            names as of ``anyjax.parallel.compile_for``; programs run on one chip of such a slice.

        Raises:
          WrongArguments: there is neither an example nor a call so far, the folder holds
            something else, or ``shapes`` do not fit the example.
          WrongValue: there is no such platform.
          Unsupported: the model's code asks for a size that is not known.
          MissingDependency: the compiler of such a chip is not installed.
          NotWritten: the disk is full, or a compiled program does not run; an earlier save is
            still there.

        Example:
          >>> import numpy as np, tempfile, torch
          >>> model = anyjax.from_torch(torch.nn.Linear(3, 2))
          >>> folder = tempfile.mkdtemp() + "/linear"
          >>> model.save(folder, np.ones((5, 3), np.float32))
          >>> anyjax.load(folder)(np.ones((5, 3), np.float32)).shape
          (5, 2)
        """
        calls = (
            [(args, kwargs, rng)] if args or kwargs or rng is not None else call.calls(self.source)
        )
        if not calls:
            raise WrongArguments(
                "there is no call to save",
                why="a program is compiled for the shapes of its inputs",
                do="give an example: model.save(folder, *args, **kwargs), or call model(...) first",
            )
        loop = methods.further(self, "_decoding_loop") if generate is not None else None
        extras = [loop(args, kwargs, shapes, generate)] if loop else []
        saved.save(
            self.source,
            self.params,
            self.state,
            folder,
            calls,
            shapes=shapes,
            constraints=constraints,
            platforms=platforms,
            extras=extras,
            executables=executables,
        )

    def _explain(self, error: Exception, args: tuple, kwargs: dict[str, PyTree]) -> None:
        """Raises an error of ours where JAX's or torch's does not say what to do."""
        from anyjax.calls import concretization_help  # where something is wrong

        arguments = dict(zip(self.source.positional, args)) | kwargs
        concretization_help.refuse_lists(error, arguments)
        if not isinstance(error, DataDependent):
            concretization_help.refuse_raw_media(error, arguments)

    def __deepcopy__(self, memo: dict[int, object]) -> Model:
        """Returns a copy with arrays of its own; the source, which never changes, is shared."""
        params, state = copy.deepcopy((self.params, self.state), memo)
        return replace(self, params=params, state=state)

    if TYPE_CHECKING:  # methods.FURTHER

        def cache(self, length: int) -> anyjax.Cache: ...

        generate = anyjax.generate
        save_pretrained = anyjax.save_pretrained
    else:

        def __getattr__(self, name: str) -> Any:
            """Looks for a method that a floor above adds."""
            if name.startswith("_"):
                raise AttributeError(name)
            return methods.further(self, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(x for x in methods.FURTHER if not x.startswith("_"))]

    def __repr__(self) -> str:
        return summary.of_model(self)

    def _repr_html_(self) -> str:
        return summary.html_of_model(self)


jax.tree_util.register_dataclass(Model, data_fields=["params", "state"], meta_fields=["source"])
