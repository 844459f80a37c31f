"""Tagger in Flax's nnx, written by anyjax from its PyTorch module."""

import json
import pathlib
import sys

import jax
import jax.numpy as jnp
from flax import nnx


class Recurrent(nnx.Module):
    """PyTorch's recurrent layers: several, in one direction or both, weights by its names."""

    def __init__(self, features, hidden, num_layers=1, bidirectional=False, use_bias=True, *, rngs):
        self.hidden, self.num_layers, self.use_bias = hidden, num_layers, use_bias
        self.directions = ["", "_reverse"] if bidirectional else [""]
        rows, bound = self.gates * hidden, hidden**-0.5
        for layer in range(num_layers):
            for end in self.directions:
                sizes = {"weight_ih": (rows, features), "weight_hh": (rows, hidden)}
                if use_bias:
                    sizes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                for name, size in sizes.items():
                    drawn = rngs.params.uniform(size, minval=-bound, maxval=bound)
                    setattr(self, f"{name}_l{layer}{end}", nnx.Param(drawn))
            features = hidden * len(self.directions)

    def __call__(self, x):
        """x: (batch, length, features); gives outputs and the last of each state."""
        last = []
        for layer in range(self.num_layers):
            outputs = []
            for end in self.directions:
                ours = lambda name: getattr(self, f"{name}_l{layer}{end}")[...]
                bias_ih, bias_hh = (ours("bias_ih"), ours("bias_hh")) if self.use_bias else (0, 0)
                zeros = (jnp.zeros((x.shape[0], self.hidden), x.dtype),) * self.states
                gates = (x @ ours("weight_ih").T + bias_ih).swapaxes(0, 1)

                def step(state, gates, weight=ours("weight_hh"), bias=bias_hh):
                    state = self.cell(gates, state[0] @ weight.T + bias, *state)
                    return state, state[0]

                carry, out = jax.lax.scan(step, zeros, gates, reverse=bool(end))
                last.append(carry)
                outputs.append(out.swapaxes(0, 1))
            x = jnp.concatenate(outputs, axis=-1)
        return x, *(jnp.stack(part) for part in zip(*last))


class LSTMLayers(Recurrent):
    """Gates in the order i, f, g, o."""

    gates, states = 4, 2

    def cell(self, from_input, from_hidden, h, c):
        i, f, g, o = jnp.split(from_input + from_hidden, 4, axis=-1)
        c = nnx.sigmoid(f) * c + nnx.sigmoid(i) * jnp.tanh(g)
        return nnx.sigmoid(o) * jnp.tanh(c), c


class Tagger(nnx.Module):
    def __init__(self, *, rngs: nnx.Rngs):
        self.embed = nnx.Embed(50, 16, rngs=rngs)
        self.lstm = LSTMLayers(16, 12, num_layers=2, bidirectional=True, rngs=rngs)
        self.tag = nnx.Linear(24, 5, rngs=rngs)

    def __call__(self, tokens):
        """tokens: int32 (batch, length)"""
        hidden, _, _ = self.lstm(self.embed(tokens))
        return self.tag(hidden)


def load_params(model, weights):
    """Fills the model from a state dict of PyTorch, or from a file or folder of safetensors."""
    if not isinstance(weights, dict):
        weights = read_safetensors(weights)
    names = dict.fromkeys(("kernel", "scale", "embedding"), "weight")
    names |= {"mean": "running_mean", "var": "running_var"}
    state = nnx.to_flat_state(nnx.state(model, (nnx.Param, nnx.BatchStat)))
    wrong, read = [], set()
    for path, variable in state:
        *home, name = map(str, path)
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
    model = load_params(Tagger(rngs=nnx.Rngs(0)), weights)
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
