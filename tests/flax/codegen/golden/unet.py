"""UNet in Flax's nnx, written by anyjax from its PyTorch module."""

import json
import pathlib
import sys

import jax.numpy as jnp
from flax import nnx


class DoubleConv(nnx.Module):
    def __init__(self, inside, outside, *, rngs: nnx.Rngs):
        self.net = nnx.Sequential(
            nnx.Conv(inside, outside, kernel_size=(3, 3), padding=1, rngs=rngs),
            nnx.GroupNorm(outside, num_groups=2, epsilon=1e-05, rngs=rngs),
            nnx.silu,
            nnx.Conv(outside, outside, kernel_size=(3, 3), padding=1, rngs=rngs),
            nnx.silu,
        )

    def __call__(self, x):
        return self.net(x)


class UNet(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs):
        self.down1 = DoubleConv(3, 8, rngs=rngs)
        self.down2 = DoubleConv(8, 16, rngs=rngs)
        self.up = nnx.ConvTranspose(
            16,
            8,
            (2, 2),
            strides=(2, 2),
            padding=((1, 1), (1, 1)),
            transpose_kernel=True,
            rngs=rngs,
        )
        self.up1 = DoubleConv(16, 8, rngs=rngs)
        self.out = nnx.Conv(8, 1, kernel_size=(1, 1), padding="VALID", rngs=rngs)

    def __call__(self, x):
        """x: float32 (batch, channels, height, width)"""
        x = x.transpose(0, 2, 3, 1)
        skip = self.down1(x)
        x = self.down2(nnx.max_pool(skip, (2, 2), strides=(2, 2)))
        x = jnp.concatenate([self.up(x), skip], axis=3)
        return self.out(self.up1(x)).transpose(0, 3, 1, 2)


def load_params(model, weights):
    """Fills the model from a state dict of PyTorch, or from a file or folder of safetensors."""
    if not isinstance(weights, dict):
        weights = read_safetensors(weights)
    names = dict.fromkeys(("kernel", "scale", "embedding"), "weight")
    names |= {"mean": "running_mean", "var": "running_var"}
    state = nnx.to_flat_state(nnx.state(model, (nnx.Param, nnx.BatchStat)))
    wrong, read = [], set()
    chains = {x for x, part in nnx.iter_graph(model) if isinstance(part, nnx.Sequential)}
    for path, variable in state:
        *home, name = (str(x) for i, x in enumerate(path) if path[:i] not in chains)
        own, key = (".".join([*home, x]) for x in (name, names.get(name, name)))
        key = own if own in weights else key
        read.add(key)
        if key not in weights:
            wrong.append(f"{key} is missing")
            continue
        value = jnp.asarray(weights[key])
        if name == "kernel" and key != own and value.ndim > 1:
            value = value.transpose(*range(2, value.ndim), 1, 0)
        if value.shape == variable.shape:
            variable[...] = value
        else:
            wrong.append(f"{key} has the shape {value.shape}, not {variable.shape}")
    wrong += [f"{name} has no place" for name in weights if name not in read]
    if wrong:
        raise ValueError("\n".join(["the weights do not fit:", *wrong]))
    nnx.update(model, nnx.from_flat_state(state))
    return model


def read_safetensors(path):
    """The arrays in a safetensors file, or in those of a folder, by name."""
    kinds = {"F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64", "I32": "int32"}
    arrays = {}
    path = pathlib.Path(path)
    for file in sorted(path.glob("*.safetensors")) if path.is_dir() else [path]:
        data = file.read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        entries = json.loads(data[8:begin])
        entries.pop("__metadata__", None)
        for name, entry in entries.items():
            start, stop = entry["data_offsets"]
            array = jnp.frombuffer(data[begin + start : begin + stop], kinds[entry["dtype"]])
            arrays[name] = array.reshape(entry["shape"])
    return arrays


def check(weights, example):
    """How far outputs are from those in an .npz file, relative to the largest value of each.

    The file has the inputs by their names, and the outputs as output_0, output_1, ...
    """
    given = {name: jnp.asarray(array) for name, array in jnp.load(example).items()}
    count = sum(name.startswith("output_") for name in given)
    wanted = [given.pop(f"output_{i}") for i in range(count)]
    model = load_params(UNet(rngs=nnx.Rngs(0)), weights)
    model.eval()
    found = model(**given)
    return max(
        float(abs(mine - want).max() / max(abs(want).max(), 1e-6))
        for mine, want in zip(leaves(found), wanted, strict=True)
    )


def leaves(value):
    """The arrays of floats in an output, in its order."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [value] if jnp.issubdtype(value.dtype, jnp.floating) else []


if __name__ == "__main__":
    weights, example = sys.argv[1:]
    off = check(weights, example)
    print(f"outputs differ from those in {example} by {off:.1e} of their largest value")
    sys.exit(off > 1e-3)
