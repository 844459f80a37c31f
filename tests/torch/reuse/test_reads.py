"""What the code of a block looks at: attributes of modules, methods, globals."""

import sys
import types

import numpy as np
import pytest
from torch import nn

from tests.torch.reuse.nets import Block, Cases, Net, X, base, kind, net, program, setting, sharing
from tojax.torch.reuse import blocks

GLOBAL = 1.0
CASES = Cases()


@CASES(5)
def alike():
    return Net()


@CASES(5)
def numbered():
    return Net(kind(lambda self, x: base(self, x) if x.ndim == 2 else x * self.index))


@CASES(0)
def numbers_that_are_read():
    return Net(kind(lambda self, x: base(self, x) * self.index))


@CASES(3)
def a_number_that_is_read_in_the_third():
    late = lambda self, x: base(self, x) * self.index if self.special else base(self, x)
    return Net(kind(late), setting(special=lambda i: i in (2, 5)))


@CASES(0)
def a_number_behind_a_property():
    read = {"odd": property(lambda self: self.index % 2)}
    return Net(kind(lambda self, x: base(self, x) * (1 + self.odd), **read), None)


@CASES(4)
def every_second_is_another():
    return Net(kind(lambda self, x: base(self, x) * self.scale), setting(scale=lambda i: i % 2))


@CASES(4)
def another_forward():
    def change(block, i):
        if i == 3:
            block.forward = lambda x: 2 * Block.forward(block, x)

    return Net(change=change)


@CASES(4)
def another_forward_inside():
    def change(block, i):
        if i == 3:
            block.linear.forward = lambda x: x * 3.0

    return Net(change=change)


@CASES(0)
def hooks_that_close_over_the_number():
    hook = lambda i: lambda module, args, out: out * i
    return Net(change=lambda b, i: b.linear.register_forward_hook(hook(float(i))))


@CASES(5)
def a_hook_of_one():
    return Net(change=lambda b, i: i == 3 and b.register_forward_hook(lambda m, a, out: out * 2))


@CASES(4)
def a_hook_inside_of_one():
    hook = lambda m, a, out: out * 2
    return Net(change=lambda b, i: i == 3 and b.linear.register_forward_hook(hook))


@CASES(0)
def a_class_attribute_that_changes():
    made = kind(lambda self, x: base(self, x) * self.gain)

    def step(self, block, i, x):
        made.gain = float(i)
        return block(x)

    return net(step, made)


@CASES(4)
def a_method_that_changes():
    made = kind(lambda self, x: self.scaled(base(self, x)), scaled=lambda self, x: x)

    def step(self, block, i, x):
        made.scaled = (lambda self, x: x * 2) if i == 3 else before
        return block(x)

    before = made.scaled
    return net(step, made)


@CASES(4)
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


@CASES(4)
def a_global_that_changes():
    def step(self, block, i, x):
        global GLOBAL
        GLOBAL = 2.0 if i == 4 else 1.0
        return block(x)

    return net(step, kind(scaled_by_global))


@CASES(0)
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


@CASES(0)
def an_attribute_of_the_parent():
    def step(self, block, i, x):
        self.turn = float(i)
        return block(x)

    made = net(step, kind(lambda self, x: base(self, x) * self.parent[0].turn))
    made.turn = 0.0
    for block in made.blocks:
        block.parent = [made]
    return made


@CASES(0)
def all_attributes():
    return Net(kind(lambda self, x: base(self, x) * vars(self)["index"]))


@CASES(4)
def a_module_in_a_module():
    outer, inner = types.ModuleType("outer_of_once"), types.ModuleType("inner_of_once")
    outer.inner, inner.flag = inner, 1.0

    def step(self, block, i, x):
        inner.flag = 2.0 if i == 4 else 1.0
        return block(x)

    globals()["outer_of_once"] = outer
    return net(step, kind(lambda self, x: base(self, x) * outer_of_once.inner.flag))  # noqa: F821


@CASES(4)
def a_module_that_forward_imports():
    module = types.ModuleType("imported_once")
    module.flag = 1.0
    sys.modules["imported_once"] = module

    def step(self, block, i, x):
        module.flag = 2.0 if i == 4 else 1.0
        return block(x)

    def forward(self, x):
        from imported_once import flag

        return base(self, x) * flag

    return net(step, kind(forward))


@CASES(0)
def attributes_that_cannot_be_followed():
    def looked_up(self, name):
        return object.__getattribute__(self, name)

    read = {"__getattribute__": looked_up}
    return Net(kind(lambda self, x: base(self, x) * self.index, **read))


@CASES(0)
def a_module_that_forward_closes_over():
    module = types.ModuleType("closed_over_once")

    def step(self, block, i, x):
        module.flag = i
        return block(x)

    return net(step, kind(lambda self, x: base(self, x) * module.flag))


@CASES(0)
def a_global_by_its_name():
    def step(self, block, i, x):
        globals()["BY_NAME"] = i
        return block(x)

    return net(step, kind(lambda self, x: base(self, x) * globals()["BY_NAME"]))


@CASES(0)
def a_hook_for_all_modules_that_counts():
    count = [0]

    def hook(module, args, out):
        count[0] = (count[0] + isinstance(module, nn.Linear)) % 6
        return out * count[0] if isinstance(module, nn.Linear) else None

    class Hooked(Net):
        def forward(self, x):
            handle = nn.modules.module.register_module_forward_hook(hook)
            try:
                return super().forward(x)
            finally:
                handle.remove()

    return Hooked()


def test_numbers_of_a_new_generator():
    """Each block has its own."""
    forward = lambda self, x: base(self, x) * float(np.random.default_rng().random())
    with blocks.watching() as seen:
        program(sharing(Net(kind(forward))), (X,), {}, None)
    assert seen[0].shared == 0


@pytest.mark.parametrize("name", CASES)
def test_same(name):
    CASES.check(name)
