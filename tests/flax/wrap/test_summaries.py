"""YAML of outputs; whole tables are in test_nnx.py and test_linen.py."""

import io
from collections import OrderedDict

import jax
import numpy as np
import yaml

from anyjax import trees
from anyjax.flax.wrap.summaries import printable


class Output(OrderedDict):
    """As transformers' outputs are."""


class Cache:
    def __init__(self):
        self.keys = [np.zeros(3)]


def test_classes_are_shown_once_they_are_known():
    out = trees.register(Output(logits=np.zeros(2), loss=None, cache=Cache()))
    printable([out, {"a": out}])
    file = io.StringIO()
    yaml.safe_dump({"out": jax.tree.map(str, out)}, file)
    assert yaml.safe_load(file.getvalue()) == {"out": {"logits": "[0. 0.]", "cache": "Cache"}}
