"""Diffusers' models, and their denoising loop as one program."""

import diffusers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import anyjax
from tests.sampling import further

SIZE = (2, 4, 8, 8)


def unet():
    return diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1,
        block_out_channels=(16, 32), down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), cross_attention_dim=16,
        attention_head_dim=8, norm_num_groups=8,
    )  # fmt: skip


def dit():
    return diffusers.DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=8,
        num_layers=2, sample_size=8, norm_num_groups=4,
    )  # fmt: skip


def autoencoder():
    return diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(16, 32), norm_num_groups=8, latent_channels=4, sample_size=16,
    )  # fmt: skip


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


CASES = {
    "unet": (unet, lambda: (noise(*SIZE), torch.tensor(7), noise(2, 5, 16))),
    "dit": (dit, lambda: (noise(*SIZE), torch.tensor([3, 5]), torch.tensor([1, 2]))),
    "autoencoder": (autoencoder, lambda: (noise(1, 3, 16, 16),)),
}


@pytest.mark.parametrize("case", ["unet", *further("dit", "autoencoder")])
def test_values_and_gradients(case):
    make, inputs = CASES[case]
    torch.manual_seed(0)
    module, given = make().eval(), inputs()
    want = module(*given).sample
    model = anyjax.from_torch(module)
    np.testing.assert_allclose(model(*given).sample, want.detach(), rtol=1e-4, atol=1e-5)
    (want**2).mean().backward()
    grads = jax.jit(jax.grad(lambda p: (model.apply(p, *given).sample ** 2).mean()))(model.params)
    largest = max(float(p.grad.abs().max()) for p in module.parameters() if p.grad is not None)
    for name, p in module.named_parameters():
        if p.grad is not None:
            np.testing.assert_allclose(grads[name], p.grad, rtol=1e-3, atol=1e-4 * largest)


PLAIN = "FlowMatchEulerDiscreteScheduler"


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # diffusers' own
@pytest.mark.parametrize("kind", [PLAIN, *further("DDIMScheduler", "EulerDiscreteScheduler")])
def test_denoising_is_one_loop(kind):
    """The scheduler's own step, converted; its counter is the loop's. DDIM and Euler branch on
    values that come from it.
    """
    torch.manual_seed(0)
    module = unet().eval()
    start, context = noise(*SIZE), noise(2, 5, 16)
    scheduler = getattr(diffusers, kind)()
    scheduler.set_timesteps(6)
    sample = start
    with torch.no_grad():
        for time in scheduler.timesteps:
            out = module(sample, time, context).sample
            sample = scheduler.step(out, time, sample).prev_sample

    def step(sample, i, context):
        scheduler._step_index = i
        time = scheduler.timesteps[i]
        out = module(sample, time, context).sample
        return scheduler.step(out, time, sample).prev_sample

    model = anyjax.from_torch(step)

    @jax.jit
    def denoise(params, sample, context):
        body = lambda i, sample: model.apply(params, sample, i, context)
        return jax.lax.fori_loop(0, 6, body, sample)

    began = jnp.asarray(start.numpy())
    got = denoise(model.params, began, context.numpy())
    np.testing.assert_allclose(got, sample, rtol=1e-3, atol=1e-4)
    jaxpr = str(jax.make_jaxpr(denoise)(model.params, began, context.numpy()))
    assert jaxpr.count("scan[") + jaxpr.count("while[") == 1
    assert ("cond[" in jaxpr) == (kind != PLAIN)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # diffusers' own
@pytest.mark.parametrize("kind", further("DPMSolverMultistepScheduler", "EulerDiscreteScheduler"))
def test_schedulers_as_they_are_keep_their_state_in_the_loop(kind):
    """The loop carries it, after two steps in which DPM-Solver++ gets its earlier outputs."""
    torch.manual_seed(0)
    module, steps = unet().eval(), 8
    start, context = noise(*SIZE), noise(2, 5, 16)

    def prepared():
        scheduler = getattr(diffusers, kind)()
        scheduler.set_timesteps(steps)
        scheduler.set_begin_index(0)
        return scheduler

    def stepping(scheduler):
        def step(sample, i, context):
            time = scheduler.timesteps[i]
            out = module(scheduler.scale_model_input(sample, time), time, context).sample
            return scheduler.step(out, time, sample).prev_sample

        return step

    by_torch, sample = stepping(prepared()), start
    with torch.no_grad():
        for i in range(steps):
            sample = by_torch(sample, i, context)

    scheduler = prepared()
    model = anyjax.from_torch(stepping(scheduler))

    @jax.jit
    def denoise(params, sample, context):
        step = lambda i, carry: model.apply(
            params, carry[0], i, context, state=carry[1], mutable=True
        )
        return jax.lax.fori_loop(2, steps, step, step(1, step(0, (sample, model.state))))

    got, state = denoise(model.params, jnp.asarray(start.numpy()), context.numpy())
    np.testing.assert_allclose(got, sample, rtol=1e-3, atol=1e-4 * float(sample.abs().max()))
    assert int(state["scheduler._step_index"]) == steps
    assert scheduler.step_index is None
