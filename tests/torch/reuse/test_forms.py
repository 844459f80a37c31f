"""Values that are alike, and values that are not."""

import functools
import itertools
import types

import pytest
import torch

from tests.torch.reuse.nets import Block, Cases, Net, base, kind, net, setting

SHARED = types.SimpleNamespace(count=0)
CASES = Cases()


@CASES(0)
def closures():
    scaled = lambda i: lambda x: x * i
    return Net(kind(lambda self, x: self.f(base(self, x))), setting(f=scaled))


@CASES(5)
def closures_over_equals():
    scaled = lambda i: lambda x: x * 2.0
    return Net(kind(lambda self, x: self.f(base(self, x))), setting(f=scaled))


@CASES(0)
def partials():
    scaled = lambda i: functools.partial(torch.mul, other=float(i))
    return Net(kind(lambda self, x: self.f(base(self, x))), setting(f=scaled))


@CASES(5)
def equal_settings():
    config = lambda i: {"scale": 2.0, "names": ["a", "b"]}
    return Net(kind(lambda self, x: base(self, x) * self.c["scale"]), setting(c=config))


@CASES(4)
def one_other_setting():
    config = lambda i: types.SimpleNamespace(scale=2.0, names=["a", "b"] if i != 4 else ["a"])
    return Net(kind(lambda self, x: base(self, x) * len(self.c.names)), setting(c=config))


@CASES(0)
def a_counter_in_an_object_of_all():
    counter = types.SimpleNamespace(count=0)

    def forward(self, x):
        self.counter.count += 1
        return base(self, x) * self.counter.count

    made = Net(kind(forward), setting(counter=lambda i: counter))
    made.register_forward_pre_hook(lambda m, args: setattr(m.blocks[0].counter, "count", 0))
    return made


@CASES(0)
def a_counter_in_a_global_object():
    def forward(self, x):
        SHARED.count += 1
        return base(self, x) * SHARED.count

    made = Net(kind(forward))
    made.register_forward_pre_hook(lambda m, args: setattr(SHARED, "count", 0))
    return made


@CASES(0)
def a_counter_of_the_class():
    def forward(self, x):
        type(self).count += 1
        return base(self, x) * type(self).count

    made = Net(kind(forward, count=0))
    made.register_forward_pre_hook(lambda m, args: setattr(type(m.blocks[0]), "count", 0))
    return made


@CASES(0)
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


@CASES(0)
def a_list_in_a_default():
    def forward(self, x, kept=[]):  # noqa: B006
        kept.append(len(kept))
        return base(self, x) * len(kept)

    made = Net(kind(forward))
    made.register_forward_pre_hook(lambda m, a: forward.__defaults__[0].clear())
    return made


@CASES(4)
def arguments_that_are_one_tensor():
    def step(self, block, i, x):
        return block(x, x if i % 2 else x * 2)

    class Same(Block):
        def forward(self, x, y):
            return base(self, x) * (2.0 if x is y else 3.0) + y

    return net(step, Same)


@CASES(4)
def a_constant_of_other_values():
    masks = [torch.tensor([1.0, 2.0, 3.0, 4.0 + (i == 4)]) for i in range(6)]
    return net(lambda self, b, i, x: b(x) * 1, kind(lambda self, x: base(self, x) * self.mask),
               setting(mask=lambda i: masks[i]))  # fmt: skip


@CASES(4)
def numbers_that_are_given():
    made = kind(lambda self, x, scale=1.0: base(self, x) * scale)
    return net(lambda self, b, i, x: b(x, scale=2.0) if i % 3 == 0 else b(x), made)


@CASES(4)
def another_layout():
    def step(self, block, i, x):
        return block(x.t().contiguous().t() if i == 3 else x)

    return net(step, kind(lambda self, x: base(self, x) * (2 if x.is_contiguous() else 3)))


@CASES(3)
def no_gradient_in_one():
    def step(self, block, i, x):
        with torch.set_grad_enabled(i != 3):
            return block(x)

    return net(step)


@CASES(4)
def autocast_in_one():
    def step(self, block, i, x):
        with torch.autocast("cpu", enabled=i == 3):
            return block(x).float()

    return net(step)


@CASES(4)
def another_dtype():
    def forward(self, x):
        return x + self.linear(x.to(self.linear.weight.dtype)).float()

    return Net(kind(forward), lambda b, i: i == 3 and b.linear.bfloat16())


@CASES(4)
def a_frozen_weight():
    made = kind(lambda self, x: base(self, x) * (2 if self.linear.weight.requires_grad else 3))
    return Net(made, lambda b, i: b.linear.requires_grad_(i != 3))


@CASES(5)
def tied_weights():
    made = Net()
    for block in made.blocks[1:]:
        block.linear = made.blocks[0].linear
    return made


@CASES(0)
def a_tag_of_the_tensor():
    def step(self, block, i, x):
        x.tag = i
        return block(x)

    return net(step, kind(lambda self, x: base(self, x) * x.tag))


class Slotted:
    """Keeps its number in no dict."""

    __slots__ = ("count",)

    def __init__(self):
        self.count = 0


@CASES(0)
def a_counter_in_a_slot():
    counter = Slotted()

    def forward(self, x):
        counter.count += 1
        return base(self, x) * counter.count

    made = Net(kind(forward))
    made.register_forward_pre_hook(lambda m, args: setattr(counter, "count", 0))
    return made


@pytest.mark.parametrize("name", CASES)
def test_same(name):
    CASES.check(name)
