"""transformers' own training options under JAX."""

import jax
import numpy as np

import anyjax
from tests.models import tiny

IDS = np.arange(1, 17).reshape(2, 8)


def test_gradient_checkpointing_gives_the_same_gradients():
    module = tiny.llama().train()

    def gradients():
        model = anyjax.from_torch(module)
        loss = lambda p: model.apply(p, input_ids=IDS, labels=IDS, use_cache=False).loss
        return jax.jit(jax.grad(loss))(model.params), str(jax.make_jaxpr(loss)(model.params))

    want, plain = gradients()
    module.activation_checkpointing_enable()
    got, saved = gradients()
    assert "prevent_cse" not in plain
    assert saved.count("prevent_cse=True") == 2
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-4, atol=1e-6)
