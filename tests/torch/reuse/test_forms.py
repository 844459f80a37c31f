"""Values that are alike, and values that are not."""

import functools
import itertools
import queue
import types
import warnings

import numpy as np
import pytest
import torch
from torch import nn

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


class Helper:
    """What blocks ask, with a class of its own for each net."""

    scale = 1.0

    def times(self, x):
        return x * self.scale

    @classmethod
    def counted(cls, x):
        cls.scale = cls.scale % 6 + 1
        return x * cls.scale


def helped(forward, step=Net.step):
    """A net whose blocks have one helper."""
    helper = type("Own", (Helper,), {})()
    return net(step, kind(forward), setting(helper=lambda i: helper))


def counting():
    """A function that gives 1, 2, ..., 6, 1, ... by what it closes over."""
    numbers = [*range(1, 7)]
    return lambda *self: numbers.append(numbers.pop(0)) or numbers[-1]


@CASES(0)
def a_setting_of_the_class_of_a_helper():
    def step(self, block, i, x):
        type(block.helper).scale = float(i)
        return block(x)

    return helped(lambda self, x: base(self, x) * self.helper.scale, step)


@CASES(0)
def a_setting_that_a_helper_changes():
    return helped(lambda self, x: self.helper.counted(base(self, x)))


@CASES(4)
def a_method_of_a_helper_that_changes():
    def step(self, block, i, x):
        type(block.helper).times = (lambda self, x: x * 2) if i == 3 else Helper.times
        return block(x)

    return helped(lambda self, x: self.helper.times(base(self, x)), step)


@CASES(0)
def a_counter_that_a_method_of_a_helper_closes_over():
    made = helped(lambda self, x: base(self, x) * self.helper.count())
    type(made.blocks[0].helper).count = counting()
    return made


@CASES(0)
def a_counter_that_a_static_method_closes_over():
    forward = lambda self, x: base(self, x) * self.count()
    return Net(kind(forward, count=staticmethod(counting())))


@CASES(0)
def a_counter_that_a_property_closes_over():
    return Net(kind(lambda self, x: base(self, x) * self.count, count=property(counting())))


@CASES(0)
def a_counter_that_a_method_of_a_base_closes_over():
    class Kind(kind(base, count=counting())):
        def forward(self, x):
            return super().forward(x) * super().count()

    return Net(Kind)


@CASES(0)
def a_method_of_a_base_that_is_always_another():
    class Kind(kind(base)):
        def forward(self, x):
            return super().forward(x) * super().scale()

    def step(self, block, i, x):
        Kind.__base__.scale = None  # its place in memory is free for the next one
        Kind.__base__.scale = (lambda scale: lambda self: scale)(i)
        return block(x)

    return net(step, Kind)


@CASES(0)
def a_list_of_the_class():
    def forward(self, x):
        type(self).seen[0] = type(self).seen[0] % 6 + 1
        return base(self, x) * type(self).seen[0]

    return Net(kind(forward, seen=[0]))


@CASES(4)
def kinds_that_change_places():
    kinds = [type(name, (nn.Identity,), {}) for name in ("One", "Other")]

    def change(block, i):
        block.one, block.other = (k() for k in (kinds if i % 2 else kinds[::-1]))

    return Net(kind(lambda self, x: base(self, x) * isinstance(self.one, kinds[0])), change)


@CASES(0)
def a_tag_of_a_constant():
    masks = [torch.ones(4) for _ in range(6)]
    for i, mask in enumerate(masks):
        mask.tag = i
    step = lambda self, block, i, x: block(x, masks[i])
    return net(step, kind(lambda self, x, mask: base(self, x) * mask.tag))


@CASES(4)
def arguments_that_are_one_constant():
    one, other = torch.ones(4), torch.ones(4)
    step = lambda self, block, i, x: block(x, one, one if i % 2 else other)
    return net(step, kind(lambda self, x, y, z: base(self, x) * (y is z)))


@CASES(0)
def constants_that_are_alike_in_32_bits():
    wide = [torch.tensor([2.0**33 + i], dtype=torch.float64) for i in range(6)]
    step = lambda self, block, i, x: block(x, wide[i])
    return net(step, kind(lambda self, x, y: base(self, x) * float(y[0] - 2**33)))


with torch.inference_mode():
    LARGE = torch.ones(100, 100)
with warnings.catch_warnings(action="ignore"):  # quantized tensors are deprecated
    LEVELS = torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8)


@CASES(0)
def constants_that_are_quantized_or_count_no_writes():
    return Net(kind(lambda self, x: base(self, x) * LEVELS.q_scale() * LARGE[0, :4]))


@CASES(4)
def a_zero_of_another_sign():
    zeros = [complex(0, -0.0 if i == 3 else 0.0) for i in range(6)]
    forward = lambda self, x: base(self, x) * np.copysign(1, self.zero.imag)
    return Net(kind(forward), setting(zero=lambda i: zeros[i]))


@CASES(0)
def numbers_of_a_queue():
    numbers = queue.SimpleQueue()
    made = Net(kind(lambda self, x: base(self, x) * numbers.get()))
    made.register_forward_pre_hook(lambda m, args: [numbers.put(i) for i in range(6)] and None)
    return made


@CASES(0)
def a_setting_of_a_distribution():
    normal = torch.distributions.Normal(0.0, 1.0)

    def step(self, block, i, x):
        block.normal.gain = i
        return block(x)

    forward = lambda self, x: base(self, x) * self.normal.gain
    return net(step, kind(forward), setting(normal=lambda i: normal))


DEEP = None
for _ in range(5000):
    DEEP = types.SimpleNamespace(next=DEEP)


@CASES(0)
def an_object_that_is_nested_too_deep():
    return Net(kind(lambda self, x: base(self, x) * (DEEP.next is not None)))


@pytest.mark.parametrize("name", CASES)
def test_same(name):
    CASES.check(name)
