"""Weights of 20 architectures into Flax source, trained a step, and back: bit for bit, twice 20."""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from flax import nnx

import anyjax
from anyjax.flax import load_into, to_torch
from tests.flax.codegen.running import leaves, loaded
from tests.models import tiny
from tests.sampling import further

NAMES = (
    *("gpt2", "llama", "mistral", "gemma2", "phi", "opt", "bert", "roberta", "distilbert"),
    *("electra", "t5", "bart", "whisper", "vit", "dinov2", "swin", "convnext", "resnet"),
    *("segformer", "clip"),
)
# Read by no forward pass: of Dinov2; a constant in Linen: of BART.
UNUSED = ("embeddings.mask_token", "final_logits_bias")


def in_jax(inputs):
    """Arrays by name; what is static is left to the file."""
    arrays = {k: v for k, v in inputs.items() if isinstance(v, torch.Tensor)}
    return {k: jnp.asarray(v.numpy()) for k, v in arrays.items()}


def outputs(result):
    """The first array of a result, in torch's order."""
    return leaves(result)[0]


def stepped(loss, weights):
    """Weights after one step of Adam."""
    optimizer = optax.adam(1e-2)
    gradients = jax.jit(jax.grad(loss))(weights)
    updates, _ = optimizer.update(gradients, optimizer.init(weights), weights)
    return optax.apply_updates(weights, updates)


class OfNnx:
    """A file in nnx, filled and trained."""

    def __init__(self, text, name, module, names, args, inputs):
        self.file, self.cls = loaded(text), name
        apply = lambda model, *args: outputs(model(**dict(zip(names, args))))
        call = {"example": args, "torch_example": inputs, "apply": apply, "ignore": UNUSED}
        self.model, _ = load_into(self.empty(), module, **call)
        graph, weights, rest = nnx.split(self.model, nnx.Param, ...)
        loss = lambda w: jnp.sin(apply(nnx.merge(graph, w, rest), *args)).mean()
        nnx.update(self.model, stepped(loss, weights))
        self.call = {"jax_model": self.model, **call}

    def empty(self):
        model = getattr(self.file, self.cls)(rngs=nnx.Rngs(0))
        model.eval()
        return model

    def trained(self):
        return nnx.to_pure_dict(nnx.state(self.model, (nnx.Param, nnx.BatchStat)))

    def expected(self, weights):
        filled = self.file.load_params(self.empty(), weights)
        return nnx.to_pure_dict(nnx.state(filled, (nnx.Param, nnx.BatchStat)))


class OfLinen:
    """A file in Linen, filled and trained."""

    def __init__(self, text, name, module, names, args, inputs):
        self.file = loaded(text)
        model = getattr(self.file, name)()
        named = dict(zip(names, args))
        variables = jax.eval_shape(lambda: model.init(jax.random.key(0), **named))
        apply = lambda variables, *args: outputs(model.apply(variables, **dict(zip(names, args))))
        call = {"example": args, "torch_example": inputs, "apply": apply, "ignore": UNUSED}
        filled, _ = load_into(model, module, variables=variables, **call)
        rest = {k: v for k, v in filled.items() if k != "params"}
        loss = lambda w: jnp.sin(apply({"params": w, **rest}, *args)).mean()
        self.variables = {"params": stepped(loss, filled["params"]), **rest}
        self.call = {"jax_model": model, "variables": self.variables, **call}

    def trained(self):
        return self.variables

    def expected(self, weights):
        return self.file.load_params(weights)


STYLES = {"nnx": OfNnx, "linen": OfLinen}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", ["bert", *further(*(x for x in NAMES if x != "bert"))])
def test_weights_come_back_bit_for_bit(name, style):
    module, inputs = tiny.build(name)
    text = anyjax.flax.source(module, style=style, check=False, **inputs)
    named = in_jax(inputs)
    side = STYLES[style](
        text, type(module).__name__, module, list(named), (*named.values(),), inputs
    )
    theirs = copy.deepcopy(module)
    with torch.no_grad():
        for x in theirs.parameters():
            x.normal_()
    _, report = to_torch(torch_module=theirs, **side.call)
    assert report.checked.startswith("the outputs differ by")
    weights = {k: v.numpy() for k, v in theirs.state_dict().items()}
    trained, expected = side.trained(), side.expected(weights)
    assert jax.tree.structure(trained) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, trained, expected)
    assert any(
        np.any(x != y.numpy()) for x, y in zip(weights.values(), module.state_dict().values())
    )
