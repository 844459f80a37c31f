"""Dynamic sizes in buckets: the values of eager torch, and few programs."""

from __future__ import annotations

import copy

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters
from torch.utils._pytree import tree_leaves

from anyjax.torch import compile_backend
from tests.tolerance import assert_close
from tests.torch.dynamo.test_models import bert, gpt2, resnet

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute")


def compiled(function, **options):
    return torch.compile(function, backend=compile_backend, options=options)


def reasons():
    return [key for key in counters["anyjax"] if key.startswith("no buckets")]


def assert_same(function, graph, *args, reduction=60):
    """Results, their strides, and gradients."""
    rows = []
    for call in (graph, function):
        copies = [x.detach().clone().requires_grad_(x.requires_grad) for x in args]
        for x in copies:
            torch._dynamo.maybe_mark_dynamic(x, [*range(min(x.dim(), 2))])
        out = [x for x in tree_leaves(call(*copies)) if isinstance(x, torch.Tensor)]
        floats = [x for x in out if x.requires_grad]
        if floats:
            sum(x.square().sum() for x in floats).backward()
        strides = [[s for s, n in zip(x.stride(), x.shape) if n > 1] for x in out]
        rows.append((strides, out, [x.grad for x in copies if x.requires_grad]))
    (strides, *got), (like, *want) = rows
    assert strides == like
    assert_close(*(tree_leaves(x) for x in (got, want)), reduction=reduction)


# Of x [batch, length, 4], at least 9 each: what is padded is beside the values in all of them.
CASES = {
    "poles": lambda x: ((1 / x).sum(), x.log().mean(1), (1 / x).logsumexp(0)),
    "extremes": lambda x: (x.amax(0), (-x).max(1), x.min(0), x.argmax(1), x.sum().sqrt()),
    "statistics": lambda x: (x.var((0, 1)), x.std(1), x.mean(), torch.var_mean(x, 0)),
    "softmax": lambda x: (x.softmax(1), x.log_softmax(0), x.softmax(-1)),
    "products": lambda x: (x.mT @ x, x @ x.mT, torch.einsum("bld,bmd->lm", x, x)),
    "numbers split anew": lambda x: x.reshape(len(x), -1, 2, 2).repeat(1, 1, 1, 3).flatten(2),
    "merged": lambda x: (x.reshape(-1, 4).softmax(0), x.reshape(len(x), -1).mT @ x.flatten(1)),
    "split again": lambda x: x.transpose(0, 1).flatten(0, 1).cumsum(0).view(x.shape[1], -1, 4),
    "the end": lambda x: (x[:, -1], x[-2:], x[:, :-1], x[:, 1:-1], x[::2], x[:, -3]),
    "joined": lambda x: (torch.cat([x, x[:, 1:]], 1), torch.stack([x, x]), torch.cat([x, x[:2]])),
    "sizes": lambda x: (x / x.shape[0], torch.arange(x.shape[1]), x.new_full(x.shape[:1], 3)),
    "indices": lambda x: (x[torch.tensor([0, -1, 2])], x.index_select(1, torch.tensor([1, 8]))),
    "padded": lambda x: (F.pad(x, (0, 0, 2, 1), value=3.0), F.pad(x, (0, 0, -1, -2))),
    "triangle": lambda x: (x @ x.mT).tril().sum(1),
    "convolved": lambda x: F.conv1d(x.mT, torch.ones(3, 4, 5) / 9, stride=2, padding=2),
    "losses": lambda x: (F.mse_loss(x, x.sin()), F.smooth_l1_loss(x, x * 0, reduction="sum")),
    "classes": lambda x: F.cross_entropy(x.flatten(0, 1), torch.arange(x[..., 0].numel()) % 4),
    "attention": lambda x: F.scaled_dot_product_attention(*[x[:, None]] * 3, is_causal=True),
    "attention, masked": lambda x: F.scaled_dot_product_attention(
        *[x[:, None]] * 3, attn_mask=torch.ones(x.shape[1], x.shape[1]).tril(2).bool()
    ),
    "expanded": lambda x: (x[:, :1].expand_as(x) + x, x.repeat(2, 1, 1)),
    "batch statistics": lambda x: x.mT * (
        F.batch_norm(x.mT.contiguous(), torch.zeros(4), torch.ones(4), training=True)
        + F.instance_norm(x.mT.contiguous())
    ),
    "rows": lambda x: F.layer_norm(torch.cat([x, x.sin()], 2), (8,)).sin(),
    "groups": lambda x: F.group_norm(F.pad(x.flatten(0, 1), (1, 3)), 2).sin(),
}  # fmt: skip


@pytest.mark.sample(every=3)
@pytest.mark.parametrize("name", CASES)
def test_values_gradients_and_programs(name):
    graph = compiled(CASES[name])
    generator = torch.Generator().manual_seed(0)
    for batch, length in ((9, 11), (10, 12), (17, 19), (20, 18)):
        x = torch.rand(batch, length, 4, generator=generator) + 0.1
        assert_same(CASES[name], graph, x.requires_grad_())
    assert reasons() == []
    graphs = counters["anyjax"]["graphs"]
    assert counters["anyjax"]["programs"] == 2 * graphs  # two buckets


SIZES = [(2, 10), (9, 11), (10, 12), (9, 12)]  # the first graph is for these sizes alone


@pytest.mark.parametrize("make", [resnet, gpt2, bert])
def test_models_train_on_batches_of_many_sizes(make):
    model, inputs = make()
    eager = copy.deepcopy(model)
    function = torch.compile(model, backend=compile_backend)
    generator = torch.Generator().manual_seed(3)
    for batch, length in SIZES:
        parts = dict(inputs)
        for name, x in inputs.items():
            if isinstance(x, torch.Tensor):
                size = (
                    (batch, length)[: x.dim()] if name != "pixel_values" else (batch, *x.shape[1:])
                )
                draw = torch.randint(0, int(x.max()) + 1, size, generator=generator)
                parts[name] = (
                    torch.randn(size, generator=generator) if x.is_floating_point() else draw
                )
        losses = [x(**parts).loss for x in (function, eager)]
        for loss in losses:
            loss.backward()
        assert_close(*(x.detach() for x in losses), reduction=500)
    kept = lambda x: {k: v.grad for k, v in x.named_parameters() if "key.bias" not in k}
    assert_close(kept(model), kept(eager), reduction=2000)
    assert_close(*(dict(x.named_buffers()) for x in (model, eager)), reduction=500)
    assert reasons() == []
    graphs = counters["anyjax"]["graphs"]
    assert counters["anyjax"]["programs"] == graphs  # each has sizes of one bucket


def test_an_operator_without_a_rule_has_a_program_for_each_size():
    function = lambda x: torch.linalg.inv(x @ x.mT + torch.eye(x.shape[0]))
    graph = compiled(function)
    for size in (9, 10, 9):
        assert_same(function, graph, torch.rand(size, 9))
    assert reasons() == [
        "no buckets: aten.linalg_inv_ex.default of a tensor whose size depends on values: "
        "there is no rule for it"
    ]
    assert counters["anyjax"]["programs"] == 2 * counters["anyjax"]["graphs"]


SHIFTS = {
    "padding": lambda x: F.pad(x, (0, 0, x.shape[0], 0)),
    "a place": lambda x: x.select_scatter(x[..., 0] * 2, 2, x.shape[0] % 4),
    "a convolution": lambda x: F.conv1d(x.mT, torch.ones(3, 4, 5), padding=x.shape[0] // 4),
}


@pytest.mark.parametrize("name", SHIFTS)
def test_places_that_depend_on_sizes_are_those_of_the_call(name):
    graph = compiled(SHIFTS[name])
    for batch in (9, 11, 12):
        x = torch.rand(batch, 9, 4, generator=torch.Generator().manual_seed(batch))
        assert_same(SHIFTS[name], graph, x.requires_grad_())
    assert reasons() != []


def test_a_mask_of_merged_heads():
    def attend(x, mask):
        heads = x.reshape(-1, 1, x.shape[1], 4)
        return F.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask.flatten(0, 1))

    graph = torch.compile(attend, backend=compile_backend)
    for batch, groups, length in ((9, 10, 11), (10, 9, 12), (11, 12, 10)):
        generator = torch.Generator().manual_seed(batch)
        x = torch.rand(batch * groups, length, 4, generator=generator)
        mask = torch.randn(batch, groups, 1, length, length, generator=generator)
        assert_same(attend, graph, x, mask)


def test_the_seed_gives_the_same_numbers_where_buckets_are_given_up():
    graph = compiled(lambda x: F.dropout(torch.linalg.inv(torch.eye(x.shape[0]) * 2 + x @ x.mT)))
    draws = []
    for _ in range(2):
        torch.manual_seed(3)
        draws.append(graph(torch.rand(9, 3) * 0 + 1))
    assert torch.equal(*draws)


def test_sizes_that_an_operator_needs_to_be_equal():
    function = lambda x, y: (x.reshape(-1) * y.reshape(-1)).cumsum(0)
    graph = torch.compile(function, backend=compile_backend)
    shapes = [((2, 10), (2, 10)), ((9, 12), (9, 12)), ((10, 11), (10, 11)), ((9, 20), (10, 18))]
    for one, other in shapes:
        assert_same(function, graph, torch.rand(one), torch.rand(other))
    assert len(reasons()) == 1  # at last they are not


def test_a_model_may_do_without_buckets():
    graph = compiled(torch.sin, buckets=False)
    for size in (9, 10):
        assert_same(torch.sin, graph, torch.rand(size))
    assert counters["anyjax"]["programs"] == 2


@pytest.mark.conformance
def test_few_programs_serve_many_lengths():
    layer = nn.Linear(3, 3)
    graph = compiled(lambda x: layer(x).softmax(0))
    with torch.no_grad():
        for size in range(2, 130):
            graph(torch.rand(size, 3))
    assert counters["anyjax"]["graphs"] == 2  # the first one is for its size alone
    assert counters["anyjax"]["programs"] == 1 + 13
