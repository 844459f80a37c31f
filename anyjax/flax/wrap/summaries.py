"""Outputs of the source's own classes in Flax's summary tables, which print YAML."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flax.nnx.summary import NoneDumper
from jax.tree_util import default_registry

_DUMPERS: list[Any] = [NoneDumper, NoneDumper.__base__]  # of nnx.tabulate, of nn.tabulate
_REGISTERED = {dict, list, tuple, type(None)}


def printable(tree: object) -> None:
    """Registers the container classes of ``tree`` with Flax's tables: a mapping shows its items,
    any other container the name of its class.

    Example:
      >>> import numpy as np, yaml
      >>> Output = type("Output", (dict,), {})
      >>> printable(anyjax.trees.register(Output(logits=np.ones(2))))
      >>> print(yaml.safe_dump(Output(logits="float32[2]")).strip())
      logits: float32[2]
    """
    level = default_registry.flatten_one_level(tree)
    if level is None:
        return
    cls = type(tree)
    for dumper in _DUMPERS if cls not in _REGISTERED else ():
        if cls not in dumper.yaml_representers:
            dumper.add_representer(cls, _show)
    _REGISTERED.add(cls)
    for child in level[0]:
        printable(child)


def _show(dumper: Any, tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return dumper.represent_dict({k: v for k, v in tree.items() if v is not None})
    return dumper.represent_str(type(tree).__name__)
