"""The checks find what is wrong: each is run on a model that is right and on one that is not."""

import dataclasses

import jax
import pytest
import torch

pytest.importorskip("transformers")

from anyjax.errors import DataDependent
from proof import checks
from proof.comparison import NotApplicable, Wrong
from proof.tiny_inputs import Tiny, call, tiny

pytestmark = pytest.mark.sample(every=4)
VALUES = ("forward", "jit", "roll", "save", "shard", "flax")


@pytest.fixture(scope="module")
def case():
    return tiny("gpt2")


def test_the_names():
    from proof.transformers_types import CHECKS

    assert all(callable(getattr(checks.Checks, name)) for name in CHECKS)


@pytest.mark.parametrize("name", [*VALUES, "gradient", "vmap", "generate"])
def test_a_model_that_is_right(name, case):
    getattr(checks.Checks(case), name)()


@pytest.mark.parametrize("name", [*VALUES[:-1], "gradient", "vmap", "generate"])
def test_another_model_than_torchs(name, case):
    wrong = checks.Checks(case)
    params = {k: x * (1 + 0.2 * jax.numpy.sin(7 * x)) for k, x in wrong.model.params.items()}
    if name == "vmap":  # its reference is the loop
        wrong.run = lambda arrays: [x + 1 for x in checks.Checks(case).run(arrays)]
    else:
        vars(wrong)["model"] = wrong.model.with_params(params)
    with pytest.raises(Wrong):
        getattr(wrong, name)()


def test_a_program_that_is_traced_again(case):
    wrong = checks.Checks(case)
    function = wrong.jitted
    vars(wrong)["jitted"] = lambda *args: (function.clear_cache(), function(*args))[1]
    with pytest.raises(Wrong, match="traced 2 times"):
        wrong.jit()


def test_checks_that_say_nothing():
    vit = checks.Checks(tiny("vit"))
    with pytest.raises(NotApplicable, match="no text"):
        vit.generate()
    random = checks.Checks(dataclasses.replace(vit.case, random=frozenset({0})))
    with pytest.raises(NotApplicable, match="random"):
        random.gradient()


class Weighed(torch.nn.Module):
    """Its output has as many rows as a weight says."""

    def __init__(self):
        super().__init__()
        self.count = torch.nn.Parameter(torch.tensor(3.0))

    def forward(self, x):
        return x.repeat(int(self.count), 1)


def test_weights_that_decide_shapes():
    module, inputs = Weighed(), {"x": torch.ones(2, 4)}
    outputs = call(module, inputs)
    weighed = checks.Checks(Tiny("weighed", module, inputs, outputs, frozenset()))
    weighed.forward()
    with pytest.raises(DataDependent):
        weighed.jit()
