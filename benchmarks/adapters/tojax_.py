"""tojax through its public names."""

import jax
import numpy as np

import tojax


def forward(module, ids):
    model, ids = tojax.from_torch(module), ids.numpy()
    fn = jax.jit(lambda params, ids: model.apply(params, ids, use_cache=False).logits)
    return lambda: np.asarray(fn(model.params, ids))


def generate(module, ids, new):
    model, ids = tojax.from_torch(module), ids.numpy()
    return lambda: np.asarray(tojax.generate(model, ids, max_new_tokens=new))
