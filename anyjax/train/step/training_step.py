"""One pure step of training: gradients, the optimizer's update, the model's new state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import jax.typing
import numpy as np
import optax
from jax.sharding import NamedSharding

from anyjax import trees, warn_once
from anyjax.calls.layouts import Layouts
from anyjax.errors import DataDependent, ManyCompilations
from anyjax.parallel import batches
from anyjax.train.data import agreement, batching
from anyjax.train.step import arguments
from anyjax.train.step.gradients import Gradients
from anyjax.train.step.loss_scale import LossScale
from anyjax.train.step.remat import compiler_options
from anyjax.train.step.train_state import TrainState, copied
from anyjax.typing import Output, PyTree

if TYPE_CHECKING:
    from anyjax.model import Model

MANY = 16  # compilations that look as if there were more to come
SCALE = 2.0**15


def make_step(
    loss_fn: Callable[[Model, Any], jax.Array | tuple[jax.Array, Any]],
    tx: optax.GradientTransformation,
    *,
    accumulate: int = 1,
    clip: float | None = None,
    compute_dtype: jax.typing.DTypeLike | None = None,
    loss_scale: float | None = None,
    remat: bool | str = False,
    ema: float | None = None,
    donate: bool = True,
) -> Step:
    """Makes a jitted ``step(state, batch) -> (state, metrics)``.

    Args:
      loss_fn: ``loss_fn(model, batch)``, the loss as a scalar, or the pair (loss, aux). ``model``
        is called as a Model is: each call draws from a key of its own, and what it writes to the
        state is in the next state.
      tx: the optimizer that the state was created with.
      accumulate: into how many parts the batch is cut; their losses, gradients and aux are
        averaged. Part i holds the rows i, i + accumulate, ..., so that each device of a mesh keeps
        its own rows.
      clip: the largest global norm of the gradients.
      compute_dtype: "bfloat16" or "float16": params and inputs of the model are cast to it, its
        outputs back to float32; params and optimizer stay as they are.
      loss_scale: where float16's loss scaling starts; 2**15 by default. Steps that overflow change
        nothing but the scale.
      remat: "layers" (or True) to compute what is inside of repeated layers again for the gradient,
        which takes less memory and more time; "dots" to save the products in them; "attention" for
        attention alone; or a regular expression of module paths. For models from torch.
      ema: decay of a moving average of the params, ``state.ema``.
      donate: the state's memory is used for the next one, so that the old one is gone.

    Returns:
      The step. Its metrics: ``loss``, ``grad_norm`` (before clipping), ``finite`` (whether both
      are; if not, model and optimizer stay as they were), and aux: its entries if it is a dict,
      else ``aux``.

    Raises:
      WrongBatch: by the step: another structure, dtype or number of dimensions than in the first
        batch, or a batch that cannot be cut.
      WrongValue: by the step: the loss is no scalar.

    Example:
      >>> import numpy as np, optax, torch
      >>> model, tx = anyjax.from_torch(torch.nn.Linear(3, 1)), optax.sgd(0.1)
      >>> step = anyjax.train.make_step(lambda model, x: (model(x) ** 2).mean(), tx)
      >>> state, x = anyjax.train.TrainState.create(model, tx), np.ones((4, 3), np.float32)
      >>> state, metrics = step(state, x)
      >>> float(step(state, x)[1]["loss"]) < float(metrics["loss"])
      True
    """
    arguments.check_step(loss_fn, tx)
    dtype = None if compute_dtype is None else jnp.dtype(compute_dtype)
    if loss_scale is None and dtype == jnp.float16:
        loss_scale = SCALE
    gradients = Gradients(loss_fn, accumulate, dtype, remat)
    clipping = optax.identity() if clip is None else optax.clip_by_global_norm(clip)
    return Step(gradients, optax.with_extra_args_support(tx), clipping, loss_scale, ema, donate)


@dataclass(eq=False)
class Step:
    """The jitted step that ``make_step`` returns.

    Attributes:
      compilations: the number of programs so far, one for each shape of the batch, and for each
        value of arrays that decide what the model computes, such as grids of pictures.
    """

    gradients: Gradients
    tx: optax.GradientTransformationExtraArgs
    clipping: optax.GradientTransformation
    loss_scale: float | None
    ema: float | None
    donate: bool
    compilations: int = 0

    def __post_init__(self):
        self.programs: dict[Any, Any] = {}
        self.batch_spec: batching.BatchSpec | None = None
        self.layouts = Layouts()

    def __call__(self, state: TrainState, batch: object) -> tuple[TrainState, dict[str, Output]]:
        """Returns the next state, and the metrics of this batch."""
        batch = batching.as_arrays(state.model.source, batch)
        if (mesh := batches.mesh_of(state.params)) is not None:
            batch = agreement.place_batch(batch, mesh, first=self.batch_spec is None)
        self.batch_spec = batching.check_batch(batch, self.batch_spec, self.gradients.accumulate)
        state = self.prepared(state)
        try:
            return self._call(state, batch)
        except DataDependent as error:
            if trees.STATE not in error.arguments or self.gradients.state_constants:
                raise
            self._fix_settings(state, batch)
            return self._call(state, batch)

    def prepared(self, state: TrainState) -> TrainState:
        """Returns the state with the moving average and loss scale that this step keeps in it."""
        if self.ema is not None and state.ema is None:
            state = state.replace(ema=copied(state.params))
        if self.loss_scale is not None and state.loss_scale is None:
            state = state.replace(loss_scale=LossScale.initial(self.loss_scale))
        return state

    def _call(self, state: TrainState, batch: PyTree) -> tuple[TrainState, dict[str, Any]]:
        earlier_compilations = self.compilations
        out = self.layouts(lambda batch: self.program(state)(state, batch), batch)
        if earlier_compilations < MANY <= self.compilations:
            warn_once.warn(
                f"the step was compiled {self.compilations} times, once for each shape of the "
                "batch, and each value of what decides shapes: pad batches to a few shapes, see "
                "anyjax.train.bucket",
                ManyCompilations,
            )
        return out

    def program(self, state: TrainState) -> Any:
        """Returns the jitted step for states with the shardings of this one. The next state gets
        the same shardings; XLA would choose its own.
        """
        shardings = tuple(x.sharding for x in state.params.values())
        on_mesh = any(isinstance(x, NamedSharding) for x in shardings)
        key = shardings if on_mesh else None
        if key not in self.programs:
            out = (jax.tree.map(lambda x: x.sharding, state), None) if on_mesh else None
            donated = (0,) if self.donate else ()
            options = compiler_options(state.rng) if self.gradients.remat else None
            self.programs[key] = jax.jit(
                self._step, donate_argnums=donated, out_shardings=out, compiler_options=options
            )
        return self.programs[key]

    def _fix_settings(self, state: TrainState, batch: PyTree) -> None:
        """Makes constants of the state's entries that shapes may depend on: small integers that
        the loss does not write.
        """
        settings = {k: np.asarray(v) for k, v in state.state.items() if trees.is_setting(v)}
        self.gradients.state_constants = settings
        self.layouts(lambda batch: jax.eval_shape(self._step, state, batch), batch)
        written = self.gradients.written
        self.gradients.state_constants = {k: v for k, v in settings.items() if k not in written}

    def _step(self, state: TrainState, batch: PyTree) -> tuple[TrainState, dict[str, Any]]:
        out, grads = self.gradients(state, self.layouts.traced(batch))
        self.compilations += 1  # where no values are asked for
        norm = optax.tree.norm(jax.tree.map(lambda g: jnp.float32(abs(g)), grads))
        finite = jnp.isfinite(out.loss) & jnp.isfinite(norm)
        grads, _ = self.clipping.update(grads, self.clipping.init(state.params))
        extra = {"value": out.loss, "grad": grads}
        params = {**state.params, **out.params}
        updates, opt_state = self.tx.update(grads, state.opt_state, params, **extra)
        params = optax.apply_updates(params, updates)
        ema = state.ema
        if self.ema is not None:
            ema = optax.incremental_update(params, ema, 1 - self.ema)
        model = replace(state.model, params=params, state=out.state)
        new = state.replace(model=model, opt_state=opt_state, ema=ema)
        # a first call may add to the state what code keeps in attributes
        state = state.replace(model=state.model.with_state({**out.state, **state.state}))
        new = jax.tree.map(lambda new, old: jnp.where(finite, new, old), new, state)
        scale = state.loss_scale and state.loss_scale.updated(finite)
        metrics = {"loss": out.loss, "grad_norm": norm, "finite": finite}
        if scale is not None:
            metrics["loss_scale"] = scale.scale
        aux = out.aux if isinstance(out.aux, dict) else {"aux": out.aux}
        return new.replace(step=state.step + 1, loss_scale=scale), {**metrics, **aux}
