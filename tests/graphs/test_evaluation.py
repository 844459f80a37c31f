"""Keys of one evaluation."""

from types import SimpleNamespace

import jax
import pytest

from anyjax.errors import DataDependent, MissingRng, Unsupported
from anyjax.graphs.evaluation import Evaluation

NODE = SimpleNamespace(op="Normal")


def test_every_draw_has_a_key_of_its_own():
    draws, fresh = Evaluation(jax.random.key(0)), Evaluation(jax.random.key(0))
    first, second = (jax.random.key_data(draws.key(NODE)).tolist() for _ in range(2))
    assert first != second and jax.random.key_data(fresh.key(NODE)).tolist() == first


def test_no_key():
    with pytest.raises(MissingRng, match=r"Normal draws[\s\S]*rng=jax\.random\.key"):
        Evaluation().key(NODE)


def test_an_error_has_the_innermost_place_alone():
    inner, outer = Evaluation(), Evaluation()
    for error in (Unsupported("it", do="that"), ValueError("it")):
        with pytest.raises(type(error)) as caught:
            try:
                inner.fail(error, lambda: "node 'a'", " of the graph")
            except Exception as same:
                outer.fail(same, lambda: "node 'b'", " of the graph")
        assert caught.value is error
        text = "\n".join([str(error), *getattr(error, "__notes__", ())])
        assert "node 'a'" in text and "node 'b'" not in text


def test_a_traced_value_that_is_read_becomes_an_error_of_ours():
    run = Evaluation()

    def program(x):
        run.origins.enter([x], [frozenset(["x"])])
        try:
            return int(x)
        except jax.errors.ConcretizationTypeError as error:
            run.fail(error, lambda: "node 'a'")

    with pytest.raises(DataDependent, match="x decided it") as caught:
        jax.jit(program)(3)
    assert caught.value.arguments == ("x",) and "node 'a'" in str(caught.value)
