"""Checkpoints as Models: what transformers' own loader gives, array by array, and where it lies."""

import json
import os
import textwrap
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
import transformers
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from safetensors.torch import load_file, save_file

import anyjax
from anyjax.errors import BadCheckpoint, Unsupported, WrongArguments
from anyjax.hf.loading import load
from anyjax.hf.loading.find.checkpoint import stored_in
from anyjax.hf.loading.module.deferred import Reader
from tests.models import tiny
from tests.sampling import further

pytestmark = pytest.mark.sample(every=2)

# gpt2: tied; mixtral: experts are merged; detr: frozen weights; rwkv, mamba: no attention;
# chinese_clip: its class writes zeros into a row of what was loaded
TEXT = ["llama", "gpt2", "mixtral", "t5", "bert", "mamba", "rwkv"]
FAMILIES = [*TEXT, "clip", "chinese_clip", "resnet", "detr"]


def write(name, folder):
    module, inputs = tiny.build(name)
    module.save_pretrained(folder)
    return module, inputs


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    write("llama", folder)
    return folder


def assert_same(got, want):
    assert list(got) == list(want)
    for name in want:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)
        assert got[name].dtype == want[name].dtype, name


@pytest.mark.parametrize("dtype", [None, *further("bfloat16")])
@pytest.mark.parametrize("name", FAMILIES)
def test_arrays_are_those_of_transformers(name, dtype, tmp_path):
    module, _ = write(name, tmp_path)
    model = anyjax.from_pretrained(tmp_path, dtype=dtype)
    want = anyjax.from_torch(type(module).from_pretrained(tmp_path, dtype=dtype or "auto").eval())
    assert_same(model.params, want.params)
    assert_same(model.state, want.state)
    assert type(model.source.module) is type(module)
    assert {p.device.type for p in model.source.module.parameters()} == {"meta"}


@pytest.fixture
def aligned(tmp_path):
    """A checkpoint whose bytes lie so that JAX could use the file's pages, and a copy of them."""
    sizes = dict(hidden_size=64, num_hidden_layers=1, num_attention_heads=4, vocab_size=8192)
    config = transformers.LlamaConfig(**sizes, intermediate_size=64)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    for length in range(0, 64, 8):
        save_file(weights, file, {"format": "pt", "padding": "x" * length})
        if all(not x.offset % 64 for x in stored_in(file).values()):
            return tmp_path, {k: v.clone().numpy() for k, v in weights.items()}
    raise AssertionError("no length of the header aligns the tensors")


def overwrite(file):
    with file.open("r+b") as opened:
        opened.write(bytes(file.stat().st_size))


CHANGES = {
    "deleted": Path.unlink,
    "replaced": lambda file: file.with_name("config.json").replace(file),
    "cut off": lambda file: os.truncate(file, 8),
    "overwritten": overwrite,
}


@pytest.mark.parametrize("change", CHANGES)
def test_arrays_do_not_follow_their_file(change, aligned):
    folder, weights = aligned
    model = anyjax.from_pretrained(folder)
    CHANGES[change](folder / "model.safetensors")
    assert_same(model.params, {k: weights[k] for k in model.params})


def test_donated_arrays_leave_their_file(aligned):
    folder, weights = aligned
    file = folder / "model.safetensors"
    content = file.read_bytes()
    params = anyjax.from_pretrained(folder).params
    double = jax.jit(lambda params: {k: 2 * x for k, x in params.items()}, donate_argnums=0)
    doubled = double(params)
    assert all(x.is_deleted() for x in params.values())
    assert_same(doubled, {k: 2 * weights[k] for k in sorted(params)})
    assert file.read_bytes() == content


def test_experts_are_merged_from_their_own_files(tmp_path):
    module, inputs = tiny.build("mixtral")
    module.save_pretrained(tmp_path, max_shard_size="20KB")
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    experts = [n for n in index if ".experts.1." in n]
    assert experts and len(set(index.values())) > 2
    model = anyjax.from_pretrained(tmp_path)
    assert not set(experts) & set(model.params)
    assert abs(model(**inputs).logits - module(**inputs).logits.detach().numpy()).max() < 1e-4

    file = tmp_path / index[experts[0]]
    save_file({k: v for k, v in load_file(file).items() if k != experts[0]}, file, {"format": "pt"})
    with pytest.raises(BadCheckpoint):
        anyjax.from_pretrained(tmp_path)


def test_generates_without_torch_weights(llama):
    module = transformers.LlamaForCausalLM.from_pretrained(llama).eval()
    model, ids = anyjax.from_pretrained(llama), tiny.ids(7, 2)
    want = module.generate(ids, max_new_tokens=6, do_sample=False, eos_token_id=-1).numpy()
    got = anyjax.generate(model, ids.numpy(), max_new_tokens=6, eos_token_id=-1)
    np.testing.assert_array_equal(got, want)


def test_every_misfit_is_named(llama, tmp_path):
    tensors = load_file(llama / "model.safetensors")
    (tmp_path / "config.json").write_bytes((llama / "config.json").read_bytes())
    gone = [k for k in tensors if "mlp" in k]
    cut = [k for k in tensors if "layernorm" in k]
    kept = {k: v[:3].clone() if k in cut else v for k, v in tensors.items() if k not in gone}
    save_file(kept | {"surplus": torch.ones(1)}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadCheckpoint) as caught:
        anyjax.from_pretrained(tmp_path)
    said = str(caught.value)
    assert all(name in said for name in (*gone, *cut, "surplus"))
    assert f"{cut[0]} is [3], not [32]" in said


def test_nan_is_a_value(llama, tmp_path):
    tensors = load_file(llama / "model.safetensors")
    tensors["model.norm.weight"][0] = float("nan")
    (tmp_path / "config.json").write_bytes((llama / "config.json").read_bytes())
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    assert np.isnan(anyjax.from_pretrained(tmp_path).params["model.norm.weight"][0])


def test_nothing_is_printed_where_there_is_no_terminal(llama, capfd):
    anyjax.from_pretrained(llama)
    assert capfd.readouterr() == ("", "")


def test_code_of_its_own_runs_when_it_is_trusted(tmp_path):
    (tmp_path / "modeling_mine.py").write_text(
        textwrap.dedent("""
        import torch
        from transformers import PreTrainedConfig, PreTrainedModel

        class MineConfig(PreTrainedConfig):
            model_type = "mine"
            def __init__(self, width=3, **kwargs):
                self.width = width
                super().__init__(**kwargs)

        class MineModel(PreTrainedModel):
            config_class = MineConfig
            def __init__(self, config):
                super().__init__(config)
                self.scale = torch.nn.Parameter(torch.ones(config.width))
                self.register_buffer("shift", 2 * torch.ones(1), persistent=False)
                self.post_init()
            def _init_weights(self, module):
                if module is self:
                    torch.nn.init.constant_(self.shift, 2.0)
            def forward(self, x):
                return x * self.scale + self.shift
        """)
    )
    auto = {"AutoConfig": "modeling_mine.MineConfig", "AutoModel": "modeling_mine.MineModel"}
    told = {"model_type": "mine", "architectures": ["MineModel"], "auto_map": auto, "width": 2}
    (tmp_path / "config.json").write_text(json.dumps(told))
    save_file({"scale": torch.tensor([3.0, 5.0])}, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(Unsupported, match=r"modeling_mine\.MineModel"):
        anyjax.from_pretrained(tmp_path)
    model = anyjax.from_pretrained(tmp_path, trust_remote_code=True)
    assert type(model.source.module).__name__ == "MineModel"
    assert model(np.ones(2, np.float32)).tolist() == [5.0, 7.0]
    model.save_pretrained(tmp_path / "copy")
    back = anyjax.from_pretrained(tmp_path / "copy", trust_remote_code=True)
    assert back(np.ones(2, np.float32)).tolist() == [5.0, 7.0]


def mesh(kind=AxisType.Auto):
    return jax.make_mesh((2, 4), ("data", "model"), axis_types=(kind, kind))


RULES = {
    r"(q|k|v|gate|up)_proj\.weight": PartitionSpec("model", None),
    r"(o|down)_proj\.weight": PartitionSpec(None, "model"),
    r"embed_tokens": PartitionSpec(("data", "model")),
}


@pytest.mark.parametrize("name", ["llama", "mixtral"])
@pytest.mark.parametrize("plan", [None, RULES, list(RULES.items())])
def test_on_a_mesh(name, plan, tmp_path):
    module, inputs = write(name, tmp_path)
    model, alone = (anyjax.from_pretrained(tmp_path, mesh=m, plan=p)
                    for m, p in ((mesh(), plan), (None, None)))  # fmt: skip
    assert_same(model.params, alone.params)
    assert_same(model.state, alone.state)
    specs = {k: v.sharding.spec for k, v in model.params.items()}
    q = "model.layers.0.self_attn.q_proj.weight"
    assert specs[q] == (PartitionSpec("model", None) if plan else PartitionSpec())
    assert all(
        len(v.sharding.device_set) == 8 for v in (*model.params.values(), *model.state.values())
    )
    assert abs(model(**inputs).logits - module(**inputs).logits.detach().numpy()).max() < 1e-4


@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("plan", ["tp", "tp+fsdp"])
def test_plans_by_name(name, plan, tmp_path):
    """As from a module: the class's plan, or the program's, before any weight is read."""
    module, inputs = write(name, tmp_path)
    model = anyjax.from_pretrained(tmp_path, mesh=mesh(), plan=plan)
    want = anyjax.parallel.shard(anyjax.from_torch(module), mesh(), plan)
    specs = lambda model: {k: v.sharding.spec for k, v in model.params.items()}
    assert specs(model) == specs(want)
    assert any("model" in spec for spec in specs(model).values())
    assert abs(model(**inputs).logits - module(**inputs).logits.detach().numpy()).max() < 1e-4


@pytest.mark.parametrize(("axes", "parts"), [(("data", "model"), 8), ("model", 4)])
def test_devices_read_their_own_part(axes, parts, llama, monkeypatch):
    """And once what several devices of a process have."""
    sizes = []

    class Counting(Reader):
        def __init__(self):
            super().__init__(sizes.append)

    monkeypatch.setattr(load, "Reader", Counting)
    model = anyjax.from_pretrained(
        llama, mesh=mesh(AxisType.Explicit), plan={"": PartitionSpec(axes)}
    )
    assert all(v.addressable_shards[0].data.size * parts == v.size for v in model.params.values())
    assert sum(sizes) == sum(v.nbytes for v in model.params.values())


def test_plans_that_do_not_fit(llama):
    with pytest.raises(WrongArguments, match="a plan needs a mesh"):
        anyjax.from_pretrained(llama, plan=RULES)
    wrong = {r"norm": PartitionSpec("model", "data"), r"q_proj": PartitionSpec("rows")}
    with pytest.raises(WrongArguments) as caught:
        anyjax.from_pretrained(llama, mesh=mesh(), plan=wrong)
    said = str(caught.value).splitlines()[0]
    assert "model.norm.weight [32]" in said and "layers.1.self_attn.q_proj.weight" in said


BAD_PLANS = {
    "there is no plan 'pp'": dict(plan="pp"),
    "no axis for expert": dict(plan="tp+expert"),
    "no axis for sequence": dict(plan="fsdp+sequence"),
    "does not fit": dict(plan={"norm": PartitionSpec(("data", "model"), "data")}),
}


@pytest.mark.parametrize("said", BAD_PLANS)
def test_nothing_is_read_for_a_bad_plan(said, llama, monkeypatch):
    sizes = []

    class Counting(Reader):
        def __init__(self):
            super().__init__(sizes.append)

    monkeypatch.setattr(load, "Reader", Counting)
    with pytest.raises(WrongArguments, match=said):
        anyjax.from_pretrained(llama, mesh=mesh(), **BAD_PLANS[said])
    assert not sizes


def test_sharded_arrays_can_be_saved(llama, tmp_path):
    model = anyjax.from_pretrained(llama, mesh=mesh(), plan=RULES)
    model.save_pretrained(tmp_path / "copy")
    assert_same(
        anyjax.from_pretrained(tmp_path / "copy").params, anyjax.from_pretrained(llama).params
    )
    assert isinstance(model.params["lm_head.weight"].sharding, NamedSharding)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"torch_dtype": "bfloat16"}, "write dtype"),
        ({"device_map": "auto"}, "write mesh and plan"),
        ({"rol": True}, "write roll instead of rol"),
        ({"zzz": 1}, "leave it out"),
    ],
)
def test_arguments_that_neighbours_have(given, said):
    with pytest.raises(anyjax.errors.WrongArguments, match=said):
        anyjax.from_pretrained("examples/tiny-llama", **given)
