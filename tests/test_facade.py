"""Names of the facade: what it lists, and what it says of names that it has not."""

import importlib

import pytest

import anyjax


def test_dir_lists_the_parts():
    listed = dir(anyjax)
    parts = {"train", "flax", "transforms", "parallel", "export", "hf", "errors"}
    assert parts | {*anyjax.__all__} <= {*listed}
    assert "functools" not in listed


@pytest.mark.parametrize(
    ("name", "near"),
    [("trian", "train"), ("from_pretrain", "from_pretrained"), ("quantise", "transforms.quantize")],
)
def test_wrong_names(name, near):
    with pytest.raises(AttributeError, match=f"did you mean .*{near}") as raised:
        getattr(anyjax, name)
    assert "transforms" in str(raised.value)


def test_a_name_like_no_other():
    with pytest.raises(AttributeError, match=r"'zzz'\. It has Cache"):
        anyjax.zzz


def test_names_that_lie_elsewhere_are_there():
    for place in anyjax._ELSEWHERE.values():
        home, _, name = place.partition(".")
        if home == "Model":
            continue
        pytest.importorskip({"flax": "flax", "train": "optax"}.get(home, "jax"))
        assert hasattr(importlib.import_module(f"anyjax.{home}"), name), place


INSTEAD = {
    "bind": "with_params", "load_state_dict": "with_params", "forward": "model.apply",
    "predict": "model.apply", "parameters": "model.params",
    "state_dict": "model.state", "to": "jax.device_put", "replace": "with_state",
}  # fmt: skip


@pytest.mark.parametrize("name", INSTEAD)
def test_names_of_other_libraries(name):
    model = anyjax.Model({}, {}, None)
    with pytest.raises(AttributeError, match=f"no attribute '{name}'; .*{INSTEAD[name]}"):
        getattr(model, name)
    assert not hasattr(model, name)
