"""The state of a training run as one pytree: model, optimizer, randomness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec

from anyjax import summary
from anyjax.model import Model
from anyjax.multiprocess import check_same, put
from anyjax.parallel.batches import mesh_of
from anyjax.train.step.arguments import check_create
from anyjax.train.step.loss_scale import LossScale
from anyjax.typing import Output, PyTree


@dataclass(frozen=True, eq=False, repr=False)
class TrainState:
    """Model, optimizer and randomness after ``step`` updates; a pytree, in which only the model's
    source is static.

    Attributes:
      model: the Model, with params and state (BatchNorm statistics and the like).
      opt_state: the optimizer's, as optax made it.
      rng: the key that every step's randomness is folded from.
      step: int32, how many updates there were.
      ema: the exponential moving average of the params, None where no step keeps one.
      loss_scale: that of float16, else None.

    ``jax.jit``, ``jax.device_put`` and Orbax take it as it is.

    Example:
      >>> import optax, torch
      >>> model, tx = anyjax.from_torch(torch.nn.Linear(3, 2)), optax.sgd(0.1)
      >>> state = TrainState.create(model, tx)
      >>> step = anyjax.train.make_step(lambda model, x: model(x).mean(), tx, ema=0.9)
      >>> state, _ = step(state, np.ones((4, 3), np.float32))
      >>> int(state.step), sorted(state.params), state.state, state.averaged.params["bias"].shape
      (1, ['bias', 'weight'], {}, (2,))
      >>> int(state.replace(step=jnp.int32(0)).step)
      0
    """

    model: Model
    opt_state: Output
    rng: jax.Array
    step: jax.Array
    ema: dict[str, jax.Array] | None = None
    loss_scale: LossScale | None = None

    @classmethod
    def create(
        cls, model: Model, tx: optax.GradientTransformation, *, rng: jax.Array | int = 0
    ) -> TrainState:
        """Creates the state before the first step.

        The arrays are copies: a step donates its state, and the model's own arrays stay valid. On
        a mesh, arrays that are not on it yet are replicated.

        Args:
          model: in the mode to train in: ``model.train()`` for dropout and BatchNorm's statistics.
          tx: an optax optimizer.
          rng: a key, or a seed.

        Example:
          >>> import optax, torch
          >>> model = anyjax.from_torch(torch.nn.Linear(3, 2))
          >>> state = anyjax.train.TrainState.create(model, optax.adam(1e-3))
          >>> int(state.step), state.params["weight"].shape
          (0, (2, 3))
        """
        check_create(model, tx)
        rng = jax.random.key(rng) if isinstance(rng, int) else rng
        state = cls(model, tx.init(model.params), rng, jnp.int32(0))
        return _on_one_mesh(copied(state))

    @property
    def params(self) -> dict[str, jax.Array]:
        """The model's params."""
        return self.model.params

    @property
    def state(self) -> dict[str, jax.Array]:
        """The model's state."""
        return self.model.state

    @property
    def averaged(self) -> Model:
        """The model with the moving average of its params, where there is one."""
        return self.model if self.ema is None else self.model.with_params(self.ema)

    def replace(self, **changes: Any) -> TrainState:
        """Returns a new TrainState with other values."""
        return replace(self, **changes)

    def __repr__(self) -> str:
        return describe(self)

    def __getattr__(self, name: str) -> NoReturn:
        """Raises AttributeError; for attributes of a Model it points to ``state.model``."""
        of_model = not name.startswith("_") and hasattr(Model, name)
        of_model |= name in ("save_pretrained", "generate", "cache")  # of the facade
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}"
            + (f"; its model has: state.model.{name}" if of_model else "")
        )


jax.tree_util.register_dataclass(
    TrainState,
    data_fields=["model", "opt_state", "rng", "step", "ema", "loss_scale"],
    meta_fields=[],
)


def describe(state: TrainState) -> str:
    """Returns ``repr(state)``: what trains, and the sizes of what is kept for it, largest first.

    Example:
      >>> import optax, torch
      >>> model = anyjax.from_torch(torch.nn.Linear(3, 2)).train()
      >>> anyjax.train.TrainState.create(model, optax.adam(1e-3))
      TrainState(step 0, Linear from torch, train mode)
        params     2 arrays, 8 values, 32 B
                   (root)                                                8  2 arrays
        state      0 arrays, 0 values, 0 B
        opt_state  5 arrays, 17 values, 68 B
                   0.mu                                                  8  2 arrays
                   0.nu                                                  8  2 arrays
                   0.count                                               1  []
        rng        key<fry>[]
    """
    rows: list[tuple[str, PyTree, dict[str, dict[str, PyTree]]]] = [
        ("params", state.params, summary.by_module(state.params)),
        ("state", state.state, {}),
        ("opt_state", state.opt_state, _by_place(state.opt_state, state.params)),
    ]
    if state.ema is not None:
        rows.append(("ema", state.ema, {}))
    lines = [f"TrainState(step {_value(state.step)}, {summary.headline(state.model.source)})"]
    for name, tree, groups in rows:
        lines.append(f"  {name:<10} {summary.counted(jax.tree.leaves(tree))}")
        lines += [f"{'':13}{line}" for line in summary.lines(groups, 8, summary.number_or_shape)]
    lines.append(f"  rng        {getattr(state.rng, 'dtype', type(state.rng).__name__)}[]")
    if state.loss_scale is not None:
        lines.append(f"  loss_scale {_value(state.loss_scale.scale)}")
    return "\n".join(lines)


def _by_place(opt_state: PyTree, params: Mapping[str, jax.Array]) -> dict[str, dict[str, PyTree]]:
    """Returns the optimizer's arrays by where they lie, the largest ones first; those of all params
    lie together.
    """
    places: dict[str, dict[str, PyTree]] = {}
    text = partial(jax.tree_util.keystr, simple=True, separator=".")
    for path, leaf in jax.tree_util.tree_leaves_with_path(opt_state):
        of_param = (i for i, key in enumerate(path) if getattr(key, "key", None) in params)
        cut = next(of_param, len(path))
        places.setdefault(text(path[:cut]), {})[text(path[cut:])] = leaf
    size = lambda place: summary.total(places[place].values())[0]
    return {place: places[place] for place in sorted(places, key=size, reverse=True)}


def _value(scalar: PyTree) -> str:
    """Returns a number as text: "?" for that of a tracer, of a donated array, of a batch."""
    if isinstance(scalar, jax.Array) and not isinstance(scalar, jax.core.Tracer):
        readable = not scalar.is_deleted() and scalar.is_fully_replicated
    else:
        readable = isinstance(scalar, (int, float, np.generic))
    return str(scalar) if readable and np.ndim(scalar) == 0 else "?"


def copied(tree: PyTree) -> Any:
    """Copies all arrays, so that each can be donated."""
    return jax.tree.map(jnp.copy, tree)


def _on_one_mesh(state: TrainState) -> TrainState:
    """Replicates single-device arrays on the params' mesh. The first step would return them there,
    and the second one be compiled again.
    """
    mesh = mesh_of(state.params)
    if mesh is None:
        return state
    if mesh.is_multi_process:
        leaves = jax.tree_util.tree_leaves_with_path(state)
        named = {jax.tree_util.keystr(path): leaf for path, leaf in leaves}
        check_same(named, do="give the same rng and optimizer in every process")
    replicated = NamedSharding(mesh, PartitionSpec())
    replicate = lambda x: x if isinstance(x.sharding, NamedSharding) else put(x, replicated)
    return jax.tree.map(replicate, state)
