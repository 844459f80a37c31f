import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import TableError, Unsupported

pytestmark = pytest.mark.sample(every=5)

X = np.array([3.0, 0.5, -2.0], np.float32)
SHORT = {
    "frexp": lambda x: torch.frexp(x)[1],
    "searchsorted": lambda x: torch.searchsorted(x, x, out_int32=True),
    "bucketize": lambda x: torch.bucketize(x, torch.arange(3.0), out_int32=True),
    "pivots": lambda x: torch.linalg.lu_factor(torch.diag(x))[1],
    "info": lambda x: torch.linalg.inv_ex(torch.diag(x))[1],
    "view": lambda x: x.view(torch.int32),
    "view_copy": lambda x: torch.view_copy(x, torch.int32),
    "argsort": lambda x: torch.argsort(x),
    "searchsorted-64": lambda x: torch.searchsorted(x, x),
}


@pytest.mark.parametrize("name", SHORT)
def test_torch_code_sees_the_width_of_integers_that_torch_gives(name):
    seen = []

    def function(x):
        seen.append(SHORT[name](x).dtype)
        return x

    anyjax.from_torch(function)(X)
    assert seen == [SHORT[name](torch.from_numpy(X)).dtype]


def test_bits_of_64_bit_types_are_refused():
    with jax.enable_x64(False), pytest.raises(Unsupported, match=r"bits of .* seen as"):
        anyjax.from_torch(lambda x: torch.view_copy(x, torch.int64))(np.ones(4, np.float32))


def test_a_lowering_may_return_a_namedtuple():
    torch.library.define("tests::slogdet", "(Tensor x) -> (Tensor, Tensor)")
    anyjax.lowers(torch.ops.tests.slogdet)(lambda x: jnp.linalg.slogdet(x))
    sign, log = anyjax.from_torch(lambda x: torch.ops.tests.slogdet(x))(2 * np.eye(2))
    assert (float(sign), float(log)) == (1.0, pytest.approx(np.log(4)))


def test_a_lowering_with_too_few_results_is_told():
    torch.library.define("tests::halves", "(Tensor x) -> (Tensor, Tensor)")
    anyjax.lowers(torch.ops.tests.halves)(lambda x: (x / 2,))
    with pytest.raises(TableError, match="has 2 results, its lowering gave 1"):
        anyjax.from_torch(lambda x: torch.ops.tests.halves(x)[0])(np.eye(2))


def test_sparse_tensors_are_refused_by_name():
    with pytest.raises(Unsupported, match=r"_to_sparse.* works on sparse tensors"):
        anyjax.from_torch(lambda x: x.to_sparse())(np.eye(3))


QUANTIZERS = {
    "per_tensor": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8).dequantize(),
    "per_channel": lambda x: torch.quantize_per_channel(
        x, torch.ones(3), torch.zeros(3), 0, torch.qint8
    ),
    "per_tensor_dynamic": lambda x: torch.quantize_per_tensor_dynamic(x, torch.qint8, False),
}


@pytest.mark.parametrize("name", QUANTIZERS)
def test_quantized_tensors_are_refused_by_name(name):
    with pytest.raises(Unsupported, match=f"quantize_{name}.* works on quantized tensors"):
        anyjax.from_torch(QUANTIZERS[name])(np.ones(3, np.float32))


def test_tensor_split_reads_its_places_outside_jit():
    model = anyjax.from_torch(lambda x, at: torch.tensor_split(x, at))
    assert [len(x) for x in model.apply({}, X, np.array([1]))] == [1, 2]
    with pytest.raises(anyjax.errors.DataDependent, match="at"):
        jax.jit(lambda at: model.apply({}, X, at))(np.array([1]))


def test_dtypes_that_jax_has_not_are_refused():
    with pytest.raises(Unsupported, match="complex32"):
        anyjax.from_torch(lambda x: x.chalf())(X)
