"""Blocks that are run once: the program is that of a trace in which all of them run."""

import itertools
import sys

import jax
import pytest
import torch
import transformers as tf
from torch import nn

import tojax
from tests.parallel.architectures import CASES
from tests.torch.reuse.nets import Net, X, both, sharing
from tojax.errors import DataDependent, MissingOps
from tojax.torch.reuse import blocks

DEPTHS = ("num_hidden_layers", "n_layer", "encoder_layers", "decoder_layers", "num_layers")
DEEP = dict.fromkeys(DEPTHS, 6) | {"depths": [6, 6]}


def deep(name, training=False):
    """(module with 6 layers, inputs)."""
    cls, sizes, inputs = CASES[name]
    kind = getattr(tf, cls)
    torch.manual_seed(0)
    module = kind(kind.config_class(**{k: DEEP.get(k, v) for k, v in sizes.items()}))
    return module.train(training), inputs


QUICK = {("llama", False), ("gpt2", True), ("gemma2", False), ("resnet", False)}
KINDS = [
    pytest.param(*kind, marks=() if kind in QUICK else pytest.mark.conformance)
    for kind in itertools.product(CASES, (False, True))
]
# Of six layers, where it is not one for all five others: layers of two kinds; a first layer with a
# table of positions, or other shapes; rates of dropped paths; gradients of its own.
SHARED = {"gemma2": 4, "t5": 4, "resnet": 4, "swin": 0, "bloom": 0}


@pytest.mark.parametrize(("name", "training"), KINDS)
def test_architectures(name, training):
    module, inputs = deep(name, training)
    cache = {} if name in ("vit", "swin", "resnet", "bert", "roberta") else {"use_cache": False}
    seen, wrong = both(module, rng=jax.random.key(0), **inputs, **cache)
    assert not wrong
    shared = 0 if (name, training) == ("resnet", True) else SHARED.get(name, 5)
    assert {g.shared for g in seen} == {shared}


def failing(i, fail):
    """A net whose block ``i`` does what it should not."""
    made = Net()
    made.blocks[i].forward = fail
    return made


@pytest.mark.parametrize("i", [0, 4])
@pytest.mark.parametrize(
    ("error", "fail"),
    [
        (DataDependent, lambda x: x[: int(x.sum())]),
        (DataDependent, lambda x: x * x.tolist()[0][0]),
        (MissingOps, lambda x: torch.ops.tojax_once.missing(x)),
        (ZeroDivisionError, lambda x: x / (1 // 0)),
    ],
)
def test_errors(i, error, fail):
    """They are those of a full trace: the same module and line."""
    said = []
    for convert in (sharing, tojax.from_torch):
        with pytest.raises(error) as raised:
            convert(failing(i, fail))(X)
        said.append(str(raised.value))
    assert said[0] == said[1]


torch.library.define("tojax_once::missing", "(Tensor x) -> Tensor")


torch.library.impl("tojax_once::missing", "cpu", lambda x: x + 1)


def test_a_debugger_sees_all_blocks():
    """What follows calls is left to do so, and all blocks run."""
    called = []
    trace = lambda frame, event, arg: called.append(frame.f_code.co_name)
    with blocks.watching() as seen:
        sys.settrace(trace)
        try:
            sharing(Net())(X)
        finally:
            sys.settrace(None)
    assert (seen[0].noted, seen[0].shared) == (0, 0)
    assert called


def test_nothing_stays():
    """Modules have their forward again, and no tracer outlives the trace."""
    model = sharing(Net())
    with jax.checking_leaks():
        model(X)
    assert not any("forward" in vars(m) for m in model.source.code.modules())
    assert "__getattribute__" not in vars(nn.Module)
    assert sys.gettrace() is None
