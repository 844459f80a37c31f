"""What a block leaves behind, writes to, and gives."""

import contextvars
import threading

import pytest
import torch
from torch import nn

from tests.tolerance import assert_close
from tests.torch.reuse.nets import Cases, Net, X, base, kind, net, setting, sharing
from tojax.torch.reuse import blocks

SEEN = []
COLLECTED = contextvars.ContextVar("collected", default=None)
LOCAL = threading.local()
CASES = Cases()


def collecting(keep):
    """Each block leaves what it computes somewhere; the net adds it up."""

    def forward(self, x):
        out = base(self, x)
        keep(self, out)
        return out

    return kind(forward)


@CASES(0)
def a_list_that_all_append_to():
    class Kept(Net):
        def forward(self, x):
            kept = []
            for block in self.blocks:
                block.__dict__["kept"] = kept
            return super().forward(x) + sum(kept)

    return Kept(collecting(lambda self, out: self.kept.append(out)))


@CASES(0)
def a_global_list():
    class Kept(Net):
        def forward(self, x):
            SEEN.clear()
            out = super().forward(x) + 0
            out = out + sum(SEEN)
            SEEN.clear()
            return out

    return Kept(collecting(lambda self, out: SEEN.append(out * 2)))


@CASES(0)
def a_list_in_a_context():
    class Kept(Net):
        def forward(self, x):
            token = COLLECTED.set([])
            out = super().forward(x) + sum(COLLECTED.get())
            COLLECTED.reset(token)
            return out

    return Kept(collecting(lambda self, out: COLLECTED.get().append(out)))


class KeptByThread(Net):
    """Adds what its blocks leave in a list of the thread."""

    def forward(self, x):
        LOCAL.kept = []
        out = super().forward(x) + sum(LOCAL.kept)
        del LOCAL.kept
        return out


@CASES(0)
def a_list_of_a_thread():
    return KeptByThread(collecting(lambda self, out: LOCAL.kept.append(out * 2)))


@CASES(0)
def a_list_that_is_given():
    class Kept(Net):
        def forward(self, x):
            kept, x = [], x * self.start
            for block in self.blocks:
                x = block(x, kept)
            return x + sum(kept)

    def forward(self, x, kept):
        kept.append(x * 2)
        return base(self, x)

    return Kept(kind(forward))


@CASES(0)
def a_tensor_in_an_attribute():
    def forward(self, x):
        self.last = base(self, x)
        return self.last * 2

    return Net(kind(forward, last=None), setting(last=lambda i: None))


@CASES(0)
def a_number_in_an_attribute():
    def forward(self, x):
        self.width = x.shape[0]
        return base(self, x)

    class Wide(Net):
        def forward(self, x):
            return super().forward(x) * sum(b.width for b in self.blocks)

    return Wide(kind(forward, width=0))


@CASES(0)
def buffers_that_are_written():
    def forward(self, x):
        self.total += x.sum()
        return base(self, x) * self.total

    return Net(kind(forward), lambda b, i: b.register_buffer("total", torch.zeros(())))


@CASES(0)
def running_statistics():
    return Net(lambda i: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))).train()


@CASES(0)
def what_is_given_is_written():
    def forward(self, x):
        x += self.linear(x)
        return self.norm(x)

    def step(self, block, i, x):
        before = x.clone()
        return block(before) + before

    return net(step, kind(forward))


@CASES(0)
def a_view_of_what_is_given():
    def step(self, block, i, x):
        y = block(x)
        y += 1.0
        return x * 1.5

    return net(step, kind(lambda self, x: x.view(-1)))


@CASES(5)
def what_is_given_is_given_back():
    def step(self, block, i, x):
        y, given = block(x)
        given += y
        return x * 1.5

    return net(step, kind(lambda self, x: (base(self, x), x)))


@CASES(0)
def two_results_of_one_memory():
    def step(self, block, i, x):
        y, z = block(x)
        z += 1.0
        return y * 1.5

    def forward(self, x):
        y = base(self, x)
        return y, y.view(-1)

    return net(step, kind(forward))


@CASES(0)
def a_result_of_one_element():
    return net(lambda self, b, i, x: x + b(x), kind(lambda self, x: base(self, x)[:1].expand(3, 4)))


@CASES(0)
def a_base_that_is_kept():
    def forward(self, x):
        y = base(self, x) * 1
        LOCAL.kept.append(y)
        return y.view(-1).view(3, 4)

    def step(self, block, i, x):
        x = block(x)
        x += 1.0  # in what is kept, too
        return x

    kept = type("Kept", (KeptByThread,), {"step": step})
    return kept(kind(forward))


def test_a_result_that_is_written():
    """What is written through a view is the same value, by other equations."""

    def step(self, block, i, x):
        y = block(x)
        y[0] += 1.0
        return y

    module = net(step, kind(lambda self, x: base(self, x).view(-1).view(3, 4)))
    with blocks.watching() as seen:
        out = sharing(module)(X)
    assert seen[0].shared == 5
    assert_close(out, module(torch.from_numpy(X)).detach().numpy(), reduction=24)


@pytest.mark.parametrize("name", CASES)
def test_same(name):
    CASES.check(name)
