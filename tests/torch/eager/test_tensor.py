"""The tensor itself: conversions, copies, files, dtypes, and what it cannot do."""

from __future__ import annotations

import copy
import io
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch.nn import Linear, Parameter

import anyjax
from anyjax.errors import DataDependent, Unsupported
from anyjax.torch import interop
from anyjax.torch.eager.tensor import EagerTensor


def test_parameters_that_are_moved_are_parameters():
    linear = interop.to_jax(Linear(2, 2))
    assert isinstance(linear.weight, Parameter) and linear.weight.requires_grad
    assert not isinstance(interop.to_jax(torch.ones(2)), Parameter)


def test_the_array_is_the_array():
    array = jnp.arange(6.0)
    x = interop.torch_view(array)
    assert x.jax() is array
    assert x.detach().jax() is array
    assert x.requires_grad_().jax() is array
    with anyjax.torch.on_jax():
        y = torch.ones(3)
    assert y.jax().unsafe_buffer_pointer() == y.jax().unsafe_buffer_pointer()
    y.add_(1)
    assert y.jax().tolist() == [2, 2, 2]


def test_values_in_python():
    x = interop.to_jax(torch.tensor([[1.5, -2.0]]))
    assert x.tolist() == [[1.5, -2.0]]
    assert (x[0, 0].item(), float(x[0, 1]), int(x[0, 1]), bool(x[0, 0] > 1)) == (1.5, -2, -2, True)
    assert f"{x[0, 0]:.2f} {x[0]}" == "1.50 JaxTensor([ 1.5000, -2.0000])"
    assert repr(x.requires_grad_()) == "JaxTensor([[ 1.5000, -2.0000]], requires_grad=True)"
    assert "grad_fn=<MulBackward0>" in repr(x * 2)
    assert len(x) == 1
    assert [type(row) for row in x] == [EagerTensor]
    numbers = x.detach().numpy()
    numbers[0] = 7
    assert x.tolist() == [[1.5, -2.0]]
    with pytest.raises(RuntimeError, match="requires grad"):
        x.numpy()


def test_dtypes_are_torchs():
    with anyjax.torch.on_jax():
        n = torch.arange(3)
        assert (n.dtype, n.jax().dtype, n.numpy().dtype) == (torch.int64, jnp.int32, np.int64)
        assert (n / 2).dtype is torch.float32
        assert torch.arange(3.0).dtype is torch.float32
        assert n.to(torch.int32).dtype is torch.int32
        assert torch.zeros(2, dtype=torch.bfloat16).jax().dtype == jnp.bfloat16
        for make in (lambda: n.double(), lambda: torch.zeros(2, dtype=torch.float64),
                     lambda: torch.from_numpy(np.ones(2)), lambda: n.sum(dtype=torch.float64),
                     lambda: torch.tensor(0.5, dtype=torch.float64)):  # fmt: skip
            with pytest.raises(Unsupported, match=r"float64 on JAX[\s\S]*jax_enable_x64"):
                make()
        assert torch.linalg.pinv(torch.eye(2)).tolist() == [[1, 0], [0, 1]]  # by limits in float64
        with pytest.raises(Unsupported, match="do not fit 32 bits"):
            torch.tensor(2**40)
        with pytest.raises(Unsupported, match=r"64-bit integers beyond 2\*\*31"):
            torch.tensor(2**30) * n.add(8)
        with jax.enable_x64(True):
            assert torch.zeros(2, dtype=torch.float64).jax().dtype == jnp.float64
            assert (torch.tensor(2**40) * 2).item() == 2**41


def test_modules_are_copied_and_saved():
    with anyjax.torch.on_jax():
        module = Linear(3, 2)
    module.weight.grad = module.weight.detach() * 2
    twin = copy.deepcopy(module)
    assert isinstance(twin.weight, Parameter)
    assert isinstance(twin.weight, EagerTensor)
    with torch.no_grad():
        twin.weight.zero_()
    assert module.weight.abs().sum() > 0
    assert torch.equal(twin.weight.grad, module.weight.grad)
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    for context in (False, True):
        buffer.seek(0)
        if context:
            with anyjax.torch.on_jax():
                loaded = torch.load(buffer, weights_only=True)
        else:
            loaded = torch.load(buffer, weights_only=True)
        assert isinstance(loaded["weight"], EagerTensor) == context
        twin.load_state_dict(loaded)
        assert torch.equal(twin.weight, module.weight)
    again = pickle.loads(pickle.dumps(module))
    assert type(again.weight) is Parameter  # torch's own
    assert again.weight.tolist() == module.weight.tolist()
    assert copy.copy(module.weight).requires_grad


def test_dtypes_and_memory_change_in_place():
    with anyjax.torch.on_jax():
        module = Linear(3, 2).half()
        assert module.weight.jax().dtype == jnp.float16
        x = torch.ones(2)
        first = x[:1]
        x.data = torch.zeros(3, 1)
        assert (x.shape, first.tolist()) == ((3, 1), [1])


def test_a_leaf_of_a_graph_alone_is_copied():
    x = interop.to_jax(torch.ones(2)).requires_grad_()
    with pytest.raises(RuntimeError, match="created explicitly by the user"):
        copy.deepcopy(x * 2)


def test_there_is_no_memory_to_point_to():
    x = interop.to_jax(torch.ones(2))
    for use in (x.data_ptr, x.untyped_storage, x.__dlpack__):
        with pytest.raises(Unsupported, match="storage of a tensor on JAX"):
            use()


def test_other_devices():
    x = interop.to_jax(torch.ones(2))
    with pytest.raises(Unsupported, match="on meta"):
        x + torch.ones(2, device="meta")
    with pytest.raises(Unsupported, match="on meta"):
        interop.to_jax(torch.ones(2, device="meta"))
    assert x.to("meta").is_meta
    with anyjax.torch.on_jax():
        assert torch.ones(2, device="meta").is_meta
        assert type(torch.ones(2, device=x.device)) is EagerTensor
    with pytest.raises(Unsupported, match="sparse"):
        interop.to_jax(torch.eye(2).to_sparse())


def test_conjugates_and_negatives_are_copied_as_what_they_are():
    z = torch.tensor([1 + 2j, 3 - 1j])
    moved = interop.to_jax([z.conj(), z.conj().imag, z.real])
    assert moved[0].tolist() == [1 - 2j, 3 + 1j]
    assert [m.tolist() for m in moved[1:]] == [[-2, 1], [1, 3]]
    assert moved[0].conj().resolve_conj().tolist() == z.tolist()


USES = [lambda x: x.item(), lambda x: x.tolist(), bool, lambda x: x.numpy()]
USES += [lambda x: x.new_zeros(x.int().item())]


@pytest.mark.parametrize("use", USES)
def test_values_inside_of_a_program(use):
    with pytest.raises(DataDependent, match="while they are traced"):
        interop.jax_jit(use)(interop.to_jax(torch.tensor(1.0)))


def test_a_tensor_that_escapes():
    kept = []
    interop.jax_jit(lambda x: (kept.append(x), x * 2)[1])(interop.to_jax(torch.ones(2)))
    for use in (lambda x: x + 1, lambda x: x[0].sum(), lambda x: x.mul_(2)):
        with pytest.raises(Unsupported, match="from inside a compiled function is used outside"):
            use(kept[0])


def test_torchs_own_beside_it():
    x, plain = interop.to_jax(torch.ones(3)), torch.ones(3)
    assert (x + torch.tensor(2.0)).tolist() == [3, 3, 3]
    assert x[torch.tensor([0, 2])].tolist() == [1, 1]
    with pytest.raises(Unsupported, match=r"add.* and a torch.float32\[3\] of torch"):
        x + plain
    with pytest.raises(Unsupported, match=r"interop\.to_jax"):
        torch.cat([x, plain])
    with anyjax.torch.on_jax():
        assert type(plain * 2) is torch.Tensor
        assert type(torch.zeros_like(plain)) is torch.Tensor


def test_copies_share_what_tensors_share():
    with anyjax.torch.on_jax():
        x = torch.zeros(2, 2)
        y, row = copy.deepcopy([x, x[0]])
        y.fill_(7)
        assert row.tolist() == [7, 7]
        assert x.tolist() == [[0, 0], [0, 0]]
        column = copy.deepcopy(x[:, 1])
        column.add_(1)
        assert (column.tolist(), x.tolist()) == ([1, 1], [[0, 0], [0, 0]])


def test_data_may_be_written_before_backward():
    def slope():
        x = torch.ones(2).requires_grad_()
        y = x * 1
        loss = (y * y).sum()
        y.data.add_(1)
        loss.backward()
        return x.grad.tolist()

    with anyjax.torch.on_jax():
        assert slope() == [4, 4]
    assert slope() == [4, 4]


def test_doubles_of_torchs_own_formulas():
    x = interop.to_jax(torch.eye(3))
    assert torch.linalg.matrix_rank(x).item() == 3
    for refused in (lambda: x.double(), lambda: torch.float_power(x, 2)):
        with pytest.raises(Unsupported, match="float64"):
            refused()
