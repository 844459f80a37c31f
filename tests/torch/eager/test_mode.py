"""``on_jax``: where new tensors are, training as torch does it, and nothing that stays behind."""

from __future__ import annotations

import threading
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import MissingOps, Unsupported
from anyjax.torch import interop
from anyjax.torch.core import private
from anyjax.torch.eager.tensor import EagerTensor
from tests.tolerance import assert_close


def state():
    """What ``on_jax`` could have changed of torch, for this thread and all others."""
    modes = len(private.function_modes()), torch._C._len_torch_dispatch_stack()
    patched = {
        (owner, name): value
        for owner in (torch, torch.Tensor, nn.Module, nn.functional, nn.Parameter, torch.autograd)
        for name, value in vars(owner).items()
        if not name.startswith("__")
    }
    flags = torch.get_default_dtype(), torch.is_grad_enabled(), torch.backends.mkldnn.enabled
    return modes, patched, flags, torch.get_default_device()


class Attention(nn.Module):
    """A block with the parts of a transformer."""

    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(9, 8), nn.LayerNorm(8)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.out = nn.Linear(8, 4)

    def forward(self, x):
        x = self.table(x.long() % 9)
        h, _ = self.attend(x, x, x, need_weights=False)
        return self.out(nn.functional.gelu(self.norm(x + h))).mean(1)


class Recurrent(nn.Module):
    """An LSTM whose last state is read."""

    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(4, 5), nn.Linear(5, 4)

    def forward(self, x):
        return self.out(self.lstm(x)[1][0][-1])


MODELS = {
    "linear": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4)), (3, 6)),
    "conv": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(16, 4),
        ),
        (3, 2, 6, 6),
    ),
    "lstm": (Recurrent, (3, 3, 4)),
    "attention": (Attention, (3, 5)),
}  # fmt: skip
OPTIMIZERS = {
    "linear": lambda p: torch.optim.Adam(p, 0.1),
    "conv": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    "lstm": lambda p: torch.optim.RMSprop(p, 0.01),
    "attention": lambda p: torch.optim.SGD(p, 0.1, weight_decay=0.1, foreach=True),
}


def trained(name, on_jax):
    """Trains a model for some steps; (losses, params and buffers, evaluated output)."""
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, x, target = make(), torch.randn(shape).abs() * 3, torch.tensor([0, 3, 1])
    if on_jax:
        model, x, target = interop.to_jax(model), *interop.to_jax((x, target))
    with anyjax.torch.on_jax() if on_jax else nullcontext():
        optimizer = OPTIMIZERS[name](model.parameters())
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), target)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            out = model(x)
    weights = {k: np.asarray(v) for k, v in model.state_dict().items()}
    return np.array(losses, np.float32), weights, np.asarray(out)


@pytest.mark.parametrize("name", MODELS)
def test_training_is_torchs(name):
    want, got = trained(name, False), trained(name, True)
    assert_close(got, want, reduction=2**12)
    assert want[0][-1] < want[0][0]


def test_modules_are_made_on_jax():
    with anyjax.torch.on_jax():
        model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Embedding(3, 2))
    tensors = [*model.parameters(), *model.buffers()]
    assert {type(x) for x in tensors} == {EagerTensor}
    assert all(isinstance(x, nn.Parameter) for x in model.parameters())


def test_tensors_go_on_after_it():
    with anyjax.torch.on_jax():
        model, x = nn.Linear(3, 2), torch.ones(4, 3)
    loss = model(x)[:, :1].pow(2).sum()
    loss.backward()
    assert type(loss) is type(model.weight.grad) is EagerTensor
    torch.optim.Adam(model.parameters()).step()
    assert type(torch.ones(1)) is torch.Tensor


def test_autograd_is_torchs():
    x = interop.to_jax(torch.arange(1.0, 4.0)).requires_grad_()
    seen = []
    y = (x**3).sum()
    x.register_hook(lambda g: seen.append(g.tolist()))
    (grad,) = torch.autograd.grad(y, x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    assert (grad.tolist(), second.tolist(), seen[0]) == ([3, 12, 27], [6, 12, 18], [3, 12, 27])
    with torch.no_grad():
        assert not (x * 2).requires_grad
    assert torch.func.hessian(lambda x: (x**3).sum())(x.detach()).diagonal().tolist() == [6, 12, 18]
    assert torch.vmap(torch.sum)(x.detach().expand(2, 3)).tolist() == [6, 6]
    assert torch.func.jvp(torch.exp, (x.detach() * 0,), (x.detach(),))[1].tolist() == [1, 2, 3]


def test_functions_of_ones_own_and_hooks_of_modules():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3 * ctx.saved_tensors[0]

    x = interop.to_jax(torch.tensor([1.0, 2.0])).requires_grad_()
    model, shapes = nn.Identity(), []
    model.register_forward_hook(lambda module, args, out: shapes.append(out.shape))
    model(Twice.apply(x)).sum().backward()
    assert (x.grad.tolist(), shapes) == ([3, 6], [(2,)])


def test_autocast_is_torchs():
    with anyjax.torch.on_jax():
        model, x = nn.Linear(3, 2), torch.ones(1, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert model(x).dtype is torch.bfloat16


def test_shapes_that_depend_on_values():
    x = interop.to_jax(torch.tensor([3, 0, 3, 1]))
    assert x[x > 0].tolist() == [3, 3, 1]
    assert x.nonzero().tolist() == [[0], [2], [3]]
    assert [t.tolist() for t in x.unique(return_counts=True)] == [[0, 1, 3], [1, 1, 2]]


def test_nothing_stays_behind():
    before = state()
    with anyjax.torch.on_jax(), anyjax.torch.on_jax():
        nn.Linear(3, 2)(torch.ones(1, 3)).sum().backward()
        assert state() != before
    assert state() == before
    with pytest.raises(ZeroDivisionError), anyjax.torch.on_jax():
        raise ZeroDivisionError
    with pytest.raises(Unsupported), anyjax.torch.on_jax():
        torch.ones(2, dtype=torch.float64)
    assert state() == before
    with pytest.raises(Unsupported, match="no global switch"):
        interop.enable_globally()
    assert state() == before


def test_other_threads_have_their_own():
    inside, checked, types = threading.Event(), threading.Event(), {}

    def other():
        inside.wait(10)
        types["outside"] = type(torch.ones(1))
        with anyjax.torch.on_jax():
            types["of its own"] = type(torch.ones(1))
        types["after"] = type(torch.ones(1))
        checked.set()

    thread = threading.Thread(target=other)
    thread.start()
    with anyjax.torch.on_jax():
        inside.set()
        assert checked.wait(60)
        types["here"] = type(torch.ones(1))
    thread.join()
    assert types == {
        "outside": torch.Tensor,
        "of its own": EagerTensor,
        "after": torch.Tensor,
        "here": EagerTensor,
    }


def test_from_torch_inside_and_around():
    with anyjax.torch.on_jax():
        model, x = nn.Linear(3, 2), torch.ones(4, 3)
        want = model(x).tolist()
        converted = anyjax.from_torch(model)
        assert_close(np.asarray(converted(x)), np.asarray(want, np.float32), reduction=3)
        assert_close(np.asarray(converted(x.jax())), np.asarray(want, np.float32), reduction=3)

    def traced(x):
        with anyjax.torch.on_jax():
            return x + 1

    with pytest.raises(Unsupported, match="inside a model that anyjax traces"):
        anyjax.from_torch(traced)(np.ones(2, np.float32))


def test_operators_without_a_way():
    library = torch.library.Library("on_jax_test", "DEF")
    library.define("nothing(Tensor x) -> Tensor")
    x = interop.to_jax(torch.ones(2))
    with pytest.raises(MissingOps, match=r"no lowering for 1 operator: on_jax_test.nothing"):
        torch.ops.on_jax_test.nothing(x)

    @anyjax.lowers(torch.ops.on_jax_test.nothing)
    def nothing(x):
        return x * 5

    assert torch.ops.on_jax_test.nothing(x).tolist() == [5, 5]
