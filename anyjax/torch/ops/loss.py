"""Losses that torch's own decompositions do not serve, or serve with more memory."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.numerics import head_loss
from anyjax.torch.core.heads import Head, head_of
from anyjax.torch.core.schema import aten, lowers
from anyjax.torch.ops._operands import absolute, like, select, wide, widened
from anyjax.torch.ops.matmul import linear

NONE, MEAN, SUM = 0, 1, 2
NEVER = -1e30  # the log of no probability, finite so that gradients are


def classes_last(x):
    """[N, C, d1, ...] as [N, d1, ..., C]."""
    return jnp.moveaxis(x, 1 if x.ndim > 1 else 0, -1)


def picked(logits, norm, target, weight, reduction, ignore_index, smoothing=0.0):
    """(minus the targets' weighted log probabilities ``logits - norm``, the sum of weights)."""
    valid = target != ignore_index
    target = jnp.where(valid, target, 0)
    each = jnp.where(valid, 1 if weight is None else weight[target], 0).astype(logits.dtype)
    loss = norm - jnp.take_along_axis(logits, target[..., None], -1, mode="clip")[..., 0]
    in_range = (target >= 0) & (target < logits.shape[-1])  # torch raises for other classes
    loss = jnp.where(valid, jnp.where(in_range, loss * each, jnp.nan), 0)
    total = each.sum()
    if smoothing:
        spread = jnp.expand_dims(norm, -1) - logits
        spread = (spread if weight is None else spread * weight).mean(-1)
        loss = (1 - smoothing) * loss + smoothing * jnp.where(valid, spread, 0)
    if reduction == NONE:
        return loss, total
    return loss.sum() / (total if reduction == MEAN else 1), total


def of_head(head, target, weight, reduction, ignore_index, label_smoothing):
    """The loss of a large head's output by its input, None where it needs all of the output."""
    by_rows = weight is None and not label_smoothing and reduction != NONE and target.ndim == 1
    if head is None or not by_rows:
        return None
    _, hidden, weight, bias, pointwise = head
    labels, options = target.reshape(hidden.shape[:-1]), {"ignore_index": ignore_index}
    loss = head_loss.linear_cross_entropy(
        hidden, weight, labels, bias, pointwise=pointwise, **options
    )
    return loss / (target != ignore_index).sum() if reduction == MEAN else loss


@lowers(aten.cross_entropy_loss)
def cross_entropy_loss(self, target, weight, reduction, ignore_index, label_smoothing):
    """A target of the input's shape holds probabilities; its mean is over samples."""
    loss = of_head(head_of(self), target, weight, reduction, ignore_index, label_smoothing)
    if loss is not None:
        return loss.astype(self.dtype)
    logits = classes_last(wide(self))
    norm = jax.nn.logsumexp(logits, -1)
    if target.shape != self.shape:
        loss = picked(logits, norm, target, weight, reduction, ignore_index, label_smoothing)[0]
        return loss.astype(self.dtype)
    target = classes_last(wide(target))
    target = (
        target * (1 - label_smoothing) + label_smoothing / target.shape[-1]
        if label_smoothing
        else target
    )
    loss = ((norm[..., None] - logits) * target * (1 if weight is None else weight)).sum(-1)
    loss = loss if reduction == NONE else loss.sum()
    loss = loss / norm.size if reduction == MEAN else loss
    return loss.astype(self.dtype)


@lowers(aten.nll_loss_nd, aten.nll_loss, aten.nll_loss2d)
def nll_loss(self, target, weight, reduction, ignore_index):
    return picked(classes_last(self), 0, target, weight, reduction, ignore_index)[0]


@lowers(aten.nll_loss_forward, aten.nll_loss2d_forward)
def nll_loss_forward(self, target, weight, reduction, ignore_index):
    """(loss, total weight); torch leaves the weight at 0 where nothing is reduced."""
    loss, total = picked(classes_last(self), 0, target, weight, reduction, ignore_index)
    return loss, jnp.zeros_like(total) if reduction == NONE else total


def reduced(loss, reduction):
    return loss.mean() if reduction == MEAN else loss.sum() if reduction == SUM else loss


@jax.custom_jvp
def surprise(p, target):
    """Minus the log probability of a target in [0, 1]; logarithms end at -100."""
    no, yes = (jnp.maximum(x, -100) for x in (lax.log1p(-p), lax.log(p)))
    return (target - 1) * no - target * yes


@surprise.defjvp
def surprise_jvp(primals, tangents):
    """By p as torch has it, finite at 0 and 1; by the target that of the value, which torch's is
    not where a logarithm ends.
    """
    (p, target), (along_p, along_target) = primals, tangents
    slope = (p - target) / jnp.maximum((1 - p) * p, 1e-12)
    gain = surprise(p, like(p, 1)) - surprise(p, like(p, 0))
    return surprise(p, target), along_p * slope + along_target * (gain)


@lowers(aten.binary_cross_entropy)
@widened
def binary_cross_entropy(self, target, weight, reduction):
    loss = surprise(self, target)
    return reduced(loss if weight is None else loss * weight, reduction)


@lowers(aten.huber_loss)
@widened
def huber_loss(self, target, reduction, delta):
    """Half the square up to ``delta``, linear from there on, also in the gradient at infinity."""
    gap = self - target
    far = absolute(gap) >= delta
    square = lax.square(select(far, 0, gap)) / 2
    return reduced(select(far, delta * (absolute(gap) - delta / 2), square), reduction)


@lowers(aten.smooth_l1_loss)
@widened
def smooth_l1_loss(self, target, reduction, beta):
    if beta == 0:
        return reduced(absolute(self - target), reduction)
    return huber_loss(self, target, reduction, beta) / beta


@lowers(aten.cosine_similarity)
def cosine_similarity(x1, x2, dim, eps):
    """eps bounds the norms from below; the gradient passes as if it did not, and is 0 at norm 0."""
    x1, x2 = jnp.broadcast_arrays(x1, x2)
    dim = dim if x1.ndim else ()

    def unit(x):
        square = jnp.square(x).sum(dim, keepdims=True)
        norm = jnp.where(square == 0, 0, jnp.sqrt(jnp.where(square == 0, 1, square)))
        return x / (norm + lax.stop_gradient(jnp.maximum(norm, eps) - norm))

    dtype = jnp.promote_types(x1.dtype, x2.dtype)
    return (unit(wide(x1)) * unit(wide(x2))).sum(dim).astype(dtype)


def ctc_targets(targets, target_lengths):
    """Targets as [batch, longest]; torch also takes them one after another."""
    if targets.ndim == 2:
        return targets
    first = jnp.cumsum(target_lengths) - target_lengths
    places = first[:, None] + np.arange(targets.size)
    return jnp.take(targets, places, mode="clip")


def ctc_step(alpha, skips):
    """Log probabilities of each label after one more step, before that step's emission."""
    past = jnp.pad(alpha, ((0, 0), (2, 0)), constant_values=NEVER)
    ways = jnp.stack([alpha, past[:, 1:-1], jnp.where(skips, past[:, :-2], NEVER)])
    return jax.nn.logsumexp(ways, 0)


def ctc_end(alpha, input_lengths, target_lengths):
    """A sequence may end at its last label or at the blank after it."""
    ends = 2 * target_lengths[:, None] - np.arange(2)
    ends = jnp.where(ends < 0, NEVER, jnp.take_along_axis(alpha, jnp.maximum(ends, 0), 1))
    nothing = jnp.where(target_lengths > 0, -NEVER, 0)
    return jnp.where(input_lengths > 0, -jax.nn.logsumexp(ends, 1), nothing)


def ctc_each(log_probs, targets, input_lengths, target_lengths, blank):
    """The loss of each sequence: one scan over time on labels with blanks between them."""
    labels = jnp.full((len(targets), 2 * targets.shape[1] + 1), blank).at[:, 1::2].set(targets)
    emit = jnp.take_along_axis(log_probs, labels[None], -1, mode="clip")
    emit = jnp.maximum(emit, NEVER)
    skips = jnp.pad(labels[:, 2:] != labels[:, :-2], ((0, 0), (2, 0))) & (labels != blank)
    place = np.arange(labels.shape[1])
    start = jnp.where((place < 2) & (place <= target_lengths[:, None]), emit[0], NEVER)

    def body(alpha, inputs):
        t, log_probs_now = inputs
        return jnp.where(
            (t < input_lengths)[:, None], log_probs_now + ctc_step(alpha, skips), alpha
        ), None

    alpha, _ = lax.scan(body, start, (np.arange(1, len(emit)), emit[1:]))
    loss = ctc_end(alpha, input_lengths, target_lengths)
    # torch's gradient is that of a function of logits: it has the softmax's share already.
    steps = np.arange(len(log_probs))[:, None] < input_lengths
    share = jnp.where(steps, jnp.exp(log_probs).sum(-1), 0).sum(0)
    return jnp.where(loss > -NEVER / 2, jnp.inf, loss + share - lax.stop_gradient(share))


@lowers(aten.ctc_loss)
def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity):
    single = log_probs.ndim == 2
    log_probs = log_probs[:, None] if single else log_probs
    lengths = [jnp.asarray(n, jnp.int32).reshape(-1) for n in (input_lengths, target_lengths)]
    loss = ctc_each(log_probs, ctc_targets(targets, lengths[1]), *lengths, blank)
    loss = jnp.where(jnp.isinf(loss), 0, loss) if zero_infinity else loss
    if reduction == MEAN:
        return (loss / jnp.maximum(lengths[1], 1)).mean()
    return loss.sum() if reduction == SUM else loss[0] if single else loss


@lowers("torch_nn._linear_cross_entropy_batch_chunked")
def linear_cross_entropy(
    input, linear_weight, target, linear_bias, weight, reduction, ignore_index, label_smoothing,
    batch_chunk_size, acc_policy, acc_dtype, allow_retain_graph,
    compute_input_grad, compute_linear_weight_grad, compute_linear_bias_grad,
):  # fmt: skip
    """The three other results are gradients for torch's autograd, which JAX works out itself."""
    large = head_loss.block_of(input, linear_weight) is not None
    head = Head(input, input, linear_weight, linear_bias) if large else None
    rest = target, weight, SUM if reduction == "sum" else MEAN, ignore_index, label_smoothing
    loss = of_head(head, *rest)
    if loss is None:
        loss = cross_entropy_loss(linear(input, linear_weight, linear_bias), *rest)
    loss = loss.astype(input.dtype)
    shapes = (*[(0, 0)] * 2, (0,))
    return loss, *(jnp.zeros(shape, input.dtype) for shape in shapes)


@lowers("torch_nn._linear_cross_entropy_batch_chunked_no_reduction")
def linear_cross_entropy_each(
    input, linear_weight, target, linear_bias, weight, ignore_index,
    batch_chunk_size, acc_policy, acc_dtype,
):  # fmt: skip
    logits = linear(input, linear_weight, linear_bias)
    return cross_entropy_loss(logits, target, weight, NONE, ignore_index, 0.0)


@lowers(aten.multilabel_margin_loss)
def multilabel_margin_loss(self, target, reduction):
    """A row's targets end at its first negative one."""
    x, at = (a.reshape(1, -1) if a.ndim < 2 else a for a in (self, target))
    is_label = jnp.cumprod(at >= 0, -1).astype(bool)
    at = jnp.where(is_label, at, 0)
    rows = jnp.arange(len(x))[:, None]
    is_target = jnp.zeros(x.shape, bool).at[rows, at].max(is_label)
    gaps = 1 - jnp.take_along_axis(x, at, -1)[:, :, None] + x[:, None, :]
    counted = is_label[:, :, None] & ~is_target[:, None, :]
    loss = jnp.where(counted, jax.nn.relu(gaps), 0).sum((1, 2)) / x.shape[-1]
    if reduction:
        return loss.mean() if reduction == 1 else loss.sum()
    return loss.reshape(self.shape[:-1])
