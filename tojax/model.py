"""The waist of the house: a pure function plus its params and state, whichever framework it came
from.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax

from tojax import saved, trees
from tojax.errors import DataDependent, StateDropped, StaticArgument, WrongArguments
from tojax.program import program
from tojax.trees import Static


class Source(Protocol):
    """What a frontend gives: a hashable callable that JAX can trace."""

    @property
    def framework(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def positional(self) -> list[str]: ...
    @property
    def signature(self) -> Any: ...
    @property
    def training(self) -> Any: ...
    @property
    def module(self) -> Any: ...
    @property
    def kept(self) -> dict[Any, Any]: ...
    def __call__(
        self, params, state, args, kwargs, rng=None
    ) -> tuple[Any, dict[str, jax.Array]]: ...
    def in_mode(self, training: bool) -> Source: ...
    def as_array(self, leaf: Any) -> Any: ...
    def write_back(self, params, state) -> Any: ...


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
      >>> model = tojax.from_torch(torch.nn.Linear(3, 2))
      >>> x = np.ones((4, 3), np.float32)
      >>> loss = lambda params: (model.apply(params, x) ** 2).mean()
      >>> jax.grad(loss)(model.params)["weight"].shape
      (2, 3)
    """

    params: dict[str, jax.Array]
    state: dict[str, jax.Array]
    source: Source

    def __call__(self, *args, rng: jax.Array | None = None, **kwargs) -> Any:
        """The output, jitted: arrays are traced; bool, int, float, str and None are static by
        themselves.

        Args:
          *args, **kwargs: as the source's forward takes them; numpy, JAX or source tensors in any
          pytree.
          rng: a key, where the forward pass draws random numbers.

        Returns:
          What the source returns, in its own classes, with JAX arrays.

        Raises:
          WrongArguments, MissingOps, MissingRng, DataDependent: see tojax.errors.
          Exception: what the source raises about values that it checks.
        """
        trees.register((args, kwargs))
        leaves, structure = jax.tree.flatten((args, kwargs))
        leaves = [self.source.as_array(x) for x in leaves]
        names = trees.names(args, kwargs, self.source.positional)
        pinned = self.source.kept.setdefault(("pinned", self.source, structure), set())
        while True:
            static = tuple(_pin(x, n in pinned) for n, x in zip(names, leaves))
            arrays = [x for x, s in zip(leaves, static) if s is None]
            known, state = _settings(self.state, trees.STATE in pinned)
            try:
                _remember(self.source, structure, static, leaves, rng)
                model = replace(self, state=state)
                out, holds = _run(model, structure, static, known, arrays, rng)
                if holds is not None and not isinstance(holds, jax.core.Tracer) and not holds:
                    self.apply(self.params, *args, rng=rng, **kwargs)  # raises, with the values
                return jax.tree.map(_unwrap, out, is_leaf=lambda x: isinstance(x, Static))
            except DataDependent as error:
                asked = set(error.arguments) - pinned
                if trees.STATE in asked and not _settings(self.state, True)[0].value:
                    raise
                if not (new := _static_by_value(asked, names, leaves)):
                    raise
                pinned |= new

    def apply(
        self,
        params: Mapping[str, jax.Array],
        *args,
        state: Mapping[str, jax.Array] | None = None,
        rng: jax.Array | None = None,
        mutable: bool = False,
        **kwargs,
    ) -> Any:
        """The pure function: what ``jax.jit``, ``grad``, ``vmap`` and ``shard_map`` take.

        Args:
          params: arrays with the names and shapes of ``model.params``.
          *args, **kwargs: as the source's forward takes them. Arrays of integers that ``jit`` or
            ``grad`` do not trace, but a function closes over, may decide shapes.
          state: arrays as in ``model.state``, which is the default.
          rng: a key, where the forward pass draws random numbers.
          mutable: return what the forward pass wrote to the state, too.

        Returns:
          The output; with ``mutable=True`` the pair (output, new state).

        Raises:
          WrongArguments, MissingOps, MissingRng, DataDependent: see tojax.errors.

        Example:
          >>> import numpy as np, torch
          >>> model = tojax.from_torch(torch.nn.BatchNorm1d(3).train())
          >>> x = np.ones((4, 3), np.float32)
          >>> out, state = model.apply(model.params, x, mutable=True)
          >>> int(state["num_batches_tracked"])
          1
        """
        state = self.state if state is None else state
        known: set[str] = set()
        while True:
            try:
                out, written = self.source(params, state, args, kwargs, rng)
                break
            except DataDependent as error:
                leaves, structure = jax.tree.flatten((args, kwargs))
                names = trees.names(args, kwargs, self.source.positional)
                leaves = [self.source.as_array(x) for x in leaves]
                new = set(error.arguments) - known
                if not new or not _decidable(new, names, leaves):
                    raise
                known |= new
                leaves = [trees.Constant(x) if n in new else x for n, x in zip(names, leaves)]
                args, kwargs = jax.tree.unflatten(structure, leaves)
        if mutable:
            return out, {**state, **written}
        _warn_dropped(written, state)
        return out

    def train(self) -> Model:
        """A new Model in training mode."""
        return replace(self, source=self.source.in_mode(True))

    def eval(self) -> Model:
        """A new Model in evaluation mode."""
        return replace(self, source=self.source.in_mode(False))

    def with_params(self, params: Mapping[str, jax.Array]) -> Model:
        """A new Model with these params."""
        return replace(self, params=dict(params))

    def with_state(self, state: Mapping[str, jax.Array]) -> Model:
        """A new Model with this state."""
        return replace(self, state=dict(state))

    def to_torch(self) -> Any:
        """The torch module with params and state written into it."""
        return self.source.write_back(self.params, self.state)

    def save(
        self, folder: str | os.PathLike, *args, rng: jax.Array | None = None, **kwargs
    ) -> None:
        """Writes the model so that ``tojax.load`` runs it again without the source framework.

        Args:
          folder: where to; it appears whole or not at all.
          *args, rng, **kwargs: an example of the call to save (shapes and dtypes count, values of
            arrays do not). Without one, every kind of call made with ``model(...)`` so far is
            saved.

        Raises:
          WrongArguments: there is neither an example nor a call so far, or the folder holds
            something else.

        Example:
          >>> import numpy as np, tempfile, torch
          >>> model = tojax.from_torch(torch.nn.Linear(3, 2))
          >>> folder = tempfile.mkdtemp() + "/linear"
          >>> model.save(folder, np.ones((5, 3), np.float32))
          >>> tojax.load(folder)(np.ones((5, 3), np.float32)).shape
          (5, 2)
        """
        calls = [(args, kwargs, rng)] if args or kwargs else list(_calls(self.source).values())
        if not calls:
            raise WrongArguments(
                "there is no call to save",
                why="a program is compiled for the shapes of its inputs",
                do="give an example: model.save(folder, *args, **kwargs), or call model(...) first",
            )
        saved.save(self.source, self.params, self.state, folder, calls)

    def save_pretrained(self, folder: str | os.PathLike, **options) -> None:
        """``tojax.save_pretrained(self, folder)``: a checkpoint that transformers loads."""
        import tojax

        tojax.save_pretrained(self, folder, **options)

    def generate(self, input_ids, *args, **kwargs) -> Any:
        """``tojax.generate(self, input_ids, ...)``."""
        import tojax

        return tojax.generate(self, input_ids, *args, **kwargs)

    def cache(self, length: int) -> Any:
        """An empty cache for a decoding loop of your own, with room for ``length`` positions.

        It is a pytree of arrays with two pure functions, for ``jit``, ``scan`` and ``while_loop``:
        ``logits, cache = cache.prefill(params, ids, mask)`` reads the prompts (``ids`` and ``mask``
        ``[batch, tokens]``, left-padded), ``logits, cache = cache.step(params, token)`` one token
        ``[batch]`` more; ``logits`` are float32 ``[batch, vocabulary]``, after the last token.

        Raises:
          Unsupported: no language model, or one whose states change their shapes.

        Example:
          >>> import jax, numpy as np
          >>> model = tojax.from_pretrained("examples/tiny-llama")
          >>> @jax.jit
          ... def greedy(params, ids):
          ...     logits, cache = model.cache(ids.shape[1] + 7).prefill(params, ids)
          ...     def step(carry, _):
          ...         token, cache = carry
          ...         logits, cache = cache.step(params, token)
          ...         return (logits.argmax(-1), cache), token
          ...     last, tokens = jax.lax.scan(step, (logits.argmax(-1), cache), length=7)
          ...     return jax.numpy.vstack([tokens, last[0]]).T
          >>> ids = np.array([[4, 5, 7], [3, 8, 9]])
          >>> text = tojax.generate(model, ids, max_new_tokens=8, eos_token_id=-1)
          >>> bool((greedy(model.params, ids) == text[:, 3:]).all())
          True
        """
        import tojax

        return tojax.Cache.of(self, length)

    def __repr__(self) -> str:
        return describe(self)


def load(folder: str | os.PathLike) -> Model:
    """A model that ``model.save`` wrote; needs JAX alone.

    Outputs of classes that JAX does not know come as dicts with attributes.

    Raises:
      BadCheckpoint: the folder is none, or damaged.

    Example:
      >>> import numpy as np, tempfile, torch
      >>> folder = tempfile.mkdtemp() + "/relu"
      >>> tojax.from_torch(torch.nn.ReLU()).save(folder, np.ones(3, np.float32))
      >>> tojax.load(folder)(np.array([-1, 0, 2], np.float32)).tolist()
      [0.0, 0.0, 2.0]
    """
    return Model(*saved.read(folder))


jax.tree_util.register_dataclass(Model, data_fields=["params", "state"], meta_fields=["source"])


def _calls(source: Source) -> dict[Any, tuple]:
    """The kinds of call so far."""
    return source.kept.setdefault(("calls", source), {})


def _remember(source, structure, static, leaves, rng) -> None:
    """Keeps the shapes of a kind of call, for ``save``."""
    kept = [
        jax.ShapeDtypeStruct(x.shape, x.dtype) if s is None else _unwrap(s)
        for x, s in zip(leaves, static)
    ]
    key = (structure, tuple(map(str, kept)), rng is None)
    _calls(source).setdefault(key, (*jax.tree.unflatten(structure, kept), rng))


@program(static_argnames=("structure", "static", "known"))
def _run(model, structure, static, known, arrays, rng):
    state = model.state | {name: constant.array for name, constant in known.value.items()}
    rest = iter(arrays)
    leaves = [next(rest) if s is None else _unwrap(s) for s in static]
    args, kwargs = jax.tree.unflatten(structure, leaves)
    out, written = model.source(model.params, state, args, kwargs, rng)
    _warn_dropped(written, state)
    holds = getattr(written, "holds", None)
    return jax.tree.map(lambda x: x if trees.is_array(x) else Static(x), out), holds


def _pin(leaf: Any, by_value: bool) -> Static | None:
    """How a leaf is static, None where it is traced."""
    if not trees.is_array(leaf):
        return Static(leaf)
    return Static(trees.Constant(leaf)) if by_value else None


def _settings(state, by_value: bool) -> tuple[Static, dict[str, Any]]:
    """(the entries of the state that are static, the others)."""
    names = [k for k, v in state.items() if by_value and trees.is_setting(v)]
    known = {k: trees.Constant(state[k]) for k in names}
    return Static(known), {k: v for k, v in state.items() if k not in known}


def _unwrap(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, Static) else leaf


def _static_by_value(asked: set[str], names, leaves) -> set[str]:
    """What to make static by value: all that decided, if that is possible, or the state, of which
    that is only said of a few entries.
    """
    new = asked - {trees.STATE}
    if not _decidable(new, names, leaves):
        return set()
    if new:
        warnings.warn(
            f"{', '.join(sorted(new))}: the values decide what is computed, so they are static in "
            "model(...): the program is compiled once for each of them",
            StaticArgument,
            stacklevel=3,
        )
    return asked


def _decidable(asked: set[str], names, leaves) -> bool:
    """Whether all of these are arrays of integers or bools whose values are known."""
    by_name = {n: x for n, x in zip(names, leaves) if not isinstance(x, jax.core.Tracer)}
    return all(n in by_name and by_name[n].dtype.kind in "iub" for n in asked)


def _warn_dropped(written: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    missed = getattr(written, "missed", state)
    if lost := [name for name in written if name in missed]:
        shown = ", ".join(lost[:3]) + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
        warnings.warn(
            f"the forward pass wrote to {shown}, and the new values are dropped: "
            "call model.apply(params, ..., mutable=True) to get them, or use model.eval() if only "
            "training writes there",
            StateDropped,
            stacklevel=3,
        )


def describe(model: Model) -> str:
    """What ``repr(model)`` shows: the call, params by module with sizes, state, source and mode."""
    source = model.source
    mode = source.training if isinstance(source.training, tuple) else (source.training,)
    said = "train" if all(mode) else "eval" if not any(mode) else "mixed"
    count, size = _total(model.params)
    lines = [
        f"Model({source.name} from {source.framework}, {said} mode)",
        f"  call    {source.name}{source.signature}",
    ]
    lines.append(f"  params  {len(model.params)} arrays, {count:,} values, {size / 1e6:.1f} MB")
    groups: dict[str, dict[str, Any]] = {}
    for name, array in model.params.items():
        parts = name.split(".")
        cut = next(
            (i + 1 for i, part in enumerate(parts) if part.isdigit()), min(2, len(parts) - 1)
        )
        groups.setdefault(".".join(parts[:cut]) or "(root)", {})[name] = array
    for i, (group, arrays) in enumerate(groups.items()):
        if i == 16:
            lines.append(f"          ... and {len(groups) - 16} more modules")
            break
        lines.append(f"          {group:<40} {_total(arrays)[0]:>14,}")
    lines.append(f"  state   {len(model.state)} arrays, {_total(model.state)[0]:,} values")
    return "\n".join(lines)


def _total(arrays: Mapping[str, Any]) -> tuple[int, int]:
    return sum(a.size for a in arrays.values()), sum(
        a.size * a.dtype.itemsize for a in arrays.values()
    )
