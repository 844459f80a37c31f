"""Loops and branches that values decide, of torch code as it is written."""

import itertools
import random

import jax
import numpy as np
import pytest
import torch
from torch import nn

import anyjax
from anyjax.errors import DataDependent
from tests.tolerance import assert_close
from tests.torch.beside_torch import tensors

pytestmark = pytest.mark.sample(every=4)

X = np.array([0.2, 0.3, 0.5], np.float32)


def newton(x):
    y, n, error = x, 0, float("inf")
    while error > 1e-5:
        new = (y + x / y) / 2
        error = (new - y).abs().max()
        y = new
        n += 1
    return y, n


def both(x):
    n = 0
    while (x.sum() < 90 and not n > 50) or n < 2:
        x = x * 2 if n % 2 == 0 else x + 1
        n += 1
    return x * n


def breaks(x):
    while True:
        new = torch.cos(x)
        if (new - x).abs().max() < 1e-3:
            break
        if new.sum() > 100:
            continue
        x = new
    return x


def counted(x):
    for i in range(100):  # noqa: B007 (read after the loop)
        new = torch.cos(x)
        if (new - x).abs().max() < 1e-3:
            break
        x = new
    return x, i


def reversed_range(x):
    total = x * 0
    for i in range(9, -1, -3):
        if total.sum() > 3 * i:
            break
        total = total + x * i
    return total


def as_long_as_a_number(x):
    for _ in range((x.sum() * 4).long()):
        x = x * 1.5
    return x


def int_of_a_number(x):
    for _ in range(1, int(x.sum() * 4), 1):
        x = x * 1.5
    return x


def written(x):
    y = x.clone()
    flat = y.view(-1)
    while y.sum() < 100:
        y += 1
        y[0] *= 2
    return flat, y


def unset(x):
    while x.sum() < 10:
        last = x.sin()
        x = x * 2
    return last


def nested(x):
    for _ in range(30):
        k = 0
        while x.abs().max() > 1 + k:
            x = x * 0.5
            k += 1
        if x.sum() > 2.8:
            break
        x = x + 0.4
    return x


def joined(x):
    n, scale, y = 0, 1.0, x
    for i in range(6):
        if y.sum() > i:
            y = y * 2
            n += 1
        elif not y.max() > 1 or (y.min() < 0 and y.sum() > -10):
            scale = scale * 3
            y = y + scale
        if y.sum() > 30:
            y = y - 3
    return y, n * scale


def aliased(x):
    y = x.clone()
    flat = y.view(-1)
    if y.sum() > 0.1:
        y[0] = 5
    if y.sum() > 0.2:
        y.add_(1)
    if y.sum() > 3:
        y = y * 2
    if y.sum() > 4:
        y[1] = 7
    return flat, y


class Kept(nn.Module):
    """Its loop goes on in an attribute, with weights that the carry does not hold."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        self.pair = torch.zeros(3), [x, x]
        for i in range(1, 3):
            while self.pair[0].sum() < 3 * i:
                y, others = self.pair
                new = y + torch.tanh(self.layer(y)) + 0.8
                if new.sum() < 4:
                    others = [new, y * new]
                self.pair = (new, others)
        return self.pair[0] * self.pair[1][1] + x


class Stitched(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, out):
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad * 3, None


def stitched(x):
    with torch.no_grad():
        out = x * 1.0
    return Stitched.apply(x, out)


def gets_a_gradient(x):
    y = torch.zeros(3)
    while y.sum() < 1.5:
        y = stitched(y) * 0.5 + x
    return stitched(y)


def one_way_has_a_gradient(x):
    y = torch.cond(x.sum() > 100, lambda x: torch.ones(3), lambda x: x * 2, (x,))
    return stitched(y)


def chosen_twice(x):
    """The rows of a mask are the same inside of a branch and after it."""
    mask = x > 0.25
    for _ in range(4):
        if x.sum() > 1:
            x = x - x[mask].sum() / 4
        if x[0] > 0:
            x = x * 1.5
    return x + x[mask].sum()


def written_before(x):
    """Parts of a tensor that is read in branches first."""
    y = nn.functional.pad(x, (1, 1))
    y[..., 0], y[..., -1] = 2.0, 3.0
    for _ in range(4):
        if x.sum() > 1:
            x = x + y[1:-1] / 4
        if x[0] > 1:
            x = x * y[0] - y[-1]
    return x + y[1:-1]


FUNCTIONS = [
    chosen_twice,
    written_before,
    newton,
    both,
    breaks,
    counted,
    reversed_range,
    as_long_as_a_number,
    written,
    unset,
]
FUNCTIONS += [
    int_of_a_number,
    nested,
    joined,
    aliased,
    Kept(),
    gets_a_gradient,
    one_way_has_a_gradient,
]


ENDLESS = (newton, both, unset, as_long_as_a_number, written, gets_a_gradient)


def leaves(out) -> list:
    return [*out] if isinstance(out, (tuple, list)) else [out]


@pytest.mark.filterwarnings("ignore::anyjax.errors.StateDropped")  # what Kept keeps
@pytest.mark.filterwarnings("ignore::anyjax.errors.UncheckedValues")  # numbers of a range
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: getattr(f, "__name__", "Kept"))
@pytest.mark.parametrize("scale", [1, 3, -0.5])
def test_values_and_gradients_are_torchs(function, scale):
    if scale < 0 and (function in ENDLESS or isinstance(function, Kept)):
        pytest.skip("it has no end, or gives no number, in torch")
    x = scale * X
    model = anyjax.from_torch(function)
    (given,) = tensors([x], True)
    want = leaves(function(given))
    got = leaves(jax.jit(model.apply)(model.params, x))
    assert len(got) == len(want)
    for a, b in zip(got, want):
        assert_close(np.asarray(a, np.float32), np.asarray(torch.as_tensor(b).detach()), rtol=1e-5)
    place = next((i for i, y in enumerate(want) if getattr(y, "requires_grad", False)), None)
    if place is None:
        return
    want[place].sum().backward()
    loss = lambda params, x: leaves(model.apply(params, x))[place].sum()
    params, slope = jax.jit(jax.grad(loss, (0, 1)))(model.params, x)
    assert_close(slope, given.grad.numpy(), rtol=1e-4)
    for name, parameter in getattr(function, "named_parameters", list)():
        assert_close(params[name], parameter.grad.numpy(), rtol=1e-4)
        parameter.grad = None


def test_rows_of_a_batch_have_turns_of_their_own():
    model = anyjax.from_torch(newton)
    rows = np.stack([X, 40 * X, X + 5])
    roots, turns = jax.jit(jax.vmap(model.apply, (None, 0)))({}, rows)
    want = [newton(torch.tensor(x)) for x in rows]
    assert_close(roots, torch.stack([x for x, _ in want]).numpy(), rtol=1e-5)
    assert turns.tolist() == [n for _, n in want]


def program(source: random.Random, returns: bool) -> str:
    """Writes a function of loops and branches over three names."""
    fresh = itertools.count()

    def block(depth: int, indent: str, loop: bool) -> list[str]:
        lines = []
        for _ in range(source.randint(1, 3)):
            kinds = ["assign", "assign", "write", "if", "while", "for"][: 6 - depth]
            kind = source.choice([*kinds, "return"] if returns else kinds)
            a, b = source.choice("xyz"), source.choice("xyz")
            test = f"{a}.sum() {source.choice('<>')} {source.choice([-1, 0, 2])}"
            if kind == "assign":
                lines.append(f"{indent}{a} = torch.{source.choice(['sin', 'tanh'])}({b}) * 2 + {a}")
            elif kind == "write":
                lines.append(f"{indent}{a} {source.choice(['+=', '*='])} 0.5")
            elif kind == "return":
                lines += [f"{indent}if {test}:", f"{indent}    return {a} * 2, y, z"]
            elif kind == "if":
                lines += [f"{indent}if {test}:", *block(depth + 1, indent + "    ", False)]
                lines += [f"{indent}else:", *block(depth + 1, indent + "    ", False)]
            else:
                k = f"k{next(fresh)}"
                if kind == "while":
                    lines += [f"{indent}{k} = 0", f"{indent}while {test} and {k} < 4:"]
                    lines += [f"{indent}    {k} += 1"]
                else:
                    lines += [f"{indent}for {k} in range(20):"]
                    lines += [f"{indent}    if {test}:", f"{indent}        break"]
                lines += block(depth + 1, indent + "    ", True)
        return lines

    body = ["    y, z = x + 1, x * 2", "    x = x.clone()", *block(0, "    ", False)]
    return "\n".join(["def function(x):", *body, "    return x, y, z"])


@pytest.mark.parametrize("seed", range(48))
def test_generated_programs(seed, tmp_path):
    source = random.Random(seed)
    path = tmp_path / "generated.py"
    path.write_text("import torch\n" + program(source, returns=seed >= 24))
    space: dict = {}
    exec(compile(path.read_text(), str(path), "exec"), space)
    function = space["function"]
    run = jax.jit(anyjax.from_torch(function).apply)
    for scale in (1, -1, 4):
        try:
            got = run({}, scale * X)
        except DataDependent as refusal:
            pytest.skip(f"refused: {refusal}")
        want = function(torch.tensor(scale * X))
        for a, b in zip(got, want):
            assert_close(a, b.numpy(), rtol=1e-4)


def grows(x):
    while x.sum() < 10:
        x = torch.cat([x, x])
    return x


def other_dtype(x):
    y = x > 0
    while x.sum() < 10:
        x = x * 2
        y = x * 3
    return y


@pytest.mark.parametrize(
    ("function", "why"),
    [(grows, r"x is torch.float32\[3\] before a turn, torch.float32\[6\]"), (other_dtype, "y is")],
)
def test_what_changes_its_kind_is_refused(function, why):
    with pytest.raises(DataDependent, match=why):
        jax.jit(anyjax.from_torch(function).apply)({}, X)


def test_functions_are_what_they_were():
    code = newton.__code__
    jax.jit(anyjax.from_torch(newton).apply)({}, X)
    assert newton.__code__ is code


@pytest.mark.parametrize("function", [joined, newton, breaks])
def test_programs_of_open_sizes(function):
    (rows,) = jax.export.symbolic_shape("rows")
    model = anyjax.from_torch(function)
    program = jax.export.export(jax.jit(lambda x: model.apply({}, x)))(
        jax.ShapeDtypeStruct((rows,), np.float32)
    )
    for x in (X, np.concatenate([X, X])):
        for got, want in zip(leaves(program.call(x)), leaves(function(torch.tensor(x)))):
            assert_close(np.asarray(got, np.float32), np.float32(want), rtol=1e-4)
