"""What modules hold: equality, copies, modes; what is no model."""

import copy

import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import Unsupported, WrongArguments
from anyjax.flax import to_linen, to_nnx
from anyjax.flax.wrap.wrapped_model import WrappedModel, class_named, in_mode, wrap
from tests.flax.wrap.nets import Net, X, keras_net, net
from tests.tolerance import assert_close


def test_equal_where_the_source_is():
    one, other = (
        WrappedModel(net()),
        WrappedModel(net().with_params({k: v + 1 for k, v in net().params.items()})),
    )
    assert one == other
    assert hash(one) == hash(other)
    assert one != WrappedModel(anyjax.from_torch(Net()))
    assert copy.deepcopy(one) is one
    assert one.without_arrays() == one
    assert not one.without_arrays().model.params
    assert to_linen(net()) == to_linen(net())


def test_a_module_of_torch_is_converted():
    assert wrap(torch.nn.ReLU(), "to_nnx").model.source.name == "ReLU"
    with pytest.raises(WrongArguments, match=r"to_nnx takes a model, not the class ReLU") as error:
        wrap(torch.nn.ReLU, "to_nnx")
    assert [line.split(":")[0].strip() for line in str(error.value).splitlines()[1:]] == [
        "why",
        "do",
        "see",
    ]


def test_modes():
    model = net()
    assert in_mode(model, None, None) is model
    assert not any(in_mode(model, True, None).source.training)
    mixed = in_mode(model, False, True).source
    kept = [hasattr(module, "running_mean") for module in mixed.module.modules()]
    assert list(mixed.training) == [not k for k in kept]
    wrapped = WrappedModel(model)
    assert wrapped.with_arrays({}, True, True).source is wrapped.with_arrays({}, True, True).source
    with pytest.raises(Unsupported, match="one mode for all"):
        in_mode(anyjax.from_tensorflow(keras_net()[0]), True, False)


def test_without_modes_a_model_is_itself(tmp_path):
    function = anyjax.from_torch(torch.nn.ReLU().eval())
    function.save(tmp_path / "relu", X)
    module = to_nnx(anyjax.load(tmp_path / "relu"))
    assert_close(module(X), np.maximum(X, 0))
    module.train()
    with pytest.raises(Unsupported):  # it had modes before it was saved
        module(X)


def test_classes_have_the_names_of_their_modules():
    assert class_named("Conv2d", torch.nn.Module) is class_named("Conv2d", torch.nn.Module)
    assert class_named("a.<lambda>", torch.nn.Module).__name__ == "a__lambda_"
