"""Arrays whose values decide what a model computes, static wherever a model is called."""

import jax
import numpy as np
import optax
import pytest
import torch

import anyjax
from anyjax.calls import layouts
from anyjax.errors import (
    DataDependent,
    ManyCompilations,
    StaticArgument,
    WrongArguments,
    WrongBatch,
)

X = np.arange(12, dtype=np.float32).reshape(6, 2)
COUNTS, OTHERS = np.array([1, 2, 3]), np.array([4, 1, 1])


class Groups(torch.nn.Module):
    """Sums rows by groups of these lengths, scales them, and shifts where the flags say."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, rows, counts, flags=None, double=False):
        out = torch.stack([part.sum(0) for part in rows.split(counts.tolist())]) * self.weight
        if flags is not None and flags.tolist()[0]:
            out = out + 1
        return out * 2 if double else out


@pytest.fixture
def model():
    return anyjax.from_torch(Groups())


def reference(counts, shift=0.0):
    return np.stack([part.sum(0) for part in np.split(X, np.cumsum(counts)[:-1])]) + shift


def test_jit_grad_and_vmap_take_the_batch(model):
    flags = np.array([True, False])
    batch = anyjax.static(model, {"rows": X, "counts": COUNTS, "flags": flags, "double": True})
    assert batch["rows"] is X and not jax.tree.leaves({**batch, "rows": None})
    traces = []

    @jax.jit
    def run(params, batch):
        traces.append(1)
        return model.apply(params, **batch)

    np.testing.assert_allclose(run(model.params, batch), 2 * reference(COUNTS, 1), rtol=1e-6)
    again = anyjax.static(model, {"rows": X + 1, "counts": COUNTS, "flags": flags, "double": True})
    run(model.params, again)
    assert len(traces) == 1
    other = {**batch, **anyjax.static(model, {"rows": X, "counts": OTHERS, "flags": ~flags})}
    np.testing.assert_allclose(run(model.params, other), 2 * reference(OTHERS), rtol=1e-6)
    assert len(traces) == 2
    slope = jax.grad(lambda p: model.apply(p, **batch).sum())(model.params)
    np.testing.assert_allclose(slope["weight"], 2 * X.sum(0))
    rows = np.stack([X, X + 1])
    out = jax.vmap(lambda rows: model.apply(model.params, **{**batch, "rows": rows}))(rows)
    by_hand = model.apply(model.params, X + 1, COUNTS, flags, double=True)
    np.testing.assert_allclose(out[1], by_hand, rtol=1e-6)


def test_positions_and_floats(model):
    batch = anyjax.static(model, (X, COUNTS))
    np.testing.assert_allclose(jax.jit(model.apply)(model.params, *batch), reference(COUNTS))
    np.testing.assert_allclose(model(*batch), reference(COUNTS))
    with pytest.raises(WrongArguments, match="got a ndarray as its batch"):
        anyjax.static(model, X)
    by_float = anyjax.from_torch(lambda x, n: x[: int(n)])
    with pytest.raises(DataDependent, match="needs the values of n"):
        anyjax.static(by_float, (X, np.float32(2)))


def test_a_refusal_names_all_that_decide(model):
    batch = {"rows": X, "counts": COUNTS, "flags": np.array([True])}
    with pytest.raises(DataDependent, match=r"what decides \(counts\), and") as caught:
        jax.jit(model.apply)(model.params, **batch)
    assert "anyjax.static(model, batch)" in caught.value.do
    anyjax.static(model, batch)
    with pytest.raises(DataDependent, match=r"what decides \(counts, flags\), and"):
        jax.jit(model.apply)(model.params, **batch)


def test_one_notice_for_a_call(model):
    with pytest.warns(StaticArgument) as caught:
        out = model(X, COUNTS, np.array([True]))
    assert len(caught) == 1 and str(caught[0].message).startswith("counts, flags: the values")
    np.testing.assert_allclose(out, reference(COUNTS, 1))


def squared(model, batch):
    return (model(batch["rows"], *batch["by"]) ** 2).mean()


@pytest.mark.filterwarnings("ignore::anyjax.errors.StaticArgument")
def test_training_and_evaluation_take_them_as_they_are(model):
    step = anyjax.train.make_step(squared, optax.sgd(1e-3))
    state = anyjax.train.TrainState.create(model, optax.sgd(1e-3))
    batch = {"rows": X, "by": (COUNTS, np.array([True]))}
    want = (reference(COUNTS, 1) ** 2).mean()
    for expected in (1, 1, 2):
        state, metrics = step(state, batch)
        assert step.compilations == expected
        if expected == 1:
            batch = {"rows": X, "by": (COUNTS.copy(), np.array([True]))}
        if state.step == 1:
            np.testing.assert_allclose(metrics["loss"], want, rtol=1e-6)
        if state.step == 2:
            batch = {"rows": X, "by": (OTHERS, np.array([False]))}
    loss = anyjax.train.evaluate(model, [batch, batch], squared)["loss"]
    np.testing.assert_allclose(loss, (reference(OTHERS) ** 2).mean(), rtol=1e-6)


def test_a_step_takes_what_is_static(model):
    step = anyjax.train.make_step(lambda model, batch: model(**batch).sum(), optax.sgd(0.0))
    state = anyjax.train.TrainState.create(model, optax.sgd(0.0))
    batches = [{"rows": X, "counts": COUNTS}, {"rows": X, "counts": OTHERS}]
    for batch in batches:
        state, metrics = step(state, anyjax.static(model, batch))
        np.testing.assert_allclose(metrics["loss"], X.sum())
    with pytest.raises(WrongBatch, match="another kind"):
        step(state, {"rows": X, "counts": COUNTS[None]})


def test_a_step_cannot_read_values_of_floats():
    by_float = anyjax.from_torch(lambda x, n: x[: int(n)])
    step = anyjax.train.make_step(lambda model, batch: model(*batch).sum(), optax.sgd(0.1))
    state = anyjax.train.TrainState.create(by_float, optax.sgd(0.1))
    with pytest.raises(DataDependent, match="needs the values of n"):
        step(state, (X, np.float32(2)))


@pytest.mark.filterwarnings("ignore::anyjax.errors.StaticArgument")
def test_saved_with_the_values(model, tmp_path):
    model.save(tmp_path / "a", X, COUNTS, np.array([True]), platforms=("cpu",))
    loaded = anyjax.load(tmp_path / "a")
    out = loaded(X + 1, COUNTS, np.array([True]))
    np.testing.assert_allclose(out, reference(COUNTS, 1) + COUNTS[:, None])
    with pytest.raises(WrongArguments, match="counts has other values"):
        loaded(X, OTHERS, np.array([True]))
    batch = anyjax.static(loaded, (X, COUNTS, np.array([True])))
    np.testing.assert_allclose(jax.jit(loaded.apply)(loaded.params, *batch), reference(COUNTS, 1))
    with pytest.raises(DataDependent, match="needs the values of counts, flags"):
        jax.jit(loaded.apply)(loaded.params, X, COUNTS, np.array([True]))


@pytest.mark.filterwarnings("ignore::anyjax.errors.StaticArgument")
def test_every_layout_of_former_calls_is_saved(model, tmp_path):
    for counts in (COUNTS, OTHERS):
        model(X, counts)
    model.save(tmp_path / "a", platforms=("cpu",))
    loaded = anyjax.load(tmp_path / "a")
    for counts in (COUNTS, OTHERS):
        np.testing.assert_allclose(loaded(X, counts), reference(counts))


@pytest.mark.filterwarnings("ignore::anyjax.errors.StaticArgument")
def test_open_sizes_beside_known_values(tmp_path):
    model = anyjax.from_torch(lambda x, shape: x.reshape(-1, *shape.tolist()))
    model.save(tmp_path / "a", X, np.array([2, 1]), shapes={"x": "n, 2"}, platforms=("cpu",))
    assert anyjax.load(tmp_path / "a")(X[:3], np.array([2, 1])).shape == (3, 2, 1)


def test_many_layouts(model):
    with pytest.warns(ManyCompilations, match="compiled for 16 layouts"):
        for i in range(layouts.MANY):
            batch = anyjax.static(model, (np.zeros((40, 2), np.float32), np.array([i, 40 - i])))
            jax.eval_shape(lambda batch: model.apply(model.params, *batch), batch)


def test_no_open_sizes_of_what_decides(tmp_path):
    model = anyjax.from_torch(lambda x, counts: x.repeat(int(counts.max()), 1))
    with pytest.raises(DataDependent, match="the values of counts"):
        model.save(tmp_path / "a", X, COUNTS, shapes={"counts": "n"}, platforms=("cpu",))
    model.save(tmp_path / "a", X, COUNTS, shapes={"x": "n, 2"}, platforms=("cpu",))
