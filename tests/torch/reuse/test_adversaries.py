"""Blocks that look alike and are not: each must come out as in a trace in which all of them run."""

import contextvars
import functools
import itertools
import sys
import threading
import types

import jax
import numpy as np
import pytest
import torch
from torch import nn

import tojax
from tests.tolerance import assert_close
from tests.torch.reuse.test_blocks import both
from tojax.errors import DataDependent, FrozenDraw, MissingOps
from tojax.torch.reuse import blocks

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
GLOBAL = 1.0
SEEN = []
COLLECTED = contextvars.ContextVar("collected", default=None)
LOCAL = threading.local()
SHARED = types.SimpleNamespace(count=0, gain=1.0)
NUMBERS = itertools.count()


class Block(nn.Module):
    """One of six; ``index`` is never read here."""

    gain = 1.0

    def __init__(self, index=0):
        super().__init__()
        self.linear, self.norm, self.index = nn.Linear(4, 4), nn.LayerNorm(4), index

    def forward(self, x):
        return x + self.norm(self.linear(x)).relu()


class Net(nn.Module):
    """Six blocks, one after the other."""

    def __init__(self, kind=Block, change=None):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(map(kind, range(6)))
        self.start = nn.Parameter(torch.ones(4))
        for i, block in enumerate(self.blocks):
            if change is not None:
                change(block, i)

    def forward(self, x):
        x = x * self.start  # which needs a gradient, as in all blocks
        for i, block in enumerate(self.blocks):
            x = self.step(block, i, x)
        return x

    def step(self, block, i, x):
        return block(x)


def kind(forward, **attributes):
    """A class of blocks with this forward."""
    return type("Kind", (Block,), {"forward": forward, **attributes})


def net(step, kind=Block, change=None):
    """A net that calls its blocks so."""
    return type("Stepped", (Net,), {"step": step})(kind, change)


def setting(**functions):
    """Gives block ``i`` these attributes."""
    return lambda block, i: [setattr(block, k, f(i)) for k, f in functions.items()]


def base(self, x):
    return Block.forward(self, x)


CASES = {}


def case(shared):
    """Decorator: a module of whose six blocks so many are shared."""
    return lambda make: CASES.setdefault(make.__name__, (make, shared))


@case(5)
def alike():
    return Net()


@case(5)
def numbered():
    return Net(kind(lambda self, x: base(self, x) if x.ndim == 2 else x * self.index))


@case(0)
def numbers_that_are_read():
    return Net(kind(lambda self, x: base(self, x) * self.index))


@case(3)
def a_number_that_is_read_in_the_third():
    late = lambda self, x: base(self, x) * self.index if self.special else base(self, x)
    return Net(kind(late), setting(special=lambda i: i in (2, 5)))


@case(0)
def a_number_behind_a_property():
    read = {"odd": property(lambda self: self.index % 2)}
    return Net(kind(lambda self, x: base(self, x) * (1 + self.odd), **read), None)


@case(4)
def every_second_is_another():
    return Net(kind(lambda self, x: base(self, x) * self.scale), setting(scale=lambda i: i % 2))


@case(4)
def another_forward():
    def change(block, i):
        if i == 3:
            block.forward = lambda x: 2 * Block.forward(block, x)

    return Net(change=change)


@case(4)
def another_forward_inside():
    def change(block, i):
        if i == 3:
            block.linear.forward = lambda x: x * 3.0

    return Net(change=change)


@case(5)
def a_hook_of_one():
    return Net(change=lambda b, i: i == 3 and b.register_forward_hook(lambda m, a, out: out * 2))


@case(4)
def a_hook_inside_of_one():
    hook = lambda m, a, out: out * 2
    return Net(change=lambda b, i: i == 3 and b.linear.register_forward_hook(hook))


@case(0)
def hooks_that_close_over_the_number():
    hook = lambda i: lambda module, args, out: out * i
    return Net(change=lambda b, i: b.linear.register_forward_hook(hook(float(i))))


@case(0)
def closures():
    scaled = lambda i: lambda x: x * i
    return Net(kind(lambda self, x: self.f(base(self, x))), setting(f=scaled))


@case(5)
def closures_over_equals():
    scaled = lambda i: lambda x: x * 2.0
    return Net(kind(lambda self, x: self.f(base(self, x))), setting(f=scaled))


@case(0)
def partials():
    scaled = lambda i: functools.partial(torch.mul, other=float(i))
    return Net(kind(lambda self, x: self.f(base(self, x))), setting(f=scaled))


@case(5)
def equal_settings():
    config = lambda i: {"scale": 2.0, "names": ["a", "b"]}
    return Net(kind(lambda self, x: base(self, x) * self.c["scale"]), setting(c=config))


@case(4)
def one_other_setting():
    config = lambda i: types.SimpleNamespace(scale=2.0, names=["a", "b"] if i != 4 else ["a"])
    return Net(kind(lambda self, x: base(self, x) * len(self.c.names)), setting(c=config))


@case(0)
def a_class_attribute_that_changes():
    made = kind(lambda self, x: base(self, x) * self.gain)

    def step(self, block, i, x):
        made.gain = float(i)
        return block(x)

    return net(step, made)


@case(4)
def a_method_that_changes():
    made = kind(lambda self, x: self.scaled(base(self, x)), scaled=lambda self, x: x)

    def step(self, block, i, x):
        made.scaled = (lambda self, x: x * 2) if i == 3 else before
        return block(x)

    before = made.scaled
    return net(step, made)


@case(4)
def a_method_of_a_base_that_changes():
    class Base(Block):
        def scaled(self, x):
            return x

    class Kind(Base):
        def forward(self, x):
            return self.scaled(super().forward(x))

        def scaled(self, x):
            return super().scaled(x)

    before = Base.scaled

    def step(self, block, i, x):
        Base.scaled = (lambda self, x: x * 2) if i == 3 else before
        return block(x)

    return net(step, Kind)


def scaled_by_global(self, x):
    return base(self, x) * GLOBAL


@case(4)
def a_global_that_changes():
    def step(self, block, i, x):
        global GLOBAL
        GLOBAL = 2.0 if i == 4 else 1.0
        return block(x)

    return net(step, kind(scaled_by_global))


@case(0)
def a_global_that_each_changes():
    def forward(self, x):
        global GLOBAL
        GLOBAL = GLOBAL % 7 + 1.0
        return base(self, x) * GLOBAL

    def step(self, block, i, x):
        global GLOBAL
        GLOBAL = 1.0 if i == 0 else GLOBAL
        return block(x)

    return net(step, kind(forward))


@case(0)
def a_counter_in_an_object_of_all():
    counter = types.SimpleNamespace(count=0)

    def forward(self, x):
        self.counter.count += 1
        return base(self, x) * self.counter.count

    made = Net(kind(forward), setting(counter=lambda i: counter))
    made.register_forward_pre_hook(lambda m, args: setattr(m.blocks[0].counter, "count", 0))
    return made


@case(0)
def a_counter_in_a_global_object():
    def forward(self, x):
        SHARED.count += 1
        return base(self, x) * SHARED.count

    made = Net(kind(forward))
    made.register_forward_pre_hook(lambda m, args: setattr(SHARED, "count", 0))
    return made


@case(0)
def a_counter_of_the_class():
    def forward(self, x):
        type(self).count += 1
        return base(self, x) * type(self).count

    made = Net(kind(forward, count=0))
    made.register_forward_pre_hook(lambda m, args: setattr(type(m.blocks[0]), "count", 0))
    return made


@case(0)
def numbers_of_an_iterator():
    def forward(self, x):
        return base(self, x) * next(self.numbers)

    def start(module, args):
        numbers = itertools.count(1)
        for block in module.blocks:
            block.__dict__["numbers"] = numbers

    made = Net(kind(forward))
    made.register_forward_pre_hook(start)
    return made


def collecting(keep):
    """Each block leaves what it computes somewhere; the net adds it up."""

    def forward(self, x):
        out = base(self, x)
        keep(self, out)
        return out

    return kind(forward)


@case(0)
def a_list_that_all_append_to():
    class Kept(Net):
        def forward(self, x):
            kept = []
            for block in self.blocks:
                block.__dict__["kept"] = kept
            return super().forward(x) + sum(kept)

    return Kept(collecting(lambda self, out: self.kept.append(out)))


@case(0)
def a_global_list():
    class Kept(Net):
        def forward(self, x):
            SEEN.clear()
            out = super().forward(x) + 0
            out = out + sum(SEEN)
            SEEN.clear()
            return out

    return Kept(collecting(lambda self, out: SEEN.append(out * 2)))


@case(0)
def a_list_in_a_context():
    class Kept(Net):
        def forward(self, x):
            token = COLLECTED.set([])
            out = super().forward(x) + sum(COLLECTED.get())
            COLLECTED.reset(token)
            return out

    return Kept(collecting(lambda self, out: COLLECTED.get().append(out)))


@case(0)
def a_list_of_a_thread():
    class Kept(Net):
        def forward(self, x):
            LOCAL.kept = []
            out = super().forward(x) + sum(LOCAL.kept)
            del LOCAL.kept
            return out

    return Kept(collecting(lambda self, out: LOCAL.kept.append(out * 2)))


@case(0)
def a_list_in_a_default():
    def forward(self, x, kept=[]):  # noqa: B006
        kept.append(len(kept))
        out = base(self, x) * len(kept)
        return out

    made = Net(kind(forward))
    made.register_forward_pre_hook(lambda m, a: forward.__defaults__[0].clear())
    return made


@case(0)
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


@case(0)
def a_tensor_in_an_attribute():
    def forward(self, x):
        self.last = base(self, x)
        return self.last * 2

    return Net(kind(forward, last=None), setting(last=lambda i: None))


@case(0)
def a_number_in_an_attribute():
    def forward(self, x):
        self.width = x.shape[0]
        return base(self, x)

    class Wide(Net):
        def forward(self, x):
            return super().forward(x) * sum(b.width for b in self.blocks)

    return Wide(kind(forward, width=0))


@case(0)
def buffers_that_are_written():
    def forward(self, x):
        self.total += x.sum()
        return base(self, x) * self.total

    return Net(kind(forward), lambda b, i: b.register_buffer("total", torch.zeros(())))


@case(0)
def running_statistics():
    return Net(lambda i: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))).train()


@case(0)
def what_is_given_is_written():
    def forward(self, x):
        x += self.linear(x)
        return self.norm(x)

    def step(self, block, i, x):
        before = x.clone()
        return block(before) + before

    return net(step, kind(forward))


@case(0)
def a_view_of_what_is_given():
    def step(self, block, i, x):
        y = block(x)
        y += 1.0
        return x * 1.5

    return net(step, kind(lambda self, x: x.view(-1)))


@case(5)
def what_is_given_is_given_back():
    def step(self, block, i, x):
        y, given = block(x)
        given += y
        return x * 1.5

    return net(step, kind(lambda self, x: (base(self, x), x)))


@case(0)
def two_results_of_one_memory():
    def step(self, block, i, x):
        y, z = block(x)
        z += 1.0
        return y * 1.5

    def forward(self, x):
        y = base(self, x)
        return y, y.view(-1)

    return net(step, kind(forward))


@case(0)
def a_result_of_one_element():
    return net(lambda self, b, i, x: x + b(x), kind(lambda self, x: base(self, x)[:1].expand(3, 4)))


@case(4)
def arguments_that_are_one_tensor():
    def step(self, block, i, x):
        return block(x, x if i % 2 else x * 2)

    class Same(Block):
        def forward(self, x, y):
            return base(self, x) * (2.0 if x is y else 3.0) + y

    return net(step, Same)


@case(4)
def a_constant_of_other_values():
    masks = [torch.tensor([1.0, 2.0, 3.0, 4.0 + (i == 4)]) for i in range(6)]
    return net(lambda self, b, i, x: b(x) * 1, kind(lambda self, x: base(self, x) * self.mask),
               setting(mask=lambda i: masks[i]))  # fmt: skip


@case(4)
def numbers_that_are_given():
    made = kind(lambda self, x, scale=1.0: base(self, x) * scale)
    return net(lambda self, b, i, x: b(x, scale=2.0) if i % 3 == 0 else b(x), made)


@case(4)
def another_layout():
    def step(self, block, i, x):
        return block(x.t().contiguous().t() if i == 3 else x)

    return net(step, kind(lambda self, x: base(self, x) * (2 if x.is_contiguous() else 3)))


@case(3)
def no_gradient_in_one():
    def step(self, block, i, x):
        with torch.set_grad_enabled(i != 3):
            return block(x)

    return net(step)


@case(4)
def autocast_in_one():
    def step(self, block, i, x):
        with torch.autocast("cpu", enabled=i == 3):
            return block(x).float()

    return net(step)


@case(4)
def another_dtype():
    def forward(self, x):
        return x + self.linear(x.to(self.linear.weight.dtype)).float()

    return Net(kind(forward), lambda b, i: i == 3 and b.linear.bfloat16())


@case(4)
def a_frozen_weight():
    made = kind(lambda self, x: base(self, x) * (2 if self.linear.weight.requires_grad else 3))
    return Net(made, lambda b, i: b.linear.requires_grad_(i != 3))


@case(5)
def tied_weights():
    made = Net()
    for block in made.blocks[1:]:
        block.linear = made.blocks[0].linear
    return made


@case(0)
def an_attribute_of_the_parent():
    def step(self, block, i, x):
        self.turn = float(i)
        return block(x)

    made = net(step, kind(lambda self, x: base(self, x) * self.parent[0].turn))
    made.turn = 0.0
    for block in made.blocks:
        block.parent = [made]
    return made


@case(0)
def all_attributes():
    return Net(kind(lambda self, x: base(self, x) * vars(self)["index"]))


@case(5)
def blocks_in_blocks():
    inner = lambda i: nn.ModuleList(map(Block, range(4)))

    def forward(self, x):
        for block in self.inner:
            x = block(x)
        return x

    return Net(kind(forward), setting(inner=inner))


@case(4)
def blocks_in_blocks_one_of_which_is_another():
    def inner(i):
        made = nn.ModuleList(map(Block, range(4)))
        if i == 3:
            made[2].forward = lambda x: x * 2.0
        return made

    def forward(self, x):
        for block in self.inner:
            x = block(x)
        return x

    return Net(kind(forward), setting(inner=inner))


@case(0)
def a_tag_of_the_tensor():
    def step(self, block, i, x):
        x.tag = i
        return block(x)

    return net(step, kind(lambda self, x: base(self, x) * x.tag))


@case(0)
def gradients_that_forward_takes():
    def forward(self, x):
        y = base(self, x)
        return y + torch.autograd.grad(y.sum(), self.linear.weight, create_graph=True)[0].sum()

    return Net(kind(forward))


@case(0)
def a_condition():
    return Net(kind(lambda self, x: base(self, x) if x.sum() > self.linear.bias.sum() else x * 2))


@case(0)
def another_program_in_each():
    def step(self, block, i, x):
        return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)

    return net(step, kind(lambda self, x: base(self, x) * self.index))


class Doubled(torch.autograd.Function):
    """Twice the value, with a gradient of its own."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


@case(0)
def gradients_of_their_own():
    return Net(kind(lambda self, x: base(self, Doubled.apply(x))))


@case(4)
def checkpoints():
    step = lambda self, b, i, x: torch.utils.checkpoint.checkpoint(b, x, use_reentrant=False)
    return net(step).train()


@case(0)
def checkpoints_inside():
    again = lambda self, x: torch.utils.checkpoint.checkpoint(self.linear, x, use_reentrant=False)
    return Net(kind(again)).train()


@case(5)
def dropout():
    return Net(kind(lambda self, x: nn.functional.dropout(base(self, x), 0.5))).train()


@case(0)
def a_detached_value():
    return Net(kind(lambda self, x: base(self, x) + x.detach()))


@case(0)
def loops():
    def forward(self, x):
        double = lambda x: (x * 2,)
        return torch.while_loop(lambda x: x.sum() < 9, double, (base(self, x),))[0]

    return Net(kind(forward))


@case(0)
def a_base_that_is_kept():
    class Kept(Net):
        def forward(self, x):
            LOCAL.kept = []
            out = super().forward(x) + sum(LOCAL.kept)
            del LOCAL.kept
            return out

    def forward(self, x):
        y = base(self, x) * 1
        LOCAL.kept.append(y)
        return y.view(-1).view(3, 4)

    def step(self, block, i, x):
        x = block(x)
        x += 1.0  # in what is kept, too
        return x

    Kept.step = step
    return Kept(kind(forward))


@pytest.mark.parametrize("name", CASES)
def test_same(name):
    make, shared = CASES[name]
    module = make()
    seen, wrong = both(module, X, rng=jax.random.key(0))
    told = [(g.noted, g.shared, g.reasons) for g in seen]
    assert not wrong, told
    first = next((g for g in seen if len(module.blocks) == 6), None)
    print(name, told, shared)
    assert (first.shared if first else 0) == shared, told


def test_a_result_that_is_written():
    """What is written through a view is the same value, by other equations."""

    def step(self, block, i, x):
        y = block(x)
        y[0] += 1.0
        return y

    module = net(step, kind(lambda self, x: base(self, x).view(-1).view(3, 4)))
    with blocks.watching() as seen:
        model = tojax.from_torch(module)
        out = model(X)
    assert seen[0].shared == 5
    assert_close(out, module(torch.from_numpy(X)).detach().numpy(), reduction=24)


def failing(i, fail):
    """A net whose block ``i`` does what it should not."""
    made = Net()
    made.blocks[i].forward = fail
    return made


@pytest.mark.parametrize("i", [0, 4])
@pytest.mark.parametrize(
    ("error", "fail"),
    [
        (DataDependent, lambda x: x[: int(x.sum())]),
        (DataDependent, lambda x: x * x.tolist()[0][0]),
        (MissingOps, lambda x: torch.ops.tojax_once.missing(x)),
        (ZeroDivisionError, lambda x: x / (1 // 0)),
    ],
)
def test_errors(i, error, fail):
    """They are those of a full trace: the same module and line."""
    said = []
    for few in (4, 1 << 30):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(blocks, "FEW", few)
            with pytest.raises(error) as raised:
                tojax.from_torch(failing(i, fail))(X)
            said.append(str(raised.value))
    assert said[0] == said[1]


torch.library.define("tojax_once::missing", "(Tensor x) -> Tensor")
torch.library.impl("tojax_once::missing", "cpu", lambda x: x + 1)


def test_draws_of_numpy():
    """Each block draws its own number, and the user is told."""
    forward = lambda self, x: base(self, x) * float(np.random.rand())
    outs = []
    for few in (4, 1 << 30):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(blocks, "FEW", few)
            np.random.seed(0)
            with pytest.warns(FrozenDraw):
                outs.append(np.asarray(tojax.from_torch(Net(kind(forward)))(X)))
    assert (outs[0] == outs[1]).all()


def test_a_debugger_sees_all_blocks():
    """What follows calls is left to do so, and all blocks run."""
    called = []
    trace = lambda frame, event, arg: called.append(frame.f_code.co_name)
    with blocks.watching() as seen:
        sys.settrace(trace)
        try:
            tojax.from_torch(Net())(X)
        finally:
            sys.settrace(None)
    assert (seen[0].noted, seen[0].shared) == (0, 0)
    assert called


def test_nothing_stays():
    """Modules have their forward again, and no tracer outlives the trace."""
    model = tojax.from_torch(Net())
    with jax.checking_leaks():
        model(X)
    assert not any("forward" in vars(m) for m in model.source.code.modules())
    assert "__getattribute__" not in vars(nn.Module)
    assert sys.gettrace() is None
