"""One program for arrays of any length, by jax.export's symbolic shapes."""

import jax
import numpy as np
import pytest
import torch
from jax import export

import anyjax
from anyjax.errors import DataDependent
from anyjax.torch.core.sizes import is_positive, is_zero, limits, symbolic, to_torch
from tests.parallel.architectures import CASES, build
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=5)


def exported(source, *shapes, constraints=(), dtype=np.float32):
    """(the model, its program for these symbolic shapes)."""
    model, scope = anyjax.from_torch(source), export.SymbolicScope(constraints)
    specs = [jax.ShapeDtypeStruct(export.symbolic_shape(s, scope=scope), dtype) for s in shapes]
    return model, export.export(jax.jit(model.apply))(model.params, *specs)


def floats(*shape):
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def assert_same(source, spec, *shapes, constraints=(), **options):
    """The one program gives for each shape what torch gives."""
    model, program = exported(source, spec, constraints=constraints)
    for shape in shapes:
        x = floats(*shape)
        with torch.no_grad():
            assert_close(program.call(model.params, x), source(torch.tensor(x)), **options)


class Pooled(torch.nn.Module):
    """Sizes in factories, expressions, views, masks and means."""

    def __init__(self):
        super().__init__()
        self.start = torch.nn.Parameter(torch.randn(1, 1, 8))
        self.heads = torch.nn.Linear(8, 8)
        self.register_buffer("places", torch.arange(64))

    def forward(self, x):
        batch, length, _ = x.shape
        x = torch.cat([self.start.expand(batch, -1, -1), x], 1)
        x = self.heads(x).view(batch, length + 1, 2, 4).transpose(1, 2)
        scores = x @ x.transpose(-1, -2)
        mask = torch.ones(length + 1, length + 1, dtype=torch.bool).tril()
        scores = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        x = (scores @ x).transpose(1, 2).reshape(batch, -1, 8)
        x = x + self.places[: length + 1, None] / (length + 1)
        return x[:, 1:].sum(1) / length, torch.tensor([batch, length]), x[:, -2:]


def test_a_module_for_any_batch_and_length():
    net = Pooled().eval()
    model, program = exported(net, "batch, length, 8", constraints=["length <= 63"])
    for batch, length in ((1, 1), (1, 9), (5, 1), (3, 17)):
        x = floats(batch, length, 8)
        with torch.no_grad():
            mean, sizes, last = net(torch.tensor(x))
        out = program.call(model.params, x)
        assert_close(out[0], mean, reduction=length)
        assert out[1].tolist() == sizes.tolist()
        assert_close(out[2], last, reduction=length)


RECURSES = "mamba"  # halves the length in Python until nothing is left


@pytest.mark.parametrize("name", [name for name in CASES if name != RECURSES])
def test_architectures(name):
    """One program for batches and lengths that it was not traced with."""
    module, inputs = build(name)
    model = anyjax.from_torch(module)
    scope = export.SymbolicScope(["b >= 2", "t >= 4", "t <= 64"])
    text = lambda x: "b, t" if x.ndim == 2 else f"b, {', '.join(map(str, x.shape[1:]))}"
    scope = scope if any(x.ndim == 2 for x in inputs.values()) else export.SymbolicScope(["b >= 2"])
    specs = {
        k: jax.ShapeDtypeStruct(export.symbolic_shape(text(x), scope=scope), x.dtype)
        for k, x in inputs.items()
    }
    logits = lambda params, given: model.apply(params, **given).logits
    program = export.export(jax.jit(logits))(model.params, specs)
    for batch, length in ((2, 7), (3, 12)):
        tokens = np.arange(batch * length, dtype=np.int32).reshape(batch, length) % 90 + 3
        given = {
            k: tokens if x.ndim == 2 else floats(batch, *x.shape[1:]) for k, x in inputs.items()
        }
        expected = jax.jit(logits)(model.params, given)
        assert_close(program.call(model.params, given), expected, reduction=512)


def test_python_that_recurses_over_the_length_is_refused():
    model = anyjax.from_torch(build(RECURSES)[0])
    spec = jax.ShapeDtypeStruct(export.symbolic_shape("b, t", constraints=["t >= 4"]), np.int32)
    with pytest.raises(DataDependent, match=r"floordiv\(t[^$]*modeling_mamba"):
        export.export(jax.jit(model.apply))(model.params, spec)


def test_code_that_goes_two_ways_by_a_size():
    class Scaled(torch.nn.Module):
        def forward(self, x):
            return x * 2 if x.shape[0] > 4 and x.shape[1] == 3 else x - 1

    assert_same(Scaled(), "b, 3", (2, 3), (5, 3), (1, 3))
    assert_same(Scaled(), "b, n", (5, 3), (5, 4), (2, 3))


def test_one_answer_for_conditions_that_are_the_same():
    class Same(torch.nn.Module):
        def forward(self, x):
            many = bool(x.shape[0] > 1)
            assert many == bool(x.shape[0] != 1) == bool(x.shape[0] >= 2)
            return x + 1 if many else x

    assert_same(Same(), "b", (1,), (4,))


def test_constraints_decide():
    def double(x):
        return x[3:] * 2 if x.shape[0] >= 4 else x[:1].expand(7)

    assert_same(double, "b", (4,), (9,), constraints=["b >= 4"])
    with pytest.raises(DataDependent, match=r"one of its ways gives"):
        exported(double, "b")


def test_a_check_of_sizes_is_made_by_the_program():
    def few(x):
        torch._check(x.shape[0] <= 4)
        return x * 2

    model, program = exported(few, "b")
    assert program.call(model.params, np.ones(4, np.float32)).tolist() == [2.0] * 4
    assert np.isnan(program.call(model.params, np.ones(5, np.float32))).all()


def test_a_size_that_is_needed_as_a_number_names_the_line_and_the_way_out():
    def rows(x):
        return sum(x[i] for i in range(x.shape[0]))

    message = r"the number b [^$]*symbolic[^$]*test_sizes.py:\d+[^$]*constraints"
    with pytest.raises(DataDependent, match=message):
        exported(rows, "b, 3")


def test_floats_of_sizes_are_numbers_of_the_program():
    model, program = exported(lambda x: x * float(x.shape[0]), "b, 3")
    x = np.ones((4, 3), np.float32)
    assert_close(program.call(model.params, x), 4 * x)


def test_roots_of_sizes_are_numbers_of_the_program():
    model, program = exported(lambda x: x * x.shape[0] ** 0.5, "b, 3")
    x = np.ones((4, 3), np.float32)
    assert_close(program.call(model.params, x), 2 * x)


def test_conditions_on_numbers_that_sizes_make():
    def function(x):
        if x.shape[0] / 2 > 1.5:
            x = 2 * x
        return 3 * x if (x.shape[0] - 0.5) ** 2 < 3 else x

    model, program = exported(function, "b, 3")
    for rows, factor in ((1, 3), (2, 3), (3, 1), (4, 2)):
        x = np.ones((rows, 3), np.float32)
        assert_close(program.call(model.params, x), factor * x)


@pytest.mark.parametrize(
    "bits", [lambda n: n & 1, lambda n: 1 & n, lambda n: n | 1, lambda n: n ^ 1, lambda n: n >> 1]
)
def test_sizes_have_no_bits(bits):
    with pytest.raises(DataDependent, match="a bit of b"):
        exported(lambda x: x * bits(x.shape[0]), "b, 3")


def test_an_axis_that_may_have_length_1_is_not_squeezed():
    for drop in (lambda x: x.squeeze(0), torch.squeeze):
        with pytest.raises(DataDependent, match="whether b == 1"):
            exported(drop, "b, 3")
        assert_same(drop, "b, 3", (2, 3), (4, 3), constraints=["b >= 2"])


def test_sizes_as_numbers_of_the_program():
    def numbers(x):
        n = x.shape[0]
        full = torch.full((2,), n)
        assert full.dtype is torch.int64
        return x[n - 1] * abs(n - 3) + (full / 2).sum() * (n > 2), x.median(0).values

    model, program = exported(numbers, "b, 3")
    for b in (1, 2, 3, 6):
        given = floats(b, 3)
        for one, other in zip(program.call(model.params, given), numbers(torch.tensor(given))):
            assert_close(one, other, reduction=3)


def test_an_operator_that_needs_a_number_says_so():
    with pytest.raises(DataDependent, match=r"a number in aten.std[^$]*symbolic size"):
        exported(lambda x: x.std(0), "b, 3")


def test_shapes_that_differ_for_some_sizes_are_refused():
    with pytest.raises(Exception, match=r"inconclusive|does not fit|broadcast|incompatible"):
        exported(lambda x, y: x + y, "a, 3", "b, 3")


def test_strides_of_symbolic_sizes():
    def write(x):
        y = x.clone()
        y.transpose(0, 1).reshape(3, -1).add_(1)  # a copy: y stays
        y.view(-1)[1:].mul_(2)
        assert not y.t().is_contiguous() and y.t().stride() == (1, 3)
        return y

    assert_same(write, "b, 3", (2, 3), (4, 3), constraints=["b >= 2"])


def test_training_mode_and_gradients():
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    model = anyjax.from_torch(net).train()
    spec = jax.ShapeDtypeStruct(export.symbolic_shape("b, 3", constraints=["b >= 2"]), np.float32)

    def step(params, x):
        loss = lambda p: (model.apply(p, x, mutable=True)[0] ** 3).mean()
        return jax.grad(loss)(params), model.apply(params, x, mutable=True)[1]

    program = export.export(jax.jit(step))(model.params, spec)
    for x in (floats(2, 3), floats(7, 3)):
        expected = jax.tree.leaves(jax.jit(step)(model.params, x))
        for one, other in zip(jax.tree.leaves(program.call(model.params, x)), expected):
            assert_close(one, other, reduction=len(x))


def test_integers_of_positions_are_bounded_by_constraints():
    (n,) = export.symbolic_shape("n", constraints=["n <= 1000"])
    (size,) = to_torch((n,))
    assert limits(size) == (0, 1023) and limits(7) == (7, 7)
    assert symbolic((3, [size])) and not symbolic((3, [4]))


def test_what_is_known_of_sizes():
    (n,) = export.symbolic_shape("n")
    assert is_zero(n - n).value is True and is_zero(n).value is False
    assert is_positive(n - 1).value is True and is_positive(-n).value is False
    one, more = is_zero(n - 1), is_positive(n - 2)
    assert one.condition.key == more.condition.key and one.opposite != more.opposite
    assert more.general() and not one.general() and is_positive(n - 5).general() is None
