"""Compiled programs of saved models: used here, refused elsewhere, tried before they are kept."""

import functools
import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import (
    BadCheckpoint,
    MissingDependency,
    NotWritten,
    UnusedExecutables,
    WrongArguments,
)
from anyjax.numerics import attention
from anyjax.numerics.attention import KERNELS
from anyjax.saved import executables
from anyjax.saved.folder import digest
from anyjax.saved.metadata import text_of
from tests.models import tiny
from tests.tolerance import assert_close


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache folder of the user's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def saved(tmp_path, cache):
    """A model, a folder with its compiled programs, and the example."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(3, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2)
    model = anyjax.from_torch(torch.nn.Sequential(*layers).eval())
    x = np.ones((4, 3), np.float32)
    model.save(tmp_path / "net", x, shapes={"input": "batch, 3"}, executables=True)
    return model, tmp_path / "net", x


def compilations(function, caplog):
    """What XLA compiles during a call."""
    with jax.log_compiles(), caplog.at_level("WARNING"):
        caplog.clear()
        function()
    return [x.message for x in caplog.records if "Finished XLA compilation" in x.message]


def test_the_first_call_compiles_nothing(saved, caplog):
    model, folder, x = saved
    loaded = anyjax.load(folder)
    assert compilations(lambda: loaded(x), caplog) == []
    assert_close(loaded(x), model(x), reduction=8)
    portable = anyjax.load(folder, executables=False)
    assert compilations(lambda: portable(x), caplog)
    assert_close(portable(x), model(x), reduction=8)


def test_integers_of_64_bits_compile_nothing(tmp_path, cache, caplog):
    model = anyjax.from_torch(torch.nn.Embedding(5, 3))
    ids = np.array([[1, 4]], np.int64)  # numpy's default, which JAX narrows
    model.save(tmp_path / "net", ids, executables=True)
    loaded = anyjax.load(tmp_path / "net")
    assert compilations(lambda: loaded(ids), caplog) == []
    np.testing.assert_array_equal(loaded(ids), model(ids))


def test_other_sizes_and_transformations_use_the_portable_program(saved):
    model, folder, x = saved
    loaded = anyjax.load(folder)
    for rows in (2, 7):
        other = np.ones((rows, 3), np.float32)
        assert_close(loaded(other), model(other), reduction=8)
    loss = lambda params: (loaded.apply(params, x) ** 2).sum()
    grads, expected = (
        jax.grad(loss)(loaded.params),
        jax.grad(lambda params: (model.apply(params, x) ** 2).sum())(model.params),
    )
    for name, grad in grads.items():
        np.testing.assert_allclose(grad, expected[name], rtol=1e-5)
    jitted = jax.jit(lambda x: loaded(x))
    np.testing.assert_allclose(jitted(x), model(x), rtol=1e-6)
    doubled = loaded.with_params({k: 2 * v for k, v in loaded.params.items()})
    twice = model.with_params({k: 2 * v for k, v in model.params.items()})
    assert_close(doubled(x), twice(x), reduction=8)
    device = jax.devices()[1]
    moved = jax.device_put(loaded, device)
    assert moved(jax.device_put(x, device)).devices() == {device}


@pytest.mark.parametrize("entry", ["jaxlib", "processor", "flags"])
def test_another_machine_compiles_and_says_so(saved, entry):
    model, folder, x = saved
    about = json.loads((folder / "model.json").read_text())
    about["executables"]["machine"][entry] = "another"
    (folder / "model.json").write_text(text_of(about))
    with pytest.warns(UnusedExecutables, match=f"{entry} 'another', here"):
        loaded = anyjax.load(folder)
    assert not loaded.source.executables
    assert_close(loaded(x), model(x), reduction=8)


def test_programs_of_others_are_not_run_unless_they_are_trusted(saved, cache):
    model, folder, x = saved
    secret = cache / "anyjax" / "executables.secret"
    assert oct(secret.stat().st_mode)[-3:] == "600"
    secret.write_bytes(os.urandom(32))
    with pytest.warns(UnusedExecutables, match="made by another user"):
        assert not anyjax.load(folder).source.executables
    secret.unlink()
    with pytest.warns(UnusedExecutables, match="made by another user"):
        assert not anyjax.load(folder).source.executables
    loaded = anyjax.load(folder, executables=True)
    assert loaded.source.executables
    assert_close(loaded(x), model(x), reduction=8)


@pytest.mark.parametrize("secret", ["short", "readable by others"])
def test_what_others_may_know_is_no_secret(saved, cache, secret):
    model, folder, x = saved
    file = cache / "anyjax" / "executables.secret"
    if secret == "short":  # as a full disk leaves it behind
        file.write_bytes(b"")
    else:
        file.chmod(0o644)
    with pytest.warns(UnusedExecutables, match="made by another user"):
        assert not anyjax.load(folder).source.executables
    model.save(folder, x, executables=True)  # with a new one
    assert file.stat().st_size >= executables.BYTES and not file.stat().st_mode & 0o077
    assert anyjax.load(folder).source.executables


def test_a_program_is_of_its_model_and_place(saved, tmp_path):
    model, folder, x = saved
    twice = anyjax.from_torch(lambda x: x * 2)
    twice.save(tmp_path / "twice", x, executables=True)
    (folder / "call-0.exe").write_bytes((tmp_path / "twice" / "call-0.exe").read_bytes())
    about = json.loads((folder / "model.json").read_text())
    about["executables"] = json.loads((tmp_path / "twice" / "model.json").read_text())[
        "executables"
    ]
    about["sha256"]["call-0.exe"] = digest(folder / "call-0.exe")
    (folder / "model.json").write_text(text_of(about))
    with pytest.warns(UnusedExecutables, match="of another model"):
        loaded = anyjax.load(folder)
    assert_close(loaded(x), model(x), reduction=8)


def test_a_program_that_fits_and_cannot_be_loaded_is_an_error(saved, monkeypatch):
    _, folder, _ = saved
    monkeypatch.setattr(executables, "_code", lambda *_: "")
    about = json.loads((folder / "model.json").read_text())
    (folder / "call-0.exe").write_bytes(b"no program")
    about["sha256"]["call-0.exe"] = digest(folder / "call-0.exe")
    about["executables"]["files"]["call-0"] = ""
    (folder / "model.json").write_text(text_of(about))
    with pytest.raises(BadCheckpoint, match=r"call-0 in .* cannot be loaded"):
        anyjax.load(folder)


def test_a_changed_program_is_an_error(saved):
    _, folder, _ = saved
    data = bytearray((folder / "call-0.exe").read_bytes())
    data[100] ^= 1
    (folder / "call-0.exe").write_bytes(bytes(data))
    with pytest.raises(BadCheckpoint, match=r"call-0.exe is damaged"):
        anyjax.load(folder)


def test_what_crashes_when_it_is_loaded_is_not_saved(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(executables, "CHECK", "import os; os.abort()")
    model = anyjax.from_torch(torch.nn.Linear(3, 2))
    with pytest.raises(NotWritten, match="does not run when it is loaded again"):
        model.save(tmp_path / "net", np.ones((4, 3), np.float32), executables=True)
    assert not (tmp_path / "net").exists()


def test_dropout_takes_its_key(tmp_path, cache):
    model = anyjax.from_torch(torch.nn.Dropout(0.5)).train()
    x, key = np.ones((4, 30), np.float32), jax.random.key(3)
    model.save(tmp_path / "net", x, rng=key, executables=True)
    loaded = anyjax.load(tmp_path / "net")
    np.testing.assert_array_equal(loaded(x, rng=key), model(x, rng=key))
    other = loaded(x, rng=jax.random.key(4))
    assert not bool(jnp.array_equal(other, loaded(x, rng=key)))


def test_a_decoding_loop_compiles_nothing(tmp_path, cache, caplog):
    model = anyjax.from_torch(tiny.llama())
    ids, options = tiny.ids(6).numpy(), {"max_new_tokens": 4, "do_sample": False}
    model.save(tmp_path / "llama", ids, use_cache=False, generate=options, executables=True)
    loaded = anyjax.load(tmp_path / "llama")
    tokens = []
    assert compilations(lambda: tokens.append(anyjax.generate(loaded, ids)), caplog) == []
    np.testing.assert_array_equal(tokens[0], anyjax.generate(model, ids, **options))


def test_the_entry_of_this_machine_is_taken_of_several(saved, caplog):
    """As of a folder with programs for chips that are elsewhere."""
    _, folder, x = saved
    about = json.loads((folder / "model.json").read_text())
    here = about["executables"]
    other = here | {"chips": "v6e-4", "machine": here["machine"] | {"platform": "tpu"}}
    (folder / "call-0.v6e-4.exe").write_bytes((folder / "call-0.exe").read_bytes())
    about["sha256"]["call-0.v6e-4.exe"] = about["sha256"]["call-0.exe"]
    for entries in ([other, here], [other]):
        about["executables"] = entries
        (folder / "model.json").write_text(text_of(about))
        if here in entries:
            assert compilations(functools.partial(anyjax.load(folder), x), caplog) == []
        else:
            with pytest.warns(UnusedExecutables, match="platform 'tpu', here 'cpu'"):
                assert not anyjax.load(folder).source.executables
    del about["sha256"]["call-0.v6e-4.exe"]
    (folder / "model.json").write_text(text_of(about))
    with pytest.raises(BadCheckpoint, match="does not name the files"):
        anyjax.load(folder)


def test_chips_must_be_such_as_the_programs_run_on(tmp_path, monkeypatch):
    model = anyjax.from_torch(torch.nn.Linear(3, 2))
    x = np.ones((4, 3), np.float32)
    with pytest.raises((MissingDependency, WrongArguments)):
        model.save(tmp_path / "net", x, executables="v6e-4", platforms=("cpu",))
    with pytest.raises(WrongArguments, match="no compiler for cpu-4"):
        model.save(tmp_path / "net", x, executables=("cpu-4",))
    assert not (tmp_path / "net").exists()


def test_long_prompts_in_bfloat16_are_saved_for_all_platforms(tmp_path):
    """With a GPU's kernel of attention, which JAX exports only where it is told to."""
    model = anyjax.from_torch(
        torch.nn.MultiheadAttention(64, 2, batch_first=True).bfloat16().eval()
    )
    x = np.ones((1, 256, 64), jnp.bfloat16)
    call = dict(query=x, key=x, value=x, need_weights=False)
    model.save(tmp_path / "net", **call)
    assert KERNELS[0].encode() in (tmp_path / "net" / "call-0.jax").read_bytes()
    out, told = anyjax.load(tmp_path / "net")(**call)[0], model(**call)[0]
    np.testing.assert_array_equal(np.asarray(out), np.asarray(told))


def test_no_kernel_that_a_device_makes_is_in_blocks():
    query = jax.ShapeDtypeStruct((1, 2, 256, 64), jnp.bfloat16)
    attend = lambda x: attention.attend(attention.form_of(x, causal=True), x, x, x)
    lowered = lambda: jax.jit(attend).trace(query).lower(lowering_platforms=("cuda",)).as_text()
    assert KERNELS[0] in lowered()
    with attention.in_blocks():
        assert (
            "fmha"
            not in jax.export.export(jax.jit(lambda x: attend(x)), platforms=("cuda",))(
                query
            ).mlir_module()
        )
