"""The finished file: imports, classes, the loader, and a check of itself."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Collection, Mapping

from anyjax.errors import MissingDependency

NNX_LOADER = '''

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
        raise ValueError("\\n".join(["the weights do not fit:", *wrong]))
    nnx.update(model, nnx.from_flat_state(state))
    return model
'''
SPELLING = '''
# PyTorch's names of modules and arrays that are none here.
SPELLED = {names}


def spelled(name):
    """A name of PyTorch's as it is here."""
    for theirs, ours in SPELLED.items():
        if f"{{name}}.".startswith(f"{{theirs}}."):
            name = ours + name[len(theirs) :]
    return name
'''
UNREAD = """
# Weights of PyTorch's that nothing here reads; * stands for a number.
UNREAD = {names}
"""
READER = '''

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
'''
# The self-check of a written file: ``python model.py WEIGHTS EXAMPLE.npz``.
CHECK = '''

def check(weights, example):
    """How far outputs are from those in an .npz file, relative to the largest value of each.

    The file has the inputs by their names, and the outputs as output_0, output_1, ...
    """
    given = {name: jnp.asarray(array) for name, array in jnp.load(example).items()}
    count = sum(name.startswith("output_") for name in given)
    wanted = [given.pop(f"output_{i}") for i in range(count)]
    REPLACED
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
'''
NNX = """\
model = load_params({name}(rngs=nnx.Rngs(0)), weights)
    model.eval()
    found = model(**given)"""
LINEN = "found = {name}().apply(load_params(weights), **given)"
# Where PyTorch's names lack what nnx puts between: the list inside of a Sequential.
PLAIN = "map(str, path)\n"
CHAINS = """\
    chains = {x for x, part in nnx.iter_graph(model) if isinstance(part, nnx.Sequential)}
    for path, variable in state:
"""
BUFFER = '''class Buffer(nnx.Variable):
    """An array that comes with the weights and that training leaves as it is."""
'''
# Of what a file may have, beside the classes of the module: what no class of it may hide.
NAMES = {
    *("jax", "jnp", "nnx", "nn", "optax", "anyjax", "Buffer", "Recurrent"),
    *("SequentialLayers", "taps", "interpolated", "sampled", "attention_with_dropout"),
    *("mean_cross_entropy", "connect", "load_params", "read_safetensors", "spelled", "check"),
    *("leaves", "EXAMPLE", "SPELLED", "UNREAD"),
}
STANDARD = ("dataclasses", "inspect", "json", "math", "pathlib", "re", "sys")


def assembled(classes: list[str], loader: str, check: str, flax: str) -> str:
    """Returns the file, formatted."""
    conditions, loop_variables = [], "x in path"
    if any("nnx.Sequential" in text for text in classes):
        loader = loader.replace("    for path, variable in state:\n", CHAINS)
        conditions, loop_variables = ["path[:i] not in chains"], "i, x in enumerate(path)"
    if any("self.layers_" in text for text in classes):
        conditions.append('x != "layers_"')
    if conditions:
        loader = loader.replace(
            PLAIN, f"(str(x) for {loop_variables} if {' and '.join(conditions)})\n"
        )
    if any("Buffer(" in text for text in classes):
        classes = [BUFFER, *classes]
        loader = loader.replace("nnx.BatchStat)", "nnx.BatchStat, Buffer)")
    body = "\n\n".join(classes) + loader + READER + check
    lines = [f"import {name}" for name in STANDARD if re.search(rf"\b{name}\.", body)]
    lines += [""] * bool(lines)
    lines += ["import jax"] * bool(re.search(r"\bjax\.", body))
    lines += ["import jax.numpy as jnp"] + ["import optax"] * ("optax." in body) + [flax]
    lines += ["", "import anyjax"] * ("anyjax." in body)
    return formatted("\n".join(lines) + "\n\n\n" + body)


def loader_text(loader: str, spellings: Mapping[str, str], unread: Collection[str]) -> str:
    """Returns a loader that knows other names of weights, and those that it may leave out."""
    tables = ""
    if spellings:
        tables += SPELLING.format(names=dict(spellings))
        read = "        weights = read_safetensors(weights)\n"
        renamed = "    weights = {spelled(name): x for name, x in weights.items()}\n"
        loader = loader.replace(read, read + renamed)
    if unread:
        tables += UNREAD.format(names="{" + ", ".join(map(repr, sorted(unread))) + "}")
        loader = loader.replace(
            "not in read]", r"""not in read and re.sub(r"\d+", "*", name) not in UNREAD]"""
        )
    return "\n" * bool(tables) + tables + loader


def check_of(name: str, call: str) -> str:
    """Returns the text for a file whose outermost class has this name."""
    return CHECK.replace("REPLACED", call.format(name=name))


def formatted(text: str) -> str:
    """Formats the text by ruff, which comes with ``anyjax[flax]``.

    Raises:
      MissingDependency: it is not installed.
    """
    if importlib.util.find_spec("ruff") is None:
        raise MissingDependency(
            "ruff is not installed",
            why="it formats the source code that is written",
            do="pip install 'anyjax[flax]'",
        )
    python = [sys.executable, "-P"]  # a module of the working folder is none of Python's
    command = [*python, "-m", "ruff", "format", "--line-length", "100", "--isolated", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
