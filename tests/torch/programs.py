"""Random programs of views, copies and writes, which torch plans and any engine may run again.

A program is a list of small integers; every operation takes its axes, sizes and operands from them.
What torch refuses is left out of the plan, and so is what torch leaves undefined: a write whose
operand overlaps the written memory in another order gets a copy of that operand, and memory that
several elements of the target share is written with one value only.
"""

from __future__ import annotations

import torch

REFUSALS = (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError)


def axis(t, a):
    return a % t.dim()


def cut(t, a, b):
    """A range of an axis that is not empty."""
    size = t.shape[axis(t, a)]
    start = b % size
    return start, start + 1 + (b // 3) % (size - start)


def slice_(t, a, b, c):
    low, high = cut(t, a, b)
    return t[(slice(None),) * axis(t, a) + (slice(low, high, 1 + c % 2),)]


def permute(t, a, b, c):
    axes = list(range(t.dim()))
    axes.insert(a % t.dim(), axes.pop(b % t.dim()))
    return t.permute(axes)


def halves(t):
    """A shape with the first even axis split in two."""
    at = next((i for i, n in enumerate(t.shape) if n % 2 == 0 and n), None)
    if at is None:
        raise RuntimeError("no axis is even")
    return (*t.shape[:at], 2, t.shape[at] // 2, *t.shape[at + 1 :])


def memory(t):
    """How many elements the memory under ``t`` holds; only torch knows."""
    return t.untyped_storage().nbytes() // t.element_size()


VIEWS = {
    "slice": slice_,
    "select": lambda t, a, b, c: t.select(axis(t, a), b % t.shape[axis(t, a)]),
    "narrow": lambda t, a, b, c: t.narrow(axis(t, a), *(lambda s, e: (s, e - s))(*cut(t, a, b))),
    "transpose": lambda t, a, b, c: t.transpose(axis(t, a), axis(t, b)),
    "T": lambda t, a, b, c: t.mT,
    "permute": permute,
    "movedim": lambda t, a, b, c: t.movedim(axis(t, a), axis(t, b)),
    "view": lambda t, a, b, c: t.view(-1) if a % 2 else t.view(halves(t)),
    "reshape": lambda t, a, b, c: t.reshape(-1) if a % 2 else t.reshape(halves(t)),
    "flatten": lambda t, a, b, c: t.flatten(axis(t, a)),
    "unflatten": lambda t, a, b, c: t.unflatten(axis(t, a), (2, -1)),
    "expand": lambda t, a, b, c: t.unsqueeze(a % (t.dim() + 1)).expand(
        *t.shape[: a % (t.dim() + 1)], 2, *t.shape[a % (t.dim() + 1) :]
    ),
    "unfold": lambda t, a, b, c: t.unfold(axis(t, a), 1 + b % t.shape[axis(t, a)], 1 + c % 3),
    "diagonal": lambda t, a, b, c: t.diagonal(a % 3 - 1, axis(t, b), axis(t, c)),
    "squeeze": lambda t, a, b, c: t.squeeze(),
    "unsqueeze": lambda t, a, b, c: t.unsqueeze(a % (t.dim() + 1)),
    "chunk": lambda t, a, b, c: t.chunk(2, axis(t, a))[-1 if b % 2 else 0],
    "split": lambda t, a, b, c: t.split(2, axis(t, a))[-1 if b % 2 else 0],
    "tensor_split": lambda t, a, b, c: t.tensor_split(2, axis(t, a))[b % 2],
    "unbind": lambda t, a, b, c: t.unbind(axis(t, a))[-1 if b % 2 else 0],
    "real": lambda t, a, b, c: t.real if a % 2 else t.imag,
    "view_as_real": lambda t, a, b, c: torch.view_as_real(t),
    "view_as_complex": lambda t, a, b, c: torch.view_as_complex(t),
    "conj": lambda t, a, b, c: t.conj() if t.is_complex() else t.mH,
    "detach": lambda t, a, b, c: t.detach(),
    "index": lambda t, a, b, c: t[None, ..., -1:],
}
COPIES = {
    "clone": lambda t, a, b, c: t.clone(),
    "contiguous": lambda t, a, b, c: t.contiguous(),
    "plus": lambda t, a, b, c: t + 1,
    "gather": lambda t, a, b, c: t[[0, -1]],
    "repeat": lambda t, a, b, c: torch.cat([t, t], axis(t, a)),
    "mask": lambda t, a, b, c: torch.where(torch.ones_like(t, dtype=torch.bool), t, 0),
    "square": lambda t, a, b, c: t * t * 0.25,
    "to": lambda t, a, b, c: t.to(t.dtype),
    "to integer": lambda t, a, b, c: whole(t).to(INTEGERS[a % len(INTEGERS)]),
    "to float": lambda t, a, b, c: whole(t).float(),
    "to bool": lambda t, a, b, c: whole(t).bool(),
    "compare": lambda t, a, b, c: whole(t) < b % 3,
}
# The last two arguments are integers; ``o`` has the shape of ``t`` or fewer elements.
WRITES = {
    "copy_": lambda t, o, a, b: t.copy_(o),
    "add_": lambda t, o, a, b: t.add_(o),
    "+=": lambda t, o, a, b: t.__iadd__(o),
    "mul_": lambda t, o, a, b: t.mul_(o * 0.5),
    "sub_ number": lambda t, o, a, b: t.sub_(1.5),
    "mul_ number": lambda t, o, a, b: t.mul_(-0.5),
    "addcmul_": lambda t, o, a, b: t.addcmul_(o, o, value=0.25),
    "neg_": lambda t, o, a, b: t.neg_(),
    "clamp_": lambda t, o, a, b: t.clamp_(max=0.75),
    "[...] =": lambda t, o, a, b: t.__setitem__(..., o),
    "slice =": lambda t, o, a, b: t.__setitem__(slice(a % 2, None), b),
    "last =": lambda t, o, a, b: t.__setitem__((..., a % t.shape[-1]), o.reshape(-1)[0]),
    "list =": lambda t, o, a, b: t.__setitem__([a % t.shape[0]], b),
    "mask = number": lambda t, o, a, b: t.__setitem__(chess(t), 2.5),
    "mask = tensor": lambda t, o, a, b: t.__setitem__(chess(t), o.reshape(-1)[0]),
    "masked_fill_": lambda t, o, a, b: t.masked_fill_(chess(t), b),
    "masked_scatter_": lambda t, o, a, b: t.masked_scatter_(chess(t), o.expand_as(t)),
    "where out": lambda t, o, a, b: torch.mul(t, 1.5, out=t),
    "out": lambda t, o, a, b: torch.add(o.expand_as(t), 2, out=t),
    "index_put_": lambda t, o, a, b: t.index_put_(
        (torch.tensor([0, a % t.shape[0], -1]),), o.reshape(-1)[0], accumulate=True
    ),
    "index_add_": lambda t, o, a, b: t.index_add_(
        axis(t, a), torch.tensor([0, 0]), o.reshape(-1)[0].expand(two_of(t, axis(t, a)))
    ),
    "index_copy_": lambda t, o, a, b: t.index_copy_(
        axis(t, a), torch.tensor([0]), o.expand_as(t).narrow(axis(t, a), 0, 1)
    ),
    "index_fill_": lambda t, o, a, b: t.index_fill_(axis(t, a), torch.tensor([-1]), 1.25),
    "scatter_": lambda t, o, a, b: t.scatter_(axis(t, a), first(t), 0.5),
    "scatter_ tensor": lambda t, o, a, b: t.scatter_(axis(t, a), first(t)[:1], o.expand_as(t)),
    "scatter_add_": lambda t, o, a, b: t.scatter_add_(axis(t, a), first(t), o.expand_as(t)),
    "put_": lambda t, o, a, b: t.put_(torch.tensor([0]), o.reshape(-1)[:1], accumulate=True),
    "cumsum_": lambda t, o, a, b: t.cumsum_(axis(t, a)),
    "lerp_": lambda t, o, a, b: t.lerp_(o.expand_as(t), 0.5),
    "swap": lambda t, o, a, b: t.copy_(t.flip(axis(t, a))),
    "no_grad": lambda t, o, a, b: torch.no_grad()(lambda: t.mul_(2.0))(),
    "diagonal +=": lambda t, o, a, b: t.diagonal().add_(1),
    "fill_diagonal_": lambda t, o, a, b: t.fill_diagonal_(0.5),
    "mul_ 2": lambda t, o, a, b: t.mul_(2),
    "masked_fill_ pool": lambda t, o, a, b: t.masked_fill_(mask_of(o), b),
    "mask of pool =": lambda t, o, a, b: t.__setitem__(mask_of(o).expand_as(t), b),
    "&=": lambda t, o, a, b: t.__iand__(o),
    "|=": lambda t, o, a, b: t.__ior__(o),
    "^=": lambda t, o, a, b: t.__ixor__(o),
    "%=": lambda t, o, a, b: whole(t).__imod__(3),
    "//=": lambda t, o, a, b: whole(t).__ifloordiv__(2),
    "logical_not_": lambda t, o, a, b: whole(t).logical_not_(),
}
ELEMENTWISE = {"copy_", "add_", "+=", "mul_", "addcmul_", "[...] =", "lerp_", "&=", "|=", "^="}
FILLS = {  # right even where elements of the target share memory
    "fill_": lambda t, o, a, b: t.fill_(1.5),
    "fill_ tensor": lambda t, o, a, b: t.fill_(o.reshape(-1)[0]),
    "zero_": lambda t, o, a, b: t.zero_(),
}
RESHAPES = {  # what a tensor's own axes are changed by; the memory stays
    "t_": lambda t, o, a, b: t.transpose_(axis(t, a), axis(t, b)),
    "unsqueeze_": lambda t, o, a, b: t.unsqueeze_(a % (t.dim() + 1)),
    "squeeze_": lambda t, o, a, b: t.squeeze_(),
}

QUIET = ["slice", "select", "transpose", "view", "permute", "expand", "unfold", "diagonal", "chunk"]
QUIET += ["unbind", "real", "view_as_real", "copy_", "+=", "slice =", "mask = tensor", "zero_"]
QUIET += ["index_put_", "scatter_ tensor", "out", "swap"]
INTEGERS = (torch.uint8, torch.int16, torch.int32, torch.int64)


def whole(t):
    """A tensor of integers or bools, whose values have no rounding to depend on."""
    if t.is_floating_point() or t.is_complex():
        raise TypeError
    return t


def mask_of(o):
    """A mask that may depend on the values."""
    return whole(o) if o.dtype is torch.bool else whole(o) > 0


def chess(t):
    """Every second element, by a mask that does not depend on the values."""
    return (torch.arange(t.numel()) % 2 == 0).reshape(t.shape)


def first(t):
    """The index 0, as often as ``t`` has elements."""
    return torch.zeros(t.shape, dtype=torch.int64)


def two_of(t, at):
    return (*t.shape[:at], 2, *t.shape[at + 1 :])


def words(t):
    """The addresses of every element's bytes: a list of tuples."""
    size = t.element_size()
    places = torch.arange(memory(t)).as_strided(t.shape, t.stride(), t.storage_offset())
    start = t.untyped_storage().data_ptr()
    return [tuple(range(start + p * size, start + (p + 1) * size)) for p in places.reshape(-1)]


def hazard(t, o, elementwise):
    """Whether writing ``t`` from ``o`` may read what was written already."""
    target, source = words(t), words(o.expand_as(t))
    written = {w for e in target for w in e}
    return any(
        written.intersection(s) and not (elementwise and s == e) for e, s in zip(target, source)
    )


class Run:
    """A program on some tensors. torch plans (``log`` is None), others follow the plan."""

    def __init__(self, program, log=None):
        self.program, self.planning = program, log is None
        self.log = [] if log is None else list(log)
        self.detached = set()

    def decide(self, find):
        """What torch finds, kept for the others."""
        if self.planning:
            self.log.append(find())
            return self.log[-1]
        return self.log.pop(0)

    def __call__(self, *tensors):
        pool = list(tensors)
        for line in self.program:
            self.step(pool, *line)
        return [t for t in pool if self.decide(lambda t=t: readable(t))]

    def step(self, pool, kind, which, a, b, c):
        """One line of the program."""
        t = pool[which % len(pool)]
        plan = self.decide(lambda: None)
        if not self.planning and plan == "left out":
            return
        place = len(self.log) - 1
        try:
            self.act(pool, kind, t, a, b, c)
        except REFUSALS:
            if not self.planning:
                raise
            self.log[place:] = ["left out"]

    def act(self, pool, kind, t, a, b, c):
        if kind.startswith("in no_grad: "):
            with torch.no_grad():
                self.act(pool, kind.removeprefix("in no_grad: "), t, a, b, c)
        elif kind == "resize_":
            t.resize_(self.decide(lambda: resized(t, a)))
        elif kind == "as_strided":
            pool.append(t.as_strided(*self.decide(lambda: strided(t, a, b, c))))
        elif kind in VIEWS or kind in COPIES:
            out = (VIEWS.get(kind) or COPIES[kind])(t, a, b, c)
            if 0 < out.numel() <= 200:
                pool.append(out)
                unseen = kind == "detach" or not torch.is_grad_enabled() or id(t) in self.detached
                if kind in VIEWS and unseen:
                    self.detached.add(id(out))
        elif kind in RESHAPES:
            RESHAPES[kind](t, None, a, b)
        else:
            self.write(pool, kind, t, a, b, c)

    def write(self, pool, kind, t, a, b, c):
        o = pool[c % len(pool)]
        if o.is_complex() and not t.is_complex():
            o = o.real
        if self.decide(lambda: not fits(t, o)):
            o = o.reshape(-1)[:1]
        if self.decide(lambda: hazard(t, o, kind in ELEMENTWISE)):
            o = o.clone()
        if id(t) in self.detached:  # otherwise torch has a gradient that only this view knows of
            o = o.detach()
        shared = self.decide(lambda: len(set(words(t))) < t.numel())
        if kind in FILLS or not shared:
            (FILLS.get(kind) or WRITES[kind])(t, o, a, b)


def readable(t):
    """Whether torch has a value and a gradient for it: a view made inside no_grad has none when
    its base was written to.
    """
    try:
        t.grad_fn
    except RuntimeError:
        return False
    return True


def fits(t, o):
    try:
        return torch.broadcast_shapes(t.shape, o.shape) == t.shape
    except RuntimeError:
        return False


def strided(t, a, b, c):
    """Sizes, strides and offset that stay inside the memory."""
    stride = 1 + b % 3
    offset = c % memory(t)
    room = (memory(t) - 1 - offset) // stride + 1
    if a % 2:
        return (1 + a % room,), (stride,), offset
    second = 1 + a % room
    inner = max(1, min(2, (memory(t) - 1 - offset - (second - 1) * stride) + 1))
    return (second, inner), (stride, 1), offset


def resized(t, a):
    """A shape for the same memory; more of it would hold no values."""
    fewer = lambda: (max(1, t.shape[0] - 1), *t.shape[1:])
    shape = (lambda: (t.numel(),), lambda: halves(t), fewer)[a % 3]()
    if t.storage_offset() + torch.Size(shape).numel() > memory(t):
        raise RuntimeError
    return shape


KINDS = [*VIEWS, "as_strided", *COPIES, *WRITES, *FILLS, *RESHAPES, "resize_"]
KINDS += [f"in no_grad: {kind}" for kind in QUIET]
