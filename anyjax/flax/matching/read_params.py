"""The params of a JAX checkpoint: Orbax, msgpack, safetensors or npz."""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from anyjax.errors import BadCheckpoint
from anyjax.files import refuse_inflated
from anyjax.flax.matching import stored
from anyjax.trees import is_array
from anyjax.typing import Output, PyTree

# Of train states, and no weights: trees, and integers.
_OPTIMIZERS = {"opt_state", "optimizer_state", "rngs"}
_COUNTERS = {"step", "count", "epoch", "rng", "key"}
_WEIGHTS = {"params", "batch_stats", "state"}  # stay together
_AROUND = {"model", "params", "state", "train_state", "target", "variables", "default"}


def read_params(path: str | os.PathLike[str], key: str | None = None) -> dict[str, Output]:
    """Reads the params of a JAX checkpoint, of a train state without its optimizer.

    Args:
      path: an Orbax folder, also of a CheckpointManager, whose last step it is; a file of msgpack
        (flax.serialization), safetensors or npz.
      key: where the params are, as "ema_params" or "state/params"; found by their names by default.

    Returns:
      A nested dict of arrays, as it was saved; of Linen with its collections.

    Raises:
      BadCheckpoint: the files are damaged or of another kind, hold no params, or several.

    Example:
      >>> import numpy as np, pathlib, tempfile
      >>> file = pathlib.Path(tempfile.mkdtemp(), "net.npz")
      >>> np.savez(file, **{"fc/kernel": np.ones((3, 2)), "fc/bias": np.zeros(2)})
      >>> {name: x.shape for name, x in anyjax.flax.read_params(file).items()}
      {'fc/kernel': (3, 2), 'fc/bias': (2,)}
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise _bad(path, f"there is no {path}", f"the working folder is {Path.cwd()}")
    try:
        tree = _read(path)
    except BadCheckpoint:
        raise
    except Exception as error:  # each library has its own
        lines = " ".join(f"{type(error).__name__}: {error}".split())
        raise _bad(path, f"{path.name} cannot be read", lines[:300]) from error
    return _params(tree, path, key)


def _read(path: Path) -> PyTree:
    if path.is_dir():
        folder = _orbax_item(path)
        if folder is not None:
            return _read_orbax(folder)
        files = sorted(path.glob("*.msgpack"))
        if len(files) > 1:
            names = ", ".join(file.name for file in files[:5])
            raise _bad(path, f"{path.name} holds {names}", "any of them may be the params")
        if files:
            return _read_msgpack(files[0])
        return {name: x.read() for name, x in stored.from_files(path).items()}
    if path.suffix == ".safetensors":
        return {name: x.read() for name, x in stored.from_files(path).items()}
    if path.suffix == ".npz" or zipfile.is_zipfile(path):
        refuse_inflated(path)
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    if path.suffix in (".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt"):
        raise _bad(path, f"{path.name} is a pickle", "reading one can run any code")
    return _read_msgpack(path)


def _read_msgpack(path: Path) -> PyTree:
    from flax.serialization import msgpack_restore

    tree = msgpack_restore(path.read_bytes())
    if not isinstance(tree, dict):
        raise _bad(
            path, f"{path.name} holds a {type(tree).__name__}", "params are a dict of arrays"
        )
    return tree


def _orbax_item(path: Path) -> Path | None:
    """Returns the folder of a pytree in an Orbax checkpoint, of the last step if there are any."""
    if (path / "_METADATA").exists():
        return path
    steps = [x for x in path.iterdir() if x.is_dir() and x.name.isdigit()]
    if not steps and (path / "checkpoints").is_dir():  # of anyjax.train.fit
        return _orbax_item(path / "checkpoints")
    if steps:
        return _orbax_item(max(steps, key=lambda x: int(x.name)))
    items = [x for x in path.iterdir() if (x / "_METADATA").exists()]
    if len(items) > 1:
        names = ", ".join(sorted(x.name for x in items))
        raise _bad(path, f"{path.name} holds {names}", "any of them may be the params")
    return items[0] if items else None


def _read_orbax(folder: Path) -> PyTree:
    import orbax.checkpoint as ocp

    checkpointer = ocp.PyTreeCheckpointer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the devices that it was saved on
        shapes = checkpointer.metadata(folder.absolute())
        tree = getattr(shapes, "item_metadata", shapes)
        args = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), dict(tree))
        return checkpointer.restore(folder.absolute(), restore_args=args)


def _params(tree: PyTree, path: Path, key: str | None) -> dict[str, Any]:
    if key is not None:
        for step in key.split("/"):
            if not isinstance(tree, Mapping) or step not in tree:
                names = ", ".join(tree) if isinstance(tree, Mapping) else type(tree).__name__
                raise _bad(path, f"{path.name} has no {key}", f"at {step!r} there is {names}")
            tree = tree[step]
        return tree
    while True:
        tree = _weights(tree)
        if not tree:
            raise _bad(path, f"{path.name} holds no params", "there are no arrays of floats in it")
        several = [name for name in tree if "params" in str(name)]
        if len(several) > 1:
            why = "they fit equally well"
            raise _bad(path, f"{path.name} holds {', '.join(several)}", why, several[0])
        if set(tree) <= _WEIGHTS and "params" in tree and len(tree) > 1:
            return tree
        if several and set(tree) - _WEIGHTS:
            tree = {name: tree[name] for name in tree if name in _WEIGHTS}
            continue
        name, inner = next(iter(tree.items()))
        if len(tree) > 1 or not isinstance(inner, Mapping) or not _is_around(name):
            return tree
        tree = inner


def _is_around(name: str) -> bool:
    return name in _AROUND or str(name).isdigit()


def _weights(tree: PyTree) -> dict[str, Any]:
    """Returns the tree without optimizer, counters and keys, and without what is then empty."""
    items = enumerate(tree) if isinstance(tree, list | tuple) else tree.items()
    weights: dict[str, Any] = {}
    for name, value in items:
        if isinstance(value, Mapping | list | tuple):
            inner = {} if name in _OPTIMIZERS else _weights(value)
            if inner:
                weights[str(name)] = inner
        elif is_array(value) and (name not in _COUNTERS or value.dtype.kind == "f"):
            weights[str(name)] = value
    return weights


def _bad(path: Path, what: str, why: str, key: str = "") -> BadCheckpoint:
    return BadCheckpoint(
        what,
        where=str(path),
        why=why,
        do=f"name one: key={key!r}, on the command line --key {key}"
        if key
        else "give an Orbax folder, or a file of msgpack, safetensors or npz; "
        "load others yourself and give the pytree",
    )
