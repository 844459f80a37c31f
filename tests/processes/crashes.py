"""Programs that read memory which tensors on JAX have none of, or begin a trace inside of another.

python -m tests.processes.crashes prints, as JSON, how far each is off, or the class of the error
that it ends in, or the signal: each runs in a fork of a process that has run nothing yet.
"""

import ctypes
import json
import os
import pickle
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

import anyjax
from anyjax.torch import from_jax, interop

X = np.arange(12, dtype=np.float32).reshape(3, 4) / 10
TABLE = torch.arange(4.0) + 1
LAYER = nn.Linear(4, 4)


class Mapped(nn.Module):
    """Runs a layer under torch.func."""

    def __init__(self, transformed):
        super().__init__()
        self.layer, self.transformed = LAYER, transformed

    def forward(self, x):
        return self.transformed(self.layer)(x)


def vmapped() -> Mapped:
    return Mapped(torch.func.vmap)


def gradient(layer):
    return torch.func.grad(lambda x: layer(x).sum())


@torch.library.custom_op("crashes::doubled", mutates_args=())
def doubled(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    ctypes.memmove(y.data_ptr(), x.data_ptr(), 4 * x.numel())
    return y + y


@torch.library.custom_op("crashes::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.sin(x.numpy()))


@torch.library.custom_op("crashes::rows", mutates_args=())
def rows(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(x[1:].tolist())


@doubled.register_fake
def _(x):
    return torch.empty_like(x)


@rows.register_fake
def _(x):
    return torch.empty_like(x[1:])


torch.library.define("crashes::gelu", "(Tensor x) -> Tensor")


@anyjax.lowers(torch.ops.crashes.gelu.default)
def gelu(x):
    return anyjax.from_torch(torch.nn.functional.gelu)(x)


def written() -> str:
    file = os.path.join(tempfile.mkdtemp(), "table.pt")
    torch.save({"table": TABLE}, file)
    return file


def loaded(file):
    return equal(lambda x: x * torch.load(file)["table"])


def filled() -> torch.Tensor:
    x = torch.empty(0)
    x.set_(TABLE.untyped_storage(), 1, (2, 2), (1, 1))
    return x.sum()


def on_jax():
    return interop.to_jax(torch.from_numpy(X))


def data_set():
    parameter = nn.Parameter(torch.ones(3))
    parameter.data = on_jax()
    return parameter + 1


def equal(function, expected=None):
    """Returns how far the converted function is from torch's own."""
    expected = function(torch.from_numpy(X)) if expected is None else expected
    return float(np.abs(anyjax.from_torch(function)(X) - np.asarray(expected.detach())).max())


def inlined(call, expected):
    """Returns how far a Model inside of torch code is from its module."""
    model = anyjax.from_torch(LAYER)
    expected = expected(LAYER, torch.from_numpy(X)).detach().numpy()
    return float(np.abs(np.asarray(call(model)) - expected).max())


double = lambda layer, x: 2 * layer(x)
in_torch = lambda function: anyjax.from_torch(function)(X)
CASES = {
    "a model in a model": lambda: inlined(
        lambda m: in_torch(lambda x: torch.add(m(x), m.apply(m.params, x))), double
    ),
    "a model in a module's forward": lambda: inlined(
        lambda m: anyjax.from_torch(nn.Sequential(nn.Identity(), Called(m)))(X), double
    ),
    "a model in from_jax": lambda: inlined(
        lambda m: in_torch(lambda x: from_jax(m)(x) * 2), double
    ),
    "a model in vmap": lambda: inlined(
        lambda m: in_torch(lambda x: torch.func.vmap(lambda y: m(y) * 2)(x)), double
    ),
    "a model on JAX": lambda: inlined(lambda m: m(on_jax()) * 2, double),
    "a model in jax_jit": lambda: inlined(
        lambda m: interop.jax_jit(lambda x: m(x) * 2)(on_jax()).numpy(), double
    ),
    "a gradient of a model": lambda: inlined(
        lambda m: in_torch(lambda x: torch.autograd.grad(m(x).sum(), x)[0]),
        lambda layer, x: gradient(layer)(x),
    ),
    "a model in a lowering": lambda: float(
        abs(torch.ops.crashes.gelu(on_jax()).jax() - jax.nn.gelu(X, approximate=False)).max()
    ),
    "a model in a lowering of a trace": lambda: float(
        abs(in_torch(torch.ops.crashes.gelu) - jax.nn.gelu(X, approximate=False)).max()
    ),
    "values under vmap": lambda: equal_values(vmapped(), LAYER(torch.from_numpy(X))),
    "values under grad": lambda: equal_values(Mapped(gradient), LAYER(torch.from_numpy(X))),
    "an edit under vmap": lambda: float(
        abs(
            anyjax.transforms.edit(anyjax.from_torch(vmapped()), {"layer": jnp.zeros_like})(X)
        ).max()
    ),
    "an edit under grad": lambda: anyjax.transforms.edit(
        anyjax.from_torch(Mapped(gradient)), {"layer": jnp.zeros_like}
    )(X),
    "verify under vmap": lambda: float(not anyjax.verify(anyjax.from_torch(vmapped()), X)),
    "jax under vmap": lambda: equal(lambda x: torch.func.vmap(from_jax(jnp.sin))(x), np_sine()),
    "torch.load": lambda: loaded(written()),
    "torch.save": lambda: equal(lambda x: torch.save(x, written())),
    "pickle of a constant": lambda: equal(lambda x: x + pickle.loads(pickle.dumps(TABLE * 2))),
    "set_": lambda: equal(lambda x: x + filled()),
    "share_memory_": lambda: equal(lambda x: x + (TABLE * 2).share_memory_()),
    "share_memory_ of a traced value": lambda: equal(lambda x: x + (x * 2).share_memory_()),
    "dlpack": lambda: equal(lambda x: x + torch.from_numpy(np.from_dlpack(TABLE * 2))),
    "dlpack of a traced value": lambda: equal(lambda x: x + torch.from_numpy(np.from_dlpack(x))),
    "to_dlpack": lambda: equal(lambda x: torch.from_dlpack(torch.utils.dlpack.to_dlpack(x * 2))),
    "data_ptr": lambda: in_torch(lambda x: x + (x * 2).data_ptr()),
    "storage": lambda: in_torch(lambda x: x + len(x.untyped_storage())),
    "a pointer in an operator": lambda: equal(lambda x: doubled(x * 2)),
    "numpy in an operator without shapes": lambda: in_torch(lambda x: sine(x)),
    "lists in an operator": lambda: equal(lambda x: rows(x * 2)[1:]),
    "data": data_set,
}


class Called(nn.Module):
    """Calls a Model as a layer."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return torch.mul(self.model(x), 2)


def np_sine():
    return torch.from_numpy(np.sin(X))


def equal_values(module, expected):
    """Returns how far the values inside of a module are from those of a layer alone."""
    _, values = anyjax.transforms.intermediates(anyjax.from_torch(module), "layer")(X)
    return float(np.abs(values["layer"] - expected.detach().numpy()).max())


def ended(case) -> str | float:
    """Runs a case in a fork; returns what it ended in."""
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            result = case()
        except Exception as error:
            result = type(error).__name__
        os.write(write, json.dumps(result, default=str).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    _, status = os.waitpid(pid, 0)
    return json.loads(text) if text else f"status {status}"


if __name__ == "__main__":
    print(json.dumps({name: ended(case) for name, case in CASES.items()}))
