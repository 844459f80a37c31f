"""What is estimated, beside what XLA compiles and what runs on eight devices hold."""

import jax
import numpy as np
import pytest
import torch

import anyjax
from anyjax.errors import WrongArguments
from anyjax.parallel import estimate
from anyjax.parallel._estimate import estimate_traced, input_specs, mesh_for
from anyjax.parallel.estimation.compiled import compile_call
from tests.parallel.running import CALLS, CONFIGS, PLANS, estimated, measured, traced

pytestmark = pytest.mark.sample(every=2)

WITHIN = 0.15  # of the peak of a run, as promised
FIRST = [("llama", "forward", "tp+fsdp"), ("gpt2", "decode", "tp"), ("llama", "train", "fsdp")]
RUNS = [(name, what, plan) for name in CONFIGS for what in CALLS for plan in PLANS]
MORE = [pytest.param(*run, marks=pytest.mark.conformance) for run in RUNS if run not in FIRST]
MEMORY = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"}


@pytest.mark.parametrize(("name", "what", "plan"), [*FIRST, *MORE])
def test_runs_on_eight_devices_are_predicted(name, what, plan):
    """From a config alone, against the program that ran and the arrays that it left."""
    told = estimated(name, what, plan)
    program, held = measured(name, what, plan)
    assert told.peak == pytest.approx(program.peak, rel=WITHIN)
    assert told.peak == pytest.approx(held, rel=WITHIN)


AGREE = [("forward", "tp"), ("train", "fsdp")]


@pytest.mark.parametrize(("what", "plan"), AGREE)
def test_the_traced_program_agrees_with_the_compiled_one(what, plan):
    """XLA in the order of least memory: the same bytes of collectives, products and peak."""
    call, mesh = traced("llama", what), mesh_for(plan, 8)
    told = estimate_traced(call, "cpu-8", plan, compile=False)
    found = compile_call(call, mesh, input_specs(call, mesh, plan), MEMORY)
    assert told.arguments == pytest.approx(found.arguments, rel=0.01)
    assert told.traced_peak == pytest.approx(found.peak, rel=WITHIN)
    flops = sum(told.products.values()) + told.others
    assert flops == pytest.approx(found.flops, rel=0.05)
    reduced = {"reduce-scatter": "all-reduce"}  # XLA's CPU backend leaves them in one piece
    ours: dict[str, float] = {}
    for c in told.communication:
        kind = reduced.get(c.kind, c.kind)
        ours[kind] = ours.get(kind, 0) + c.bytes
    for kind in ("all-reduce", "all-gather"):
        theirs = found.collectives[kind].bytes if kind in found.collectives else 0
        assert ours.get(kind, 0) == pytest.approx(theirs, rel=0.02)


def linear():
    """A model of shapes alone."""
    model = anyjax.from_torch(torch.nn.Linear(64, 256, bias=False))
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), model)


def test_figures_of_one_product():
    """Counted by hand: 2 m n k FLOPs, what is read and written once, nothing communicated."""
    told = estimate(linear(), "h100-4", "tp", np.ones((32, 64), np.float32))
    assert told.products == {"float32, highest": 2 * 32 * 64 * 256 / 4}
    assert told.memory == {"params": 64 * 256 * 4 / 4, "inputs": 32 * 64 * 4}
    assert told.outputs == 32 * 256 * 4 / 4
    assert told.traffic == told.arguments + told.outputs
    assert told.communication == () and told.linking == 0
    assert told.seconds == pytest.approx(told.traffic / 3350e9)
    assert told.bound == "memory" and told.fits


def test_rows_of_another_node_come_through_the_network():
    """Each chip gets the other half of its part of the weights, at what one network card does."""
    told = estimate(
        linear(), "h100-16", "tp+fsdp", np.ones((4096, 64), np.float32),
        mesh={"data": 2, "model": 8},
    )  # fmt: skip
    (gathered,) = told.communication
    found = gathered.kind, gathered.axes, gathered.calls, gathered.bytes
    assert found == ("all-gather", ("data",), 1, 64 * 256 * 4 / 8)
    assert told.linking == pytest.approx(gathered.bytes / 2 / 50e9)


def test_no_array_is_made():
    model = linear()
    before = {*map(id, kept := jax.live_arrays())}  # kept: ids of others are new
    estimate(model, "v6e-8", "fsdp", jax.ShapeDtypeStruct((32, 64), np.float32))
    assert not {*map(id, jax.live_arrays())} - before
    del kept


def test_what_does_not_fit_says_what_does():
    """16 GB of activations on a chip of 16 GiB and weights beside them: two chips hold halves."""
    x = jax.ShapeDtypeStruct((16_000_000, 64), np.float32)
    told = estimate(linear(), "v5e-1", "fsdp", x)
    assert told.fits is False
    plan, count = told.otherwise
    assert plan == "fsdp" and count in (2, 4)
    assert f'plan "{plan}" on v5e-{count} does' in str(told)
    assert estimate(linear(), f"v5e-{count}", plan, x).fits


def test_text_page_and_markdown(tmp_path):
    told = estimate(linear(), "v6e-8", "tp", np.ones((32, 64), np.float32))
    lines = str(told).splitlines()
    assert lines[0].startswith("model") and any(x.startswith("peak per device") for x in lines)
    assert len(told.markdown().splitlines()) == len(lines) + 2
    told.save(tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text()
    assert page.count("<tr>") == len(lines) and 'class="edge"' in page


def test_keys_and_nothing_at_all():
    """A random key among the inputs, an array without elements, a function without weights."""
    x = np.ones((8, 4, 64), np.float32)
    for function in (torch.nn.Dropout(), lambda x: x[:, :0].reshape(-1, 64), torch.sin):
        told = estimate(anyjax.from_torch(function), "v6e-8", "fsdp", x, rng=jax.random.key(0))
        assert told.weights == 0 and told.dtype == "float32" and told.tokens == 8


WRONG = {
    "no chip 'v9-8'": dict(chips="v9-8"),
    "does not say how many": dict(chips="v6e"),
    "has 16 chips, v6e-8 has 8": dict(mesh={"model": 16}),
    "no plan 'pp'": dict(plan="pp"),
    "a batch of 32 does not divide over 64": dict(chips="v6e-64", plan="fsdp"),
    "0% of the weights over 3": dict(chips="v6e-3"),
    "there are 8 devices": dict(chips="cpu-16"),
    "mesh=AbstractMesh": dict(mesh=jax.sharding.AbstractMesh((8,), ("model",))),
    "a training step of 1 arguments without its state": dict(step=abs),
}


@pytest.mark.parametrize("said", WRONG)
def test_mistakes_are_told_in_four_lines(said):
    given = {"chips": "v6e-8", "plan": "tp"} | WRONG[said]
    with pytest.raises(WrongArguments, match=said) as error:
        estimate(linear(), given.pop("chips"), given.pop("plan"), np.ones((32, 64)), **given)
    assert len(str(error.value).splitlines()) == 5 or said == "no plan 'pp'"
