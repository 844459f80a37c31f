"""A user's script for torch's own code on JAX: what ``script.py`` is for all else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import assert_type

import jax
import jax.numpy as jnp
import torch

from anyjax import torchax
from anyjax.typing import Output, TorchOutput


def mlp() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def as_torchax(folder: Path) -> None:
    linear, path = torch.nn.Linear(3, 2), str(folder / "torchax")
    assert_type(torchax.extract_jax(linear)[0], dict[str, jax.Array])
    torchax.enable_globally()
    with torchax.disable_temporarily(), torchax.default_env():
        torchax.install()
    torchax.disable_globally()
    assert_type(torchax.compile(linear, torchax.CompileOptions()), torchax.JittableModule)
    torchax.save_checkpoint({"weight": jnp.ones(2)}, path, 1)
    assert_type(torchax.load_checkpoint(path), Output)
    for mode in (torchax.enable_accuracy_mode, torchax.enable_performance_mode):
        mode()


def through_interop(folder: Path) -> None:
    import optax  # type: ignore[import-untyped, unused-ignore]

    from anyjax.torch import interop

    def square(x: torch.Tensor) -> torch.Tensor:
        return (x**2).sum()

    array = jnp.ones(3)
    tensor = assert_type(interop.torch_view_elem(array), torch.Tensor)
    assert_type(interop.jax_view_elem(tensor), jax.Array)
    assert_type(interop.torch_view({"x": array})["x"], TorchOutput)
    assert_type(interop.jax_view((tensor, tensor)), Output)
    assert_type(interop.jax_view(square), Callable[..., Output])
    assert_type(interop.to_jax(mlp()), torch.nn.Module)
    assert_type(interop.call_jax(jnp.sum, tensor), TorchOutput)
    assert_type(interop.call_torch(torch.sum, array), Output)
    for function in (
        interop.j2t_autograd(jnp.sum), interop.jax_jit(square), interop.wrap_jax_jit(square),
        interop.jit(square), interop.gradient_checkpoint(square), interop.remat(square),
        interop.compile(square),
    ):  # fmt: skip
        assert_type(function(tensor), TorchOutput)
    value, gradient = interop.jax_value_and_grad(square)(tensor)
    assert_type((value, gradient), tuple[TorchOutput, TorchOutput])
    assert_type(interop.compile(torch.nn.Linear(3, 2)), interop.JittableModule)
    linear = interop.JittableModule(torch.nn.Linear(3, 2))
    linear.make_jitted("forward")
    assert_type(linear.jittable_call("forward", tensor), TorchOutput)
    assert_type(linear.forward(tensor), TorchOutput)
    assert_type(
        linear.functional_call("forward", linear.params, linear.buffers, tensor), TorchOutput
    )
    with interop.default_env() as env:
        assert_type(env.prng_key, jax.Array)
    assert_type(interop.fori_loop(0, 3, lambda i, x: x, tensor), TorchOutput)
    assert_type(interop.extract_jax(mlp())[0], dict[str, jax.Array])
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    spec = jax.P(None)  # type: ignore[no-untyped-call]
    everywhere = jax.sharding.NamedSharding(mesh, spec)
    assert_type(interop.mark_sharding(tensor, everywhere), TorchOutput)
    specs = {"mesh": mesh, "in_specs": spec, "out_specs": spec}
    assert_type(interop.jax_shard_map(lambda x: 2 * x, specs)(tensor), TorchOutput)
    step = interop.make_train_step(torch.add, torch.sub, optax.sgd(0.1))
    assert_type(step, Callable[..., tuple[TorchOutput, TorchOutput, TorchOutput]])
    assert callable(interop.enable_globally)


if __name__ == "__main__":
    for section in (through_interop, as_torchax):
        with TemporaryDirectory() as name:
            section(Path(name))
        print(section.__name__, flush=True)
