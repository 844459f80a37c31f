"""Views and writes through them: after each, all tensors that share memory are torch's."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import Unsupported
from anyjax.torch import interop
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=3)


def start(on_jax):
    x = torch.arange(24.0).reshape(2, 3, 4) - 7
    return interop.to_jax(x) if on_jax else x


def numbers(tensor):
    return np.asarray(tensor.detach().resolve_conj().resolve_neg())


def both(code):
    """Runs code on a tensor of torch and one on JAX; what it returns has to be the same."""
    want = code(start(False))
    with anyjax.torch.on_jax():
        got = code(start(True))
    assert len(want) == len(got)
    for a, b in zip(got, want, strict=True):
        assert a.dtype is b.dtype
        assert a.shape == b.shape
        assert a.stride() == b.stride()
        assert_close(numbers(a), numbers(b))


VIEWS = {
    "slice": lambda x: x[:, 1:],
    "step": lambda x: x[..., ::2],
    "select": lambda x: x[1],
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "view": lambda x: x.view(6, 4),
    "view of slice": lambda x: x[1].view(-1),
    "slice of transpose": lambda x: x.transpose(1, 2)[:, 1:3],
    "diagonal": lambda x: x[0].diagonal(),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:1].squeeze(0),
    "unfold": lambda x: x.unfold(2, 2, 2),
    "as_strided": lambda x: x.as_strided((2, 2), (12, 1), 3),
    "as_strided of transpose": lambda x: x.transpose(0, 1).as_strided((3, 2), (4, 12), 1),
    "expand": lambda x: x[:1].expand(1, 3, 4),
    "chunk": lambda x: x.chunk(2, 2)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "split": lambda x: x.split([1, 2], 1)[1],
    "detach": lambda x: x.detach()[0],
    "data": lambda x: x.data[0],
    "movedim": lambda x: x.movedim(0, 1),
    "T": lambda x: x[0].T,
    "narrow": lambda x: x.narrow(1, 1, 2),
    "complex": lambda x: torch.view_as_complex(x.view(2, 3, 2, 2)).real,
    "imaginary": lambda x: torch.view_as_complex(x.view(2, 3, 2, 2)).conj().imag,
    "bits": lambda x: x.view(torch.int32),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_show_writes_and_carry_them(name):
    view = VIEWS[name]

    def code(x):
        seen = view(x)
        before = seen.clone()
        x.mul_(2)
        after = seen.clone()
        seen.add_(1)
        first = x.clone()
        seen.zero_()
        return before, after, seen, first, x

    both(code)


WRITES = {
    "index": lambda x: x.__setitem__(0, 5.0),
    "slices": lambda x: x.__setitem__((slice(None), slice(1, None), 0), -1.0),
    "mask": lambda x: x.__setitem__(x > 3, 0.0),
    "mask of view": lambda x: x[0].__setitem__(x[0] > 0, 9.0),
    "integers": lambda x: x.__setitem__(torch.tensor([1, 0]), torch.ones(3, 4)),
    "transposed": lambda x: x.transpose(0, 1).copy_(torch.ones(3, 2, 4)),
    "self": lambda x: x[0].copy_(x[1]),
    "add": lambda x: x[..., 1].add_(x[..., 0], alpha=2),
    "masked_fill_": lambda x: x[1].masked_fill_(x[1] > 0, 2.0),
    "index_add_": lambda x: x.index_add_(1, torch.tensor([0, 0]), torch.ones(2, 2, 4)),
    "scatter_": lambda x: x.scatter_(2, torch.zeros(2, 3, 1, dtype=torch.int64), 4.0),
    "scatter_add_": lambda x: x.scatter_add_(
        0, torch.zeros(1, 3, 4, dtype=torch.int64), torch.ones(1, 3, 4)
    ),
    "fill_diagonal_": lambda x: x[0].fill_diagonal_(3.0),
    "clamp_": lambda x: x.clamp_(min=0),
    "lerp_": lambda x: x.lerp_(torch.zeros(2, 3, 4), 0.5),
    "addcmul_": lambda x: x.addcmul_(x, x, value=0.5),
    "addmm_": lambda x: x[0, :, :3].addmm_(torch.ones(3, 2), torch.ones(2, 3)),
    "out": lambda x: torch.add(x[0], 1, out=x[1]),
    "out, empty": lambda x: torch.add(x, 1, out=torch.empty(0)),
    "out, two": lambda x: torch.max(
        x, 2, out=(torch.empty(2, 3), torch.empty(2, 3, dtype=torch.int64))
    ),
    "unsqueeze_": lambda x: x.clone().unsqueeze_(0),
    "transpose_": lambda x: x.transpose_(0, 2),
    "t_": lambda x: x[0].clone().t_().add_(1),
    "data": lambda x: x.data.add_(1),
    "set data": lambda x: setattr(x, "data", torch.ones(3, 2)),
    "foreach": lambda x: torch._foreach_add_([x[0], x[1]], 1.0),
    "bernoulli_": lambda x: x.bernoulli_(1.0),
    "cumsum_": lambda x: x.cumsum_(1),
    "put_": lambda x: x.put_(torch.tensor([1, 2]), torch.tensor([8.0, 9.0])),
    "swapped halves": lambda x: x.copy_(x.flip(0)),
    "squeeze_": lambda x: x[:1].squeeze_(0).add_(3),
    "in place of dtype": lambda x: x.copy_(torch.ones(2, 3, 4, dtype=torch.int64)),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_are_torchs(name):
    def code(x):
        first, last = x[0], x.view(-1)[-3:]
        out = WRITES[name](x)
        outs = out if isinstance(out, (tuple, list)) else [out]
        return x, first, last, *(o for o in outs if isinstance(o, torch.Tensor))

    both(code)


@pytest.mark.parametrize(
    "code",
    [
        lambda x: x.mul(2).t().clone()[0].mul_(3),
        lambda x: x[1:].mul_(x[:1].exp()),
        lambda x: x.t()[1].add_(1).relu_(),
        lambda x: x.diagonal().pow_(2),
        lambda x: x.view(9)[::2].mul_(x.view(9)[1].clone()),
        lambda x: x.unfold(0, 1, 1).sin_(),
        lambda x: x.as_strided((2, 2), (3, 1), 1).mul_(2),
        lambda x: x.__setitem__(x > 0, x[x > 0] * 2),
        lambda x: torch.view_as_complex(torch.stack([x, x], -1)).imag.mul_(2),
    ],
)
def test_autograd_follows_writes(code):
    grads = []
    for on_jax in (False, True):
        leaf = torch.linspace(-1, 1, 9).reshape(3, 3).requires_grad_()
        leaf = interop.to_jax(leaf) if on_jax else leaf
        x = leaf * 1.5
        transposed = (leaf * 0.5).t().clone()  # strides as torch's autograd expects them
        out = code(x)
        transposed[0].mul_(3)
        total = (x * x).sum() + (transposed**3).sum()
        total = total if out is None else total + out.abs().sum()
        total.backward()
        grads.append(np.asarray(leaf.grad))
    assert_close(grads[1], grads[0], reduction=8)


def test_a_write_to_what_was_saved_is_torchs_error():
    x = interop.to_jax(torch.ones(3)).requires_grad_()
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="leaf Variable"):
        x.add_(1)


def test_elements_that_share_memory_are_not_written_to():
    with anyjax.torch.on_jax():
        with pytest.raises(Unsupported, match="whose elements share memory"):
            torch.ones(1).expand(3).add_(1)
        with pytest.raises(Unsupported, match="whose elements share memory"):
            torch.ones(4).unfold(0, 2, 1).add_(1)


def test_bits_of_64_bit_types_are_not_there():
    with anyjax.torch.on_jax(), pytest.raises(Unsupported, match="the bits of"):
        torch.arange(3).view(torch.int32)


def test_a_view_that_torch_has_not_either():
    with anyjax.torch.on_jax(), pytest.raises(RuntimeError, match="view size is not compatible"):
        torch.ones(2, 3).t().view(6)


def test_saved_views_share_their_memory_again():
    file = io.BytesIO()
    with anyjax.torch.on_jax():
        base = torch.arange(6.0).reshape(2, 3)
        torch.save({"base": base, "row": base[1], "turned": base.T}, file)
        base.add_(10)
        torch.save(base, later := io.BytesIO())
    file.seek(0), later.seek(0)
    loaded = torch.load(file)
    loaded["base"].add_(1)
    assert loaded["row"].tolist() == [4.0, 5.0, 6.0]
    assert loaded["turned"].tolist() == [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]
    assert torch.load(later).tolist() == [[10.0, 11.0, 12.0], [13.0, 14.0, 15.0]]
