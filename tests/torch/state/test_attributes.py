"""What torch code keeps in attributes, lists, tuples, dicts, objects and variables is state."""

import collections
import operator

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import StateDropped, Unsupported
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=4)

X = np.arange(6, dtype=np.float32).reshape(2, 3)
Pair = collections.namedtuple("Pair", "mean count")


class Statistics:
    """No module."""

    def __init__(self):
        self.mean, self.calls, self.history = torch.zeros(3), 0, {"all": []}

    def __call__(self, x):
        self.calls += 1
        self.mean = self.mean * 0.9 + x.mean(0) * 0.1
        self.history["all"].append(x.sum())
        return x - self.mean + self.calls * sum(self.history["all"])


class Keeps(torch.nn.Module):
    """Starts with what ``start`` gives."""

    def __init__(self, start, forward):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.LSTM(3, 3)
        self.kept = start()
        self.run = forward

    def forward(self, x):
        return self.run(self, x)


def in_object(m, x):
    return m.kept(x)


def in_tuple(m, x):
    out, m.kept = m.layer(x, m.kept)
    return out


def in_named_tuple(m, x):
    m.kept = Pair(m.kept.mean + x.mean(0), m.kept.count + 1)
    return x - m.kept.mean / m.kept.count


def in_list(m, x):
    m.kept.append(x * 2)
    return sum(m.kept)


def in_queue(m, x):
    m.kept.append(x)
    return sum(m.kept) + m.kept[0]


def in_dict(m, x):
    m.kept["sum"] = m.kept.get("sum", 0) + x
    m.kept[3][:] = m.kept[3] * 2
    return x + m.kept["sum"] * m.kept[3]


def as_number(m, x):
    m.kept += 1
    for _ in range(m.kept):
        x = x * 1.5
    return x


def by_halves(m, x):
    m.kept *= 0.5
    return x * m.kept


def as_flag(m, x):
    if not m.kept:
        m.kept = True
        m.offset = x.mean(0)
    return x - m.offset


def in_place(m, x):
    m.kept += x.sum()
    return x * m.kept


CASES = {
    in_object: Statistics,
    in_tuple: lambda: None,
    in_named_tuple: lambda: Pair(torch.zeros(3), 0),
    in_list: list,
    in_queue: lambda: collections.deque([torch.ones(2, 3)] * 2, maxlen=2),
    in_dict: lambda: {3: torch.ones(3)},
    as_number: lambda: 0,
    by_halves: lambda: 4.0,
    as_flag: lambda: False,
    in_place: lambda: torch.tensor(1.0),
}


NAME = operator.attrgetter("__name__")


@pytest.mark.parametrize("forward", CASES, ids=NAME)
def test_calls_follow_each_other_as_in_torch(forward):
    module, untouched = (Keeps(CASES[forward], forward) for _ in range(2))
    model, state = anyjax.from_torch(untouched), {}
    for factor in (1, 3, 2):
        out, state = model.apply(model.params, X * factor, state=state, mutable=True)
        assert_close(out, module(torch.tensor(X * factor)).detach())
    assert all(isinstance(x, jax.Array) for x in state.values())
    again = Keeps(CASES[forward], forward)
    assert_close(untouched(torch.tensor(X)).detach(), again(torch.tensor(X)).detach())


@pytest.mark.parametrize("forward", [f for f in CASES if f not in (as_number, as_flag)], ids=NAME)
def test_under_jit(forward):
    module = Keeps(CASES[forward], forward)
    model, state = anyjax.from_torch(Keeps(CASES[forward], forward)), {}
    run = jax.jit(lambda p, x, state: model.apply(p, x, state=state, mutable=True))
    for factor in (1, 3, 2):
        out, state = run(model.params, X * factor, state)
        assert_close(out, module(torch.tensor(X * factor)).detach())


@pytest.mark.parametrize("forward", [in_object, in_list, as_number, in_place], ids=NAME)
def test_dropped_values_are_said(forward):
    model = anyjax.from_torch(Keeps(CASES[forward], forward))
    with pytest.warns(StateDropped, match="kept"):
        model(X)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # scripts run on
def test_attributes_of_torchscript():
    class Running(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mean = torch.zeros(3)

        def forward(self, x):
            self.mean = self.mean * 0.5 + x.mean(0)
            return x - self.mean

    module, model = torch.jit.script(Running()), anyjax.from_torch(torch.jit.script(Running()))
    run = jax.jit(lambda state: model.apply({}, X, state=state, mutable=True))
    state = model.state
    for _ in range(3):
        out, state = run(state)
        assert_close(out, module(torch.tensor(X)))
    with pytest.warns(StateDropped, match="mean"):
        model(X)


def test_weights_in_lists_are_the_model_s():
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))
            self.register_buffer("shift", torch.ones(3))
            self.all = [self.weight, {"shift": self.shift}]

        def forward(self, x):
            return x * self.all[0] + self.all[1]["shift"]

    model = anyjax.from_torch(Module())
    grads = jax.grad(lambda p: model.apply(p, X).sum())(model.params)
    assert_close(grads["weight"], X.sum(0))
    out = model.apply({"weight": np.full(3, 2.0)}, X, state={"shift": np.zeros(3, np.float32)})
    assert_close(out, 2 * X)


SEEN = {"last": torch.zeros(3)}
LAYER = torch.nn.Linear(3, 3)


def layered(x):
    return LAYER(x)


def of_helpers(x):
    last, SEEN["last"] = SEEN["last"], x[-1]
    return layered(x) + last


def test_functions_bring_what_their_helpers_refer_to():
    model = anyjax.from_torch(of_helpers)
    assert sorted(model.params) == ["LAYER.bias", "LAYER.weight"]
    want = LAYER(torch.tensor(X)).detach().numpy()
    out, state = model.apply(model.params, X, mutable=True)
    assert_close(out, want)
    out, _ = model.apply(model.params, X, state=state, mutable=True)
    assert_close(out, want + X[-1])
    assert not SEEN["last"].any()


def of_inner_functions(x):
    return sum([LAYER(row) for row in x]) + (lambda y: y + SEEN["last"])(x[0])


def test_functions_bring_what_their_inner_functions_refer_to():
    model = anyjax.from_torch(of_inner_functions)
    assert sorted(model.params) == ["LAYER.bias", "LAYER.weight"]
    grads = jax.grad(lambda p: model.apply(p, X).sum())(model.params)
    assert_close(grads["LAYER.bias"], np.full(3, 2.0, np.float32))


def test_writes_to_a_tensor_in_two_places_are_an_error():
    def forward(m, x):
        m.kept["a"].add_(1)
        return x + m.kept["b"][0]

    tensor = torch.zeros(3)
    model = anyjax.from_torch(Keeps(lambda: {"a": tensor, "b": [tensor]}, forward))
    with pytest.raises(Unsupported, match=r"a tensor that is kept\.a and kept\.b\.0"):
        model(X)


def test_names_that_are_taken():
    def scaled(factor):
        layer = torch.nn.Linear(3, 3)
        return lambda x: layer(x) * factor

    train, forward = scaled(2), torch.nn.Linear(3, 3)
    layer = torch.nn.Linear(3, 3)
    function = lambda x: train(x) + layer(x) + forward(x)
    model = anyjax.from_torch(function)
    names = {name.partition(".")[0] for name in model.params}
    assert names == {"layer", "layer_", "forward_"}
    assert_close(model(X), function(torch.tensor(X)).detach().numpy())


def test_code_may_count_how_often_it_is_traced():
    seen, calls = [], 0

    def function(x):
        nonlocal calls
        calls += 1
        seen.append(tuple(x.shape))
        return x * 2

    model = anyjax.from_torch(function)
    for _ in range(3):
        assert_close(model(X), 2 * X)
    assert (seen, calls) == ([(2, 3)], 1)


def test_variables_around_a_function():
    def running():
        mean = torch.zeros(3)

        def function(x):
            nonlocal mean
            mean = mean + x.mean(0)
            return x - mean

        return function

    module, model, state = running(), anyjax.from_torch(running()), {}
    for _ in range(3):
        out, state = jax.jit(lambda s: model.apply({}, X, state=s, mutable=True))(state)
        assert_close(out, module(torch.tensor(X)))
    assert sorted(state) == ["mean"]


def test_hooks_that_forward_installs_are_gone_after_it():
    """As transformers installs them for hidden states, and remembers it on the module."""

    class Hooked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, x):
            if not getattr(self, "hooked", False):
                self.layer.register_forward_hook(lambda m, args, out: out * 2)
                self.hooked = True
            return self.layer(x)

    module = Hooked()
    model = anyjax.from_torch(module)
    first, second = (model.apply(model.params, X) for _ in range(2))
    assert_close(first, second)
    assert not module.layer._forward_hooks
    assert_close(first, module(torch.tensor(X)).detach().numpy())


def test_what_is_taken_away_is_an_error():
    def takes(m, x):
        return m.kept.pop() + x if m.kept else x

    model = anyjax.from_torch(Keeps(list, takes))
    assert_close(model(X), X)
    with pytest.raises(Unsupported, match=r"None in the place of the tensor kept\.0"):
        model.apply(model.params, X, state={"kept.0": X}, mutable=True)


class Warm(torch.nn.Module):
    """Counts in its class body, which the first write makes the module's own."""

    calls, rate, warm = 0, 1.0, False
    limit = 3  # nobody writes to it

    def forward(self, x):
        self.calls += 1
        self.warm, self.rate = self.calls > 1, self.rate / 2
        return x * self.calls * self.rate


def test_numbers_of_the_class_are_state():
    module, model, state = Warm(), anyjax.from_torch(Warm()), {}
    for _ in range(3):
        out, state = model.apply({}, X, state=state, mutable=True)
        assert_close(out, module(torch.tensor(X)))
    assert sorted(state) == ["calls", "rate", "warm"]
    assert (Warm.calls, int(state["calls"]), bool(state["warm"])) == (0, 3, True)


def test_numbers_of_the_class_of_a_trainer():
    class Trainer:
        calls = 0

        def __init__(self):
            self.layer = torch.nn.Linear(3, 3)

        def step(self, x):
            self.calls += 1
            return self.layer(x) / self.calls

    trainer = Trainer()
    model = anyjax.from_torch(trainer.step)
    state = model.state
    for _ in range(3):
        out, state = model.apply(model.params, X, state=state, mutable=True)
        assert_close(out, trainer.step(torch.tensor(X)))
