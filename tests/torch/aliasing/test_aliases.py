"""Functions that return an argument or a view of one: writes to the result reach the argument."""

import warnings

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_unflatten

import anyjax
from anyjax.errors import MissingRng, Unsupported
from anyjax.torch.aliasing import aliases
from tests.torch.beside_torch import assert_same_gradients, assert_same_values

pytestmark = pytest.mark.sample(every=4)

X = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
VECTOR = X.ravel()
CASES = {
    "type_as": lambda y: y.type_as(y),
    "atleast_1d": torch.atleast_1d,
    "atleast_1d of a list": lambda y: torch.atleast_1d([y, y + 1])[0],
    "atleast_2d": torch.atleast_2d,
    "atleast_3d": lambda y: torch.atleast_3d(y, y + 1)[0],
    "einsum": lambda y: torch.einsum("ij->ij", y),
    "einsum, permuted": lambda y: torch.einsum("ij->ji", [y]),
    "einsum, a diagonal": lambda y: torch.einsum("ii->i", y[:, :2]),
    "sum_to_size": lambda y: y.sum_to_size(2, 3),
    "broadcast_tensors": lambda y: torch.broadcast_tensors(y, torch.ones(3))[0],
    "cartesian_prod": lambda y: torch.cartesian_prod(y[0]),
    "meshgrid": lambda y: torch.meshgrid(y[0], indexing="ij")[0],
    "conj_physical": torch.conj_physical,
    "unsafe_chunk": lambda y: torch.unsafe_chunk(y, 2)[1],
    "unsafe_split": lambda y: y.unsafe_split(2, 1)[0],
    "unsafe_split_with_sizes": lambda y: torch.unsafe_split_with_sizes(y, [1, 2], 1)[1],
    "to_dense": lambda y: y.to_dense(),
    "dropout": lambda y: F.dropout(y, 0.5, False),
    "dropout of nothing": lambda y: F.dropout(y, 0.0),
    "torch.dropout": lambda y: torch.dropout(y, 0.5, train=False),
    "alpha_dropout": F.alpha_dropout,
    "feature_alpha_dropout": lambda y: F.feature_alpha_dropout(y[None]),
    "dropout1d": lambda y: F.dropout1d(y[None], training=False),
    "dropout2d": lambda y: F.dropout2d(y[None, None], p=0),
    "dropout3d": lambda y: F.dropout3d(y[None, None], 0.0),
    "Dropout2d": lambda y: torch.nn.Dropout2d(0.1).eval()(y[None, None]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_write_to_the_result(name):
    def function(x):
        y = x * 1
        out = CASES[name](y)
        out *= 2
        return y, out + x.sum()

    assert_same_values(function, X)
    if "unsafe" not in name:  # torch's autograd does not follow those, as their name says
        assert_same_gradients(function, X)


def test_relu_in_place_behind_a_dropout():
    layers = torch.nn.Sequential(torch.nn.Dropout2d(0.1), torch.nn.ReLU(inplace=True)).eval()
    assert_same_values(lambda x: (lambda y: layers(y) + y)(x[None, None] * 1), X - 3)


def test_what_drops_still_draws():
    for drop in (F.dropout, F.dropout1d, lambda x: F.alpha_dropout(x, training=True)):
        with pytest.raises(MissingRng):
            anyjax.from_torch(drop)(X[None])
    with pytest.raises(ValueError, match="between 0 and 1"):
        anyjax.from_torch(lambda x: F.dropout(x, 2.0, False))(X)


REFUSED = {"unfold", "as_strided"}  # elements of their results share memory
APART = {"cauchy", "exponential", "geometric", "log_normal", "normal.in_place", "uniform"}  # draw
APART |= {"broadcast_to", "broadcast_tensors", "expand", "expand_as"}  # torch refuses the write
APART |= {"meshgrid.list_of_tensors", "meshgrid.variadic_tensors"}  # torch refuses the write
APART |= {"as_strided.partial_views"}  # the sample is itself a part of a larger memory
APART |= {"histogramdd"}  # hands back the edges that it is told


def memory(tree) -> list:
    leaves = [x for x in tree_flatten(tree)[0] if isinstance(x, torch.Tensor)]
    leaves = [x for x in leaves if x.layout is torch.strided]
    return [x.untyped_storage().data_ptr() if x.numel() else None for x in leaves]


def aliasing(op) -> list:
    """Samples whose result has the memory of an argument."""
    dtypes = [x for x in (torch.float32, torch.int64) if x in op.dtypes]
    if not dtypes:
        return []
    some = []
    for sample in list(op.sample_inputs("cpu", dtypes[0]))[:12]:
        given = (sample.input, sample.args, sample.kwargs)
        out = op(sample.input, *sample.args, **sample.kwargs)
        some += [sample] if set(memory(out)) & set(memory(given)) - {None} else []
    return some[:3]


@pytest.mark.filterwarnings("ignore:dropout2d. Received a 3D input:UserWarning")
@pytest.mark.conformance
@pytest.mark.parametrize("op", op_db, ids=lambda op: f"{op.name}.{op.variant_test_name}".strip("."))
def test_every_operator_of_torch(op):
    name = f"{op.name}.{op.variant_test_name}".strip(".")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch, of its own samples
            samples = aliasing(op) if name not in APART else []
    except AssertionError as error:
        pytest.skip(f"torch itself: {error!r}")
    for sample in samples:
        leaves, form = tree_flatten(((sample.input, *sample.args), sample.kwargs))
        traced = lambda x: isinstance(x, torch.Tensor) and x.dtype is not torch.int64
        places = [i for i, x in enumerate(leaves) if traced(x)]

        def function(*arrays, leaves=leaves, form=form, places=places):
            own = [x.clone() for x in arrays]
            values = dict(zip(places, own))
            args, kwargs = tree_unflatten([values.get(i, x) for i, x in enumerate(leaves)], form)
            for x in tree_flatten(op(*args, **kwargs))[0]:
                if isinstance(x, torch.Tensor) and x.dtype is not torch.bool:
                    x.mul_(3)
            return own

        arrays = [leaves[i].numpy() for i in places]
        try:
            assert_same_values(function, *arrays)
        except Unsupported as error:
            assert name in REFUSED and "one in memory" in str(error)


def test_the_list_is_of_functions_that_torch_has():
    names = {x.__name__ for x in aliases.FOLLOWED}
    assert names >= aliases.FORMS.keys() - {"meshgrid"}
