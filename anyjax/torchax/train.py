"""Training steps of tensors with optax, and layers that run as one loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import torch

from anyjax.torch import interop as torch_interop
from anyjax.torch.eager.tensor import keeping_class, made_as
from anyjax.torchax import interop
from anyjax.torchax.tensor import Tensor

remat = interop.torch_view(jax.checkpoint)
mark_sharding = interop.torch_view(jax.lax.with_sharding_constraint)


def make_train_step(
    model_fn: Callable[..., object], loss_fn: Callable[..., object], optax_optimizer: Any,
    remat_policy: object = None,
) -> Callable[..., Any]:  # fmt: skip
    """Returns ``step(weights, buffers, opt_state, args, label) -> (loss, weights, opt_state)`` of
    tensors, to be compiled with ``jax_jit``.

    Args:
      model_fn: ``model_fn(weights, buffers, args)`` gives the model's result.
      loss_fn: ``loss_fn(result, label)`` gives the loss.
      optax_optimizer: one of optax's.
      remat_policy: without meaning: wrap ``model_fn`` in ``gradient_checkpoint``.
    """
    with made_as(Tensor):
        step = torch_interop.make_train_step(model_fn, loss_fn, optax_optimizer, remat_policy)
        return keeping_class(step)


class _Layer:
    """Holds a module that is no child: its weights are those of the loop."""

    def __init__(self, module: torch.nn.Module):
        self.module = module


class ScannedModule(torch.nn.Module):
    """Equal layers one after the other, as one ``jax.lax.scan`` over their stacked weights.

    Args:
      module_list: the layers; the first argument goes through them, the other ones go to each.
      checkpoint_policy: what ``jax.checkpoint`` keeps for the gradient.
    """

    def __init__(
        self, module_list: Sequence[torch.nn.Module],
        checkpoint_policy: Callable[..., bool] | None = None,
    ):  # fmt: skip
        super().__init__()
        self.layer, self.checkpoint_policy = _Layer(module_list[0]), checkpoint_policy
        states = [x.state_dict() for x in module_list]
        stacked = {name: torch.stack([x[name] for x in states]) for name in states[0]}
        self.params = torch.nn.ParameterDict(
            {
                name.replace(".", "___"): torch.nn.Parameter(x, x.is_floating_point())
                for name, x in stacked.items()
            }
        )

    def forward(self, *args: torch.Tensor) -> Any:
        weights = {name.replace("___", "."): x for name, x in self.params.items()}

        def layer(carry: tuple, weights: dict[str, torch.Tensor]) -> Any:
            first = torch.func.functional_call(self.layer.module, weights, carry)
            return (first, *carry[1:]), None

        options = {"policy": self.checkpoint_policy}
        scan = interop.torch_view(jax.lax.scan)
        carry, _ = scan(interop.gradient_checkpoint(layer, options), args, weights)
        return carry[0]
