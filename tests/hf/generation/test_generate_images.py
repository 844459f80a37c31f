"""Text from pictures and words: token for token what transformers gives."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers as t

import anyjax
from anyjax.errors import SlowGeneration, Unsupported, WrongArguments
from tests.models import tiny
from tests.tolerance import assert_close

pytestmark = pytest.mark.sample(every=10)

TEXT = tiny.DECODER | dict(vocab_size=120, max_position_embeddings=128)
PICTURE = 100
MROPE = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
QWEN = dict(
    text_config=TEXT | dict(rope_parameters=MROPE),
    image_token_id=PICTURE,
    video_token_id=101,
    vision_start_token_id=102,
    vision_end_token_id=103,
)
PATCHES = dict(
    depth=2, hidden_size=32, num_heads=4, patch_size=4, spatial_merge_size=2, temporal_patch_size=2
)


def llava():
    """One picture of 16 tokens in each of two prompts."""
    config = t.LlavaConfig(
        text_config=t.LlamaConfig(**TEXT),
        vision_config=t.CLIPVisionConfig(**tiny.VISION),
        image_token_index=PICTURE,
        vision_feature_layer=-1,
    )
    words = tiny.ids(6, 2)
    ids = torch.cat([words[:, :2], torch.full((2, 16), PICTURE), words[:, 2:]], 1)
    inputs = {"input_ids": ids, "pixel_values": tiny.noise(2, 3, 32, 32)}
    return t.LlavaForConditionalGeneration(config), inputs


def grids():
    """Two prompts of different lengths with pictures of different sizes."""
    grid = torch.tensor([[1, 4, 6], [1, 4, 4]])
    words, rows = tiny.ids(9, 1)[0], []
    for count, parts in ((9, 6), (5, 4)):
        picture = torch.tensor([102, *[PICTURE] * parts, 103])
        rows.append(torch.cat([words[:2], picture, words[2:count]]))
    size = max(map(len, rows))
    left = lambda row: torch.nn.functional.pad(row, (size - len(row), 0))
    ids = torch.stack([left(row) for row in rows])
    return {
        "input_ids": ids,
        "attention_mask": torch.stack([left(torch.ones_like(row)) for row in rows]),
        "pixel_values": tiny.noise(int(grid.prod(1).sum()), 3 * 2 * 4 * 4),
        "image_grid_thw": grid,
        "mm_token_type_ids": (ids == PICTURE).long(),
    }


def qwen2():
    vision = PATCHES | dict(embed_dim=32, mlp_ratio=2)
    config = t.Qwen2VLConfig(**QWEN, vision_config=vision)
    return t.Qwen2VLForConditionalGeneration(config), grids()


def qwen25():
    vision = PATCHES | dict(
        out_hidden_size=32, intermediate_size=48, window_size=16, fullatt_block_indexes=[1]
    )
    config = t.Qwen2_5_VLConfig(**QWEN, vision_config=vision)
    return t.Qwen2_5_VLForConditionalGeneration(config), grids()


def paligemma():
    """Two prompts of different lengths with a picture of 16 tokens in each."""
    config = t.PaliGemmaConfig(
        text_config=t.GemmaConfig(**TEXT, head_dim=8),
        vision_config=t.SiglipVisionConfig(**tiny.VISION, projection_dim=32),
        image_token_index=PICTURE,
        projection_dim=32,
    )
    ids = torch.cat([torch.full((2, 16), PICTURE), tiny.ids(7, 2)], 1)
    mask = torch.ones_like(ids)
    ids[1, :2], ids[1, 2:18], mask[1, :2] = 0, PICTURE, 0
    given = {"input_ids": ids, "attention_mask": mask, "pixel_values": tiny.noise(2, 3, 32, 32)}
    return t.PaliGemmaForConditionalGeneration(config), given


@functools.cache
def built(make):
    """(torch module, Model, inputs)."""
    torch.manual_seed(0)
    module, given = make()
    with torch.no_grad():
        for parameter in module.eval().parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return module, anyjax.from_torch(module), given


def arrays(given):
    return {k: v.numpy() for k, v in given.items()}


def videos(make):
    """The same model with a video of 8 tokens in each prompt, and a picture in one."""
    module, given = make()
    film, words = torch.tensor([102, *[101] * 8, 103]), tiny.ids(9, 1)[0]
    picture = torch.tensor([102, *[PICTURE] * 4, 103])
    rows = [torch.cat([words[:2], film, words[2:]]), torch.cat([picture, film, words[:3]])]
    ids = torch.stack(rows)
    grid = torch.tensor([[2, 4, 4], [2, 4, 4]])
    return module, {
        "input_ids": ids,
        "pixel_values": given["pixel_values"][:16],
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
        "pixel_values_videos": 2 * tiny.noise(int(grid.prod(1).sum()), 3 * 2 * 4 * 4),
        "video_grid_thw": grid,
        "mm_token_type_ids": (ids == PICTURE).long() + 2 * (ids == 101).long(),
    }


def video2():
    return videos(qwen2)


def video25():
    return videos(qwen25)


@pytest.mark.parametrize("make", [llava, qwen2, qwen25, video2, video25])
def test_pictures_and_videos(make):
    module, model, given = built(make)
    options = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": -1, "pad_token_id": 0}
    want = module.generate(**given, **options).numpy()
    got = anyjax.generate(model, **arrays(given), **options)
    np.testing.assert_array_equal(got, want)
    seen = "pixel_values_videos" if "video_grid_thw" in given else "pixel_values"
    other = given | {seen: 5 - given[seen]}
    want = module.generate(**other, **options).numpy()
    assert (np.asarray(got) != want).any()
    np.testing.assert_array_equal(anyjax.generate(model, **arrays(other), **options), want)


@pytest.mark.parametrize("rows, cached", [(1, True), (1, False), (2, True)])
def test_prompts_without_padding_are_seen_as_a_whole(rows, cached):
    """PaliGemma's tokens see later ones only where no prompt of the batch is padded."""
    module, model, given = built(paligemma)
    given = {k: v[:rows] for k, v in given.items()}
    with torch.no_grad():
        want = module(**given).logits.numpy()
    assert_close(model(**arrays(given)).logits, want, reduction=1024)
    if rows == 1:
        given.pop("attention_mask")
        assert_close(model(**arrays(given)).logits, want, reduction=1024)
    options = dict(max_new_tokens=4, do_sample=False, use_cache=cached, output_logits=True)
    options |= dict(return_dict_in_generate=True, eos_token_id=-1, pad_token_id=0)
    with warnings.catch_warnings():  # without a cache each length is a program
        warnings.simplefilter("default" if cached else "ignore", SlowGeneration)
        got = anyjax.generate(model, **arrays(given), **options)
    for ours, theirs in zip(got.logits, module.generate(**given, **options).logits, strict=True):
        assert_close(ours, theirs.numpy(), reduction=1024)
    with pytest.raises(Unsupported, match="token_type_ids"):
        types = np.zeros_like(given["input_ids"])
        anyjax.generate(model, **arrays(given), token_type_ids=types, use_cache=False)


def test_a_loop_with_prompts_that_are_seen_as_a_whole():
    """Also where nothing was generated before, which tries how the model goes."""
    module, model, given = built.__wrapped__(paligemma)
    ids, picture = given["input_ids"][:1], given["pixel_values"][:1]
    logits, cache = model.cache(30).prefill(model.params, ids.numpy(), pixel_values=picture.numpy())
    token = logits.argmax(-1)
    options = dict(max_new_tokens=2, output_logits=True, return_dict_in_generate=True)
    want = module.generate(ids, pixel_values=picture, do_sample=False, eos_token_id=-1, **options)
    assert_close(logits, want.logits[0].numpy(), reduction=1024)
    assert_close(cache.step(model.params, token)[0], want.logits[1].numpy(), reduction=1024)


@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.filterwarnings("ignore::anyjax.errors.SlowGeneration")
def test_a_picture_that_has_no_tokens(cached):
    """GIT puts its pictures before the text: positions and masks are shorter than what is seen."""
    torch.manual_seed(0)
    vision = t.GitVisionConfig(**tiny.VISION).to_dict()
    shape = {k: TEXT[k] for k in ("vocab_size", "hidden_size", "intermediate_size")}
    config = t.GitConfig(vision_config=vision, **shape, num_hidden_layers=2, num_attention_heads=4)
    module = t.GitForCausalLM(config).eval()
    options = dict(max_new_tokens=4, do_sample=False, use_cache=cached, output_logits=True)
    options |= dict(return_dict_in_generate=True, eos_token_id=-1, pad_token_id=0)
    given = {"input_ids": tiny.ids(6, 1), "pixel_values": tiny.noise(1, 3, 32, 32)}
    got = anyjax.generate(anyjax.from_torch(module), **arrays(given), **options)
    for ours, theirs in zip(got.logits, module.generate(**given, **options).logits, strict=True):
        assert_close(ours, theirs.numpy(), reduction=1024)


def test_one_prompt_without_a_picture():
    module, model, given = built(qwen2)
    ids = given["input_ids"][1:, -4:]
    want = module.generate(ids, max_new_tokens=5, do_sample=False).numpy()
    np.testing.assert_array_equal(
        anyjax.generate(model, ids.numpy(), max_new_tokens=5, do_sample=False), want
    )


@pytest.mark.filterwarnings("ignore::anyjax.errors.StateDropped")  # of positions, for later calls
@pytest.mark.filterwarnings("ignore::anyjax.errors.StaticArgument")
@pytest.mark.parametrize("make", [llava, qwen2, video2])
def test_as_many_tokens_as_parts_of_the_picture(make):
    _, model, given = built(make)
    ids = given["input_ids"].clone()
    ids[-1, (ids[-1] == (101 if make is video2 else PICTURE)).nonzero()[0]] = 7
    with pytest.raises(WrongArguments, match="pixel_values"):
        anyjax.generate(model, **arrays(given | {"input_ids": ids}), max_new_tokens=3)
    ids, rest = ids.numpy(), arrays(given)
    first = rest.pop("input_ids")
    with pytest.raises(ValueError, match="do not match, tokens"):
        model(input_ids=ids, **rest)
    logits = jax.jit(lambda ids: model.apply(model.params, input_ids=ids, **rest).logits)
    assert jnp.isnan(logits(ids)).all() and not jnp.isnan(logits(first)).any()


@pytest.mark.parametrize("make", [qwen2, video2])
def test_a_loop_with_pictures(make):
    _, model, given = built(make)
    given = {"attention_mask": np.ones_like(given["input_ids"])} | arrays(given)
    options = {"max_new_tokens": 5, "do_sample": False, "eos_token_id": -1, "pad_token_id": 0}
    want = anyjax.generate(model, **given, **options)
    ids, mask = given.pop("input_ids"), given.pop("attention_mask")
    logits, cache = model.cache(ids.shape[1] + 5).prefill(model.params, ids, mask, **given)

    def step(carry, _):
        logits, cache = carry
        token = logits.argmax(-1)
        return cache.step(model.params, token), token

    tokens = jax.lax.scan(step, (logits, cache), length=5)[1]
    np.testing.assert_array_equal(tokens.T, want[:, -5:])
