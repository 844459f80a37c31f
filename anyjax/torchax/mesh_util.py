"""Modules whose weights lie divided among the devices of a mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import torch
from jax.sharding import NamedSharding, PartitionSpec

from anyjax.torchax import interop
from anyjax.torchax.tensor import default_env

Sharder = Callable[[str, Any], PartitionSpec]


class SingleAxisSharder:
    """Divides the first dimension that is a multiple of the number of devices.

    Args:
      axis_name: the mesh's axis.
      axis_size: its number of devices.
      replicate_unshardable: whether what has no such dimension is on all devices; else it is an
        AssertionError.

    Example:
      >>> tuple(SingleAxisSharder("fsdp", 4)("weight", torch.ones(5, 8, 12)))
      (None, 'fsdp', None)
    """

    def __init__(self, axis_name: str, axis_size: int, replicate_unshardable: bool = False):
        self.axis_name, self.axis_size = axis_name, axis_size
        self.replicate_unshardable = replicate_unshardable

    def __call__(self, name: str, shapedtype: Any) -> PartitionSpec:
        shape = shapedtype.shape
        dims = [i for i, size in enumerate(shape) if size % self.axis_size == 0]
        if not dims and not self.replicate_unshardable:
            raise AssertionError(
                f"Unable to find a dim to shard because none of the dims ({[*shape]}) of {name} "
                f"is a multiple of {self.axis_size}"
            )
        return PartitionSpec(
            *(self.axis_name if dims[:1] == [i] else None for i in range(len(shape)))
        )


class Mesh:
    """A mesh of devices, and how weights are divided among them.

    Args:
      jax_mesh: a ``jax.sharding.Mesh``.
      sharder: gives the PartitionSpec of (a name, a tensor); of a mesh of one axis it may be
        left out.
    """

    def __init__(self, jax_mesh: jax.sharding.Mesh, sharder: Sharder | None = None):
        self.jax_mesh = jax_mesh
        if sharder is None:
            (axis,) = jax_mesh.axis_names
            sharder = SingleAxisSharder(axis, jax_mesh.size)
        self._sharder = sharder

    @classmethod
    def fsdp_mesh(cls, axis_name: str = "fsdp") -> Mesh:
        """Returns a mesh of all devices in one axis."""
        count = jax.device_count()
        auto = (jax.sharding.AxisType.Auto,)
        mesh = jax.make_mesh((count,), (axis_name,), axis_types=auto)
        return cls(mesh, SingleAxisSharder(axis_name, count, True))

    def initialize_model_sharded(
        self, model_class: Callable[..., torch.nn.Module], init_args: Sequence[Any],
        init_kwargs: Mapping[str, Any] | None = None, override_sharder: Sharder | None = None,
    ) -> torch.nn.Module:  # fmt: skip
        """Returns a new module, each of whose weights is made where it lies.

        Args:
          model_class: makes the module.
          init_args, init_kwargs: its arguments.
          override_sharder: the sharder of this module.
        """
        kwargs = init_kwargs or {}
        with torch.device("meta"):
            model = model_class(*init_args, **kwargs)
        shardings = self._shardings(model, override_sharder)

        def initialize() -> dict[str, torch.Tensor]:
            with default_env(), torch.device("jax"):
                return dict(model_class(*init_args, **kwargs).state_dict())

        weights = interop.jax_jit(initialize, {"out_shardings": shardings})()
        model.load_state_dict(weights, assign=True)
        return model

    def shard_model(self, model: torch.nn.Module, override_sharder: Sharder | None = None) -> None:
        """Divides the weights of a module on JAX.

        Args:
          model: its tensors are replaced.
          override_sharder: the sharder of this module.
        """
        shardings = self._shardings(model, override_sharder)
        states = {
            name: interop.torch_view(jax.device_put(x.jax(), shardings[name]))
            for name, x in model.state_dict().items()
        }
        model.load_state_dict(states, assign=True)

    def _shardings(self, model: torch.nn.Module, sharder: Sharder | None) -> dict[str, Any]:
        spec = sharder or self._sharder
        states = model.state_dict().items()
        return {name: NamedSharding(self.jax_mesh, spec(name, x)) for name, x in states}
