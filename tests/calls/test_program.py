"""What is compiled for a model goes with it."""

import copy
import gc
import pickle
import weakref

import jax
import numpy as np
import pytest
import torch

import anyjax

pytestmark = pytest.mark.sample(every=4)

IDS = np.array([[1, 5, 7, 9]])
USES = {
    "call": lambda model: model(IDS),
    "modes": lambda model: (model.train()(IDS), model.eval()(IDS)),
    "jit": lambda model: jax.jit(lambda p: model.apply(p, IDS).logits)(model.params),
    "generate": lambda model: model.generate(IDS, max_new_tokens=3),
    "beams": lambda model: model.generate(IDS, max_new_tokens=3, num_beams=2),
    "no cache": lambda model: model.generate(IDS, max_new_tokens=3, use_cache=False),
    "looked up": lambda model: model.generate(IDS, max_new_tokens=3, prompt_lookup_num_tokens=2),
    "cache": lambda model: stepped(model, model.cache(8).prefill(model.params, IDS)[1]),
}


def stepped(model, cache):
    return cache.step(model.params, np.array([3]))


@pytest.mark.parametrize("use", USES)
def test_a_language_model_is_freed(use):
    model = anyjax.from_pretrained("examples/tiny-llama")
    USES[use](model)
    module = weakref.ref(model.source.module)
    del model
    gc.collect()
    assert module() is None


def test_a_module_is_freed_with_its_weights():
    net = torch.nn.Linear(3, 2)
    model = anyjax.from_torch(net)
    model(np.ones((4, 3), np.float32))
    known = weakref.ref(net)
    del net, model
    gc.collect()
    assert known() is None


def test_modes_share_what_is_compiled():
    seen = []

    class Net(torch.nn.Module):
        def forward(self, x):
            seen.append(self.training)
            return x + 1

    model, x = anyjax.from_torch(Net().eval()), np.ones(3, np.float32)
    for one in (model, model.train(), model.eval(), model.train(), model.with_params({})):
        one(x)
    assert seen == [False, True]


COPIES = [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]


@pytest.mark.parametrize("copied", COPIES)
def test_copies_of_a_model_that_was_called(copied):
    model = anyjax.from_torch(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU()))
    x = np.ones((4, 3), np.float32)
    want = model(x)
    np.testing.assert_array_equal(copied(model)(x), want)
    np.testing.assert_array_equal(copied(copied(model).train())(x), want)
