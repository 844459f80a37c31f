"""Source code that was written, run beside the module."""

import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import torch
from flax import nnx

import anyjax
from tests.tolerance import assert_close


def loaded(text: str) -> types.ModuleType:
    """The file as a module."""
    module = types.ModuleType("written_for_a_test")
    sys.modules[module.__name__] = module
    exec(compile(text, module.__name__, "exec"), vars(module))
    return module


def arrays(tensors) -> list[jax.Array]:
    return [jnp.asarray(np.asarray(x)) for x in tensors]


def leaves(value) -> list:
    """The arrays of a result, in its order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [x for element in value for x in leaves(element)]
    return [] if value is None else [value]


def prepared(module: torch.nn.Module, inputs, **how):
    """(the text, the Flax model with the module's weights)."""
    text = anyjax.flax.source(module, *inputs, **how)
    file = loaded(text)
    model = getattr(file, type(module).__name__)(rngs=nnx.Rngs(0))
    weights = {k: v.detach().numpy() for k, v in module.state_dict().items()}
    return text, file.load_params(model, weights)


def assert_same_values(module, model, inputs, depth=64) -> None:
    with torch.no_grad():
        want = leaves(module(*inputs))
    got = leaves(model(*arrays(inputs)))
    assert len(got) == len(want)
    for x, y in zip(got, want):
        assert x.shape == y.shape
        assert_close(x, y.numpy(), reduction=depth)


def assert_same_gradients(module, model, inputs, depth=256) -> None:
    """Of the sum of sines, by the names of the weights."""
    module.zero_grad()
    sum((3 * x).sin().sum() for x in leaves(module(*inputs))).backward()
    loss = lambda model, *x: sum(jnp.sin(3 * y).sum() for y in leaves(model(*x)))
    gradients = nnx.to_flat_state(nnx.grad(loss)(model, *arrays(inputs)))
    names = {"kernel": "weight", "scale": "weight", "embedding": "weight"}
    slopes = {k: p.grad if p.grad is not None else 0 * p for k, p in module.named_parameters()}
    assert len(gradients) == len(slopes)
    chains = {x for x, node in nnx.iter_graph(model) if isinstance(node, nnx.Sequential)}
    for path, value in gradients:
        in_torch = lambda i, x, path=path: path[:i] not in chains and x != "layers_"
        *home, name = (str(x) for i, x in enumerate(path) if in_torch(i, x))
        key = ".".join([*home, name])
        key = key if key in slopes else ".".join([*home, names.get(name, name)])
        want = slopes[key].detach().numpy()
        mine = np.asarray(value[...])
        if name == "kernel":
            want = want.transpose(*range(2, want.ndim), 1, 0)
        assert_close(mine, want, reduction=depth)


def assert_same_outputs(module, file, inputs) -> None:
    """A file's outermost class beside the module, by the names of the inputs."""
    model = getattr(file, type(module).__name__)(rngs=nnx.Rngs(0))
    file.load_params(model, {k: v.detach().numpy() for k, v in module.state_dict().items()}).eval()
    got = leaves(model(**{k: jnp.asarray(np.asarray(v)) for k, v in inputs.items()}))
    options = {"use_cache": False} if hasattr(module, "config") and "input_ids" in inputs else {}
    with torch.no_grad():
        want = leaves(module(**inputs, **options))
    assert len(got) == len(want)
    for x, y in zip(got, want):
        assert_close(x, y.numpy(), reduction=4096)
