"""In-place operators that are aliases or composites, on a part of a tensor that is read later."""

import jax
import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.testing._internal.common_methods_invocations import op_db

import anyjax
from tests.open_sizes import with_open_rows
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

X = np.array([[0.3, -0.7, 0.9], [2.5, 7.0, -0.2]], np.float32)
CASES = {
    "absolute_": (),
    "arccos_": (),
    "arcsinh_": (),
    "arctan2_": (torch.tensor([0.5, 2.0]),),
    "arctan_": (),
    "clip_": (-0.5, 0.5),
    "divide_": (torch.tensor([2.0, 4.0]),),
    "fix_": (),
    "greater_": (0.5,),
    "multiply_": (3,),
    "negative_": (),
    "not_equal_": (0.3,),
    "polygamma_": (1,),
    "square_": (),
    "subtract_": (torch.tensor([2.0, 4.0]),),
    "true_divide_": (2,),
}


def written(x, function):
    x = x * 1
    function(x[0, :2])
    return x


def assert_same_values(function, x=X):
    model = anyjax.from_torch(lambda x: written(x, function))
    want = written(torch.from_numpy(x), function)
    assert_close(jax.jit(model.apply)({}, x), want.numpy(), reduction=4)


@pytest.mark.parametrize("name", CASES)
def test_methods(name):
    assert_same_values(lambda part: getattr(part, name)(*CASES[name]))


@pytest.mark.parametrize(
    "function",
    [
        lambda part: F.relu6(part, inplace=True),
        lambda part: F.selu(part, inplace=True),
        lambda part: F.rrelu(part, inplace=True),
        lambda part: F.dropout(part, 0.5, training=False, inplace=True),
    ],
    ids=["relu6", "selu", "rrelu", "dropout"],
)
def test_layers(function):
    assert_same_values(function)


@pytest.mark.parametrize("name", ["dropout", "alpha_dropout", "feature_alpha_dropout"])
def test_dropouts_draw_with_the_key(name):
    function = lambda x: getattr(F, name)(x * 1, 0.5, training=True, inplace=True)
    model, x = anyjax.from_torch(function), np.ones((40, 40), np.float32)
    one, two = (model(x, rng=jax.random.key(i)) for i in (0, 1))
    assert (one != two).any()
    np.testing.assert_array_equal(one, model(x, rng=jax.random.key(0)))


def test_integers_refuse_floats():
    function = lambda part: part.multiply_(0.5)
    with pytest.raises(RuntimeError, match="can't be cast"):
        anyjax.from_torch(lambda x: written(x, function))(np.ones((2, 3), np.int32))


SIZES = {
    "resize_": lambda x: x.resize_(1, 3),
    "resize_ of all": lambda x: x.resize_(3, 2),
    "resize_as_": lambda x: x.resize_as_(torch.zeros(3, 1)),
    "as_strided_": lambda x: x.as_strided_((2, 2), (1, 1)),
    "torch.as_strided_": lambda x: torch.as_strided_(x, (2, 2), (1, 1), 1),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name):
    """The tensor counts its elements anew, and its views stay views."""

    def forward(x):
        x = x * 1
        last, turned = x[1:], x.t()
        SIZES[name](x)
        out = x / x.numel(), x + x.nelement(), x.var(), torch.arange(x.numel()).reshape(x.shape)
        x.fill_(7.0)
        last.add_(100)
        turned[0] = 5
        return *out, x, last, turned

    model = anyjax.from_torch(forward)
    assert_close(jax.jit(model.apply)({}, X), forward(torch.from_numpy(X)), reduction=8)


REFUSED = {
    "as_strided-partial_views": "places in memory of a size that is open",
    "float_power": "torch's own error: the result is float64",
    "masked_scatter": "as many values as the mask has",
    "nn.functional.dropout2d": "draws",
    "nn.functional.dropout3d": "draws",
    "nn.functional.rrelu": "draws",
    "nn.functional.threshold": "torch computes it in place by steps that take no open size",
    "polygamma": "takes its order first",
    "squeeze-": "whether a dimension is one is open",
}


def sample_of(op):
    """Returns a sample whose tensors have one shape, or None."""
    for x in op.sample_inputs("cpu", torch.float32):
        tensors = [t for t in (x.input, *x.args) if isinstance(t, torch.Tensor)]
        shapes = {tuple(t.shape) for t in tensors}
        if len(shapes) == 1 and len(x.input.shape) > 0 and len(x.input) > 1 and not x.kwargs:
            return x
    return None


def of_open_sizes():
    """Each operator that writes in place; those that refuse are expected to."""
    for op in op_db:
        if not (op.inplace_variant and op.supports_autograd and torch.float32 in op.dtypes):
            continue
        if sample_of(op):
            name = f"{op.name}-{op.variant_test_name}"
            why = REFUSED.get(op.name if op.name in REFUSED else name)
            marks = [pytest.mark.xfail(reason=why, strict=True)] if why else []
            yield pytest.param(op, id=name, marks=marks)


@pytest.mark.parametrize("op", list(of_open_sizes()))
def test_operators_take_open_sizes(op):
    """Every operator of torch's database that writes in place, on a tensor of rows to come."""
    sample = sample_of(op)
    arrays = [x.numpy() for x in (sample.input, *sample.args) if isinstance(x, torch.Tensor)]

    def function(x, *others):
        rest = iter(others)
        args = [next(rest) if isinstance(a, torch.Tensor) else a for a in sample.args]
        return op.inplace_variant(x * 1, *args)

    want = function(*map(torch.from_numpy, arrays))
    assert_close(with_open_rows(function, *arrays), want.numpy(), reduction=4)
