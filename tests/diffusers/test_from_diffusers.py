"""Pipelines in JAX beside diffusers' own, with the same noise."""

import inspect
import sys

import jax
import numpy as np
import peft
import pytest
import torch

import anyjax
from anyjax.errors import MissingRng, WrongArguments, WrongValue
from anyjax.transforms.rolling.rolled import trace_call
from tests.diffusers.cases import CASES, SCHEDULERS, noise, scheduler
from tests.diffusers.pipelines import smallest, stable_diffusion
from tests.sampling import further

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
STEPS = 6


def wave(shape, *args, dtype=None, **kwargs):
    return torch.cos(torch.arange(float(np.prod(shape)))).reshape(tuple(shape)).to(dtype)


LATENTS = noise(1, 4, 8, 8)


@pytest.fixture(scope="module")
def pair():
    theirs = smallest()
    return theirs, anyjax.from_diffusers(theirs)


def test_a_prompt_gives_the_picture_of_diffusers(pair):
    theirs, ours = pair
    for prompt in ("a cat", "a low river"):
        options = dict(latents=LATENTS, num_inference_steps=STEPS)
        want = theirs(prompt, output_type="pt", **options).images
        got = ours(prompt, output_type="pt", **options)
        assert type(got).__name__ == "StableDiffusionPipelineOutput"
        np.testing.assert_allclose(got.images, want, atol=1e-5)
    assert len(ours.model.source.cache.calls) == 1  # the second prompt compiled nothing


def test_pictures_come_in_diffusers_forms(pair):
    theirs, ours = pair
    options = dict(latents=LATENTS, num_inference_steps=STEPS)
    for kind in ("pil", "np", "latent"):
        want = theirs("a cat", output_type=kind, **options).images
        got = ours("a cat", output_type=kind, **options).images
        assert type(got) is type(want)
        got, want = np.asarray(got[0], float), np.asarray(want[0], float)
        assert np.abs(got - want).max() <= (1 if kind == "pil" else 1e-5 * np.abs(want).max())
    assert isinstance(ours("a cat", output_type="jax", **options).images, jax.Array)
    with pytest.raises(WrongValue, match="output_type='gif'"):
        ours("a cat", output_type="gif", **options)


def test_gradients_are_those_of_torch(pair):
    """Beside the pipeline's code without the ``torch.no_grad`` around it."""
    theirs, ours = pair
    options = dict(num_inference_steps=2, output_type="pt")
    call = inspect.unwrap(type(theirs).__call__)
    (call(theirs, "a cat", latents=LATENTS, **options).images ** 2).sum().backward()
    picture = lambda p: ours.apply(p, "a cat", latents=LATENTS.numpy(), **options).images
    gradients = jax.jit(jax.grad(lambda p: (picture(p) ** 2).sum()))(ours.params)
    for component in ("unet", "vae", "text_encoder"):
        for name, p in getattr(theirs, component).named_parameters():
            if p.grad is not None:
                want, p.grad = p.grad, None
                scale = float(want.abs().max())
                got = gradients[f"{component}.{name}"]
                np.testing.assert_allclose(got, want, atol=1e-3 * scale + 1e-5)
    assert float(abs(gradients["text_encoder.embeddings.token_embedding.weight"]).max()) > 0


@pytest.mark.conformance
def test_vmap_over_seeds(pair):
    _, ours = pair
    keys = jax.random.split(jax.random.key(0), 2)
    picture = lambda key: ours.apply(ours.params, "a cat", steps=2, rng=key).images[0]
    got = jax.jit(jax.vmap(picture))(keys)
    np.testing.assert_allclose(got[1], picture(keys[1]), atol=1e-5)
    assert float(abs(got[0] - got[1]).max()) > 1e-3


def test_components_are_models(pair):
    theirs, ours = pair
    context = noise(1, 5, 16)
    want = theirs.unet(LATENTS, 7, context).sample
    zeros = ours.with_params({k: 0 * x for k, x in ours.params.items()})
    np.testing.assert_allclose(ours.unet(LATENTS, 7, context).sample, want.detach(), atol=1e-5)
    assert float(abs(zeros.unet(LATENTS, 7, context).sample).max()) == 0
    with pytest.raises(AttributeError, match="no module transformer"):
        _ = ours.transformer


def test_a_pipeline_is_a_pytree(pair):
    _, ours = pair
    doubled = jax.tree.map(lambda x: x * 2, ours)
    name = "unet.conv_in.bias"
    np.testing.assert_array_equal(doubled.params[name], ours.params[name] * 2)
    assert "StableDiffusionPipeline" in repr(ours)


def test_mistakes(pair):
    _, ours = pair
    with pytest.raises(ValueError, match="Provide either `prompt` or `prompt_embeds`"):
        ours(steps=2)
    with pytest.raises(WrongArguments, match=r"rng=jax\.random\.key"):
        ours("a cat", generator=torch.Generator())
    with pytest.raises(MissingRng):
        ours("a cat", steps=2)
    with pytest.raises(WrongArguments, match="takes a pipeline"):
        anyjax.from_diffusers(3)


@pytest.mark.conformance
def test_progress(pair, capfd):
    _, ours = pair
    options = dict(latents=LATENTS, steps=5, output_type="jax")
    got = ours("a cat", progress=True, **options).images
    np.testing.assert_allclose(got, ours("a cat", **options).images, atol=1e-6)
    assert "5/5" in capfd.readouterr().err


@pytest.mark.conformance
def test_saved_without_torch(pair, tmp_path):
    _, ours = pair
    options = dict(latents=LATENTS.numpy(), steps=2)
    ours.save(tmp_path / "saved", "a cat", **options)
    loaded = anyjax.load(tmp_path / "saved")
    got = loaded(**ours.inputs("a low cat", **options))["images"]
    np.testing.assert_allclose(
        got, ours("a low cat", output_type="jax", **options).images, atol=1e-6
    )


def test_one_program_for_all_guidance_scales(pair):
    theirs, ours = pair
    options = dict(latents=LATENTS, num_inference_steps=3, output_type="pt")
    ours.model.source.cache.calls.clear()
    for scale in (3.5, 6.0):
        want = theirs("a cat", guidance_scale=scale, **options).images
        got = ours("a cat", guidance_scale=np.float32(scale), **options).images
        np.testing.assert_allclose(got, want, atol=1e-5)
    assert len(ours.model.source.cache.calls) == 1


@pytest.mark.conformance
def test_adapters_of_diffusers():
    theirs, config = stable_diffusion(), {"init_lora_weights": False, "target_modules": ["to_q"]}
    theirs.unet.add_adapter(peft.LoraConfig(r=4, **config), "style")
    theirs.unet.eval()
    ours = anyjax.from_diffusers(theirs)
    assert any("lora_A.style" in name for name in ours.params)
    for scale in (1.0, 0.5):
        options = dict(latents=LATENTS, num_inference_steps=3, output_type="pt")
        options["cross_attention_kwargs"] = {"scale": scale}
        want = theirs("a cat", **options).images
        np.testing.assert_allclose(ours("a cat", **options).images, want, atol=1e-5)


@pytest.mark.filterwarnings("ignore::FutureWarning")  # diffusers' own
@pytest.mark.filterwarnings("ignore::anyjax.errors.StaticArgument")  # masks that decide lengths
@pytest.mark.filterwarnings("ignore::anyjax.errors.StateDropped")  # of torch.nn.utils.weight_norm
@pytest.mark.parametrize("name", further(*CASES))
def test_pipelines_give_what_diffusers_gives(name, monkeypatch):
    """With the noise that diffusers draws replaced by a wave, in both."""
    theirs, options = CASES[name].make(), CASES[name].options
    for module in [x for k, x in sys.modules.items() if k.startswith("diffusers.")]:
        if "randn_tensor" in vars(module):
            monkeypatch.setattr(module, "randn_tensor", wave)
    ours = anyjax.from_diffusers(theirs)
    options = options | {"num_inference_steps": 4, "output_type": "pt"}
    want = np.asarray(theirs(**options)[0])
    np.testing.assert_allclose(ours(**options)[0], want, atol=1e-4 * np.abs(want).max())


def program_of(pipe, steps):
    options = pipe.inputs("a cat", latents=LATENTS, steps=steps, output_type="pt")
    source = pipe.model.source
    arrays = jax.tree.map(source.as_array, options)
    return trace_call(source.base, pipe.params, pipe.state, ((), arrays, None), hoist=False)


DRAWN = ("DDPM", "Ancestral", "SDE", "LCM", "TCD", "SASolver")  # the steps draw noise
CERTAIN = [name for name in SCHEDULERS if not any(kind in name for kind in DRAWN)]


@pytest.mark.parametrize("name", ["DPMSolverMultistep", *further(*CERTAIN)])
def test_schedulers_run_as_loops(name):
    theirs = smallest(scheduler(name))
    ours = anyjax.from_diffusers(theirs)
    options = dict(latents=LATENTS, num_inference_steps=20, output_type="pt")
    want = theirs("a cat", **options).images
    np.testing.assert_allclose(ours("a cat", **options).images, want, atol=1e-4)
    program = program_of(ours, 20)
    denoisers = [i for i, e in enumerate(program.program.eqns) if e.params.get("name") == "unet"]
    outside = [i for i in denoisers if not any(x.start <= i < x.end for x in program.loops)]
    assert len(outside) <= 6 < len(denoisers)
