"""Blocks that are run once: the program is that of a trace in which all of them run."""

import jax
import numpy as np
import pytest
import torch
import transformers as tf
from torch import nn

import tojax
from tests.parallel.architectures import CASES
from tests.torch.reuse.equal import difference
from tojax.torch.reuse import blocks

DEPTHS = ("num_hidden_layers", "n_layer", "encoder_layers", "decoder_layers", "num_layers")
DEEP = dict.fromkeys(DEPTHS, 6) | {"depths": [6, 6]}


def both(module, *args, rng=None, **kwargs):
    """(What siblings shared, how the program differs from that of a full trace.)"""
    with blocks.watching() as seen:
        shared = program(module, args, kwargs, rng)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "FEW", 1 << 30)
        full = program(module, args, kwargs, rng)
    return seen, difference(shared, full)


def program(module, args, kwargs, rng):
    """All arrays that a call gives, those that it writes included."""
    model = tojax.from_torch(module)
    call = lambda params, state, args, kwargs, rng: model.apply(
        params, *args, state=state, rng=rng, mutable=True, **kwargs
    )
    known = {k: v for k, v in kwargs.items() if not hasattr(v, "shape")}
    given = {k: v for k, v in kwargs.items() if k not in known}
    run = lambda params, state, args, given, rng: jax.tree.leaves(
        call(params, state, args, given | known, rng)
    )
    return jax.make_jaxpr(run)(model.params, model.state, args, given, rng)


def deep(name, training=False):
    """(module with 6 layers, inputs)."""
    cls, sizes, inputs = CASES[name]
    kind = getattr(tf, cls)
    torch.manual_seed(0)
    module = kind(kind.config_class(**{k: DEEP.get(k, v) for k, v in sizes.items()}))
    return module.train(training), inputs


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_architectures(name, training):
    module, inputs = deep(name, training)
    cache = {} if name in ("vit", "swin", "resnet", "bert", "roberta") else {"use_cache": False}
    seen, wrong = both(module, rng=jax.random.key(0), **inputs, **cache)
    print(name, training, [(g.name, g.noted, g.shared, g.reasons) for g in seen])
    assert not wrong
