"""Ensembles of decision trees: all rows walk down all trees at once, a level a step.

The comparisons have no derivative: the gradient for the features is zero.
"""

from __future__ import annotations

import operator
from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from anyjax.errors import Unsupported, WrongArguments
from anyjax.onnx.core.schema import lowers
from anyjax.onnx.ops.ml_scores import both_classes, floats, labels, transformed

COMPARISONS = {
    "BRANCH_LEQ": operator.le,
    "BRANCH_LT": operator.lt,
    "BRANCH_GTE": operator.ge,
    "BRANCH_GT": operator.gt,
    "BRANCH_EQ": operator.eq,
    "BRANCH_NEQ": operator.ne,
}
MEMBER, LEAF = "BRANCH_MEMBER", "LEAF"
MODES = [*COMPARISONS, MEMBER, LEAF]
AGGREGATES = ["AVERAGE", "SUM", "MIN", "MAX"]
TRANSFORM_NAMES = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


class Forest(NamedTuple):
    """The nodes of all trees, one after another; a leaf leads to itself.

    ``value`` is the number that a feature is compared with, or the row of ``sets``, padded with
    NaN, that it has to be in. A leaf adds its row of ``weights`` (``[nodes, targets]``) to the
    targets where its row of ``scored`` is true.
    """

    roots: np.ndarray
    feature: np.ndarray
    mode: np.ndarray
    value: np.ndarray
    true: np.ndarray
    false: np.ndarray
    missing: np.ndarray
    sets: np.ndarray
    weights: np.ndarray
    scored: np.ndarray

    def depth(self) -> int:
        """Returns the length of the longest way from a root to a leaf."""
        depth, level = 0, self.roots
        while (inner := level[self.mode[level] != MODES.index(LEAF)]).size:
            if (depth := depth + 1) > len(self.mode):
                raise WrongArguments(
                    "a tree of the ensemble has a cycle",
                    why="a way from its root does not end in a leaf",
                    do="write the file again: it is damaged",
                )
            level = np.unique(np.concatenate([self.true[inner], self.false[inner]]))
        return depth


def passes(forest, x, node):
    """Returns whether features ``x`` go to the true branches of their nodes."""
    value = jnp.asarray(forest.value)[node]
    inner = np.unique(forest.mode[forest.mode != MODES.index(LEAF)])
    mode = jnp.asarray(forest.mode)[node]
    passed = jnp.zeros(x.shape, bool)
    for number in inner:
        if MODES[number] == MEMBER:
            members = jnp.asarray(forest.sets)[value.astype(np.int32)]
            test = (x[..., None] == members).any(-1)
        else:
            test = COMPARISONS[MODES[number]](x, value)
        passed = test if len(inner) == 1 else jnp.where(mode == number, test, passed)
    if forest.missing.any():
        passed |= jnp.isnan(x) & jnp.asarray(forest.missing)[node]
    return passed


def leaves(forest, X):
    """Returns the leaf that each row reaches in each tree, ``[rows, trees]``."""
    X = lax.stop_gradient(X)
    if isinstance(X.shape[1], int) and forest.feature.max() >= X.shape[1]:
        raise WrongArguments(
            f"rows of {X.shape[1]} features for trees that read feature {forest.feature.max()}",
            do=f"pass at least {forest.feature.max() + 1} features",
        )
    feature, true, false = map(jnp.asarray, (forest.feature, forest.true, forest.false))

    def step(_, node):
        x = jnp.take_along_axis(X, feature[node], axis=1, mode="clip")
        return jnp.where(passes(forest, x, node), true[node], false[node])

    start = jnp.broadcast_to(jnp.asarray(forest.roots), (X.shape[0], len(forest.roots)))
    return lax.fori_loop(0, forest.depth(), step, start)


def aggregated(forest, leaf, function):
    """Returns the targets, ``[rows, targets]``, and which of them have a score."""
    weights, scored = jnp.asarray(forest.weights)[leaf], jnp.asarray(forest.scored)[leaf]
    any_scored = scored.any(1)
    if function in ("MIN", "MAX"):
        worst, reduce = (np.inf, jnp.min) if function == "MIN" else (-np.inf, jnp.max)
        best = reduce(jnp.where(scored, weights, worst), 1)
        return jnp.where(any_scored, best, 0), any_scored
    total = weights.sum(1)
    return (total / len(forest.roots) if function == "AVERAGE" else total), any_scored


def weight_table(count, targets, node, target, weight):
    """Returns the weights of all nodes for all targets, and where there are any."""
    weights = np.zeros((count, targets), np.asarray(weight).dtype)
    np.add.at(weights, (node, target), weight)
    scored = np.zeros((count, targets), bool)
    scored[node, target] = True
    return weights, scored


def forest_of(
    dtype, targets, tree, node, mode, feature, value, true, false, missing, leaf_tree, leaf_node,
    leaf_target, leaf_weight,
):  # fmt: skip
    """Returns the forest that the attributes of a TreeEnsembleClassifier or -Regressor describe."""
    place = {key: i for i, key in enumerate(zip(tree, node))}
    mode = np.array([MODES.index(name) for name in mode])
    itself, inner = np.arange(len(mode)), mode != MODES.index(LEAF)

    def child(ids):
        rows = enumerate(zip(tree, ids, inner))
        return np.array([place[t, i] if branch else k for k, (t, i, branch) in rows])

    at = np.array([place[key] for key in zip(leaf_tree, leaf_node)], int)
    leaf = ~inner[at]  # old converters also give inner nodes weights, which mean nothing
    picked = np.asarray(leaf_target)[leaf], np.asarray(leaf_weight, dtype)[leaf]
    return Forest(
        itself[np.r_[True, np.diff(tree) != 0]], np.where(inner, feature, 0), mode,
        np.asarray(value, dtype), child(true), child(false),
        np.asarray(missing or np.zeros(len(mode)), bool), np.zeros((0, 0)),
        *weight_table(len(mode), targets, at[leaf], *picked),
    )  # fmt: skip


def numbers(floats_, tensor):
    """Returns the attribute that is there, of a pair of which the second may have doubles."""
    return np.asarray(floats_ or (), np.float32) if tensor is None else np.asarray(tensor)


@lowers("ai.onnx.ml::TreeEnsembleRegressor")
def tree_ensemble_regressor(
    X, aggregate_function, base_values, base_values_as_tensor, n_targets, nodes_falsenodeids,
    nodes_featureids, nodes_hitrates, nodes_hitrates_as_tensor, nodes_missing_value_tracks_true,
    nodes_modes, nodes_nodeids, nodes_treeids, nodes_truenodeids, nodes_values,
    nodes_values_as_tensor, post_transform, target_ids, target_nodeids, target_treeids,
    target_weights, target_weights_as_tensor,
):  # fmt: skip
    X = floats(X)
    forest = forest_of(
        X.dtype, n_targets, nodes_treeids, nodes_nodeids, nodes_modes, nodes_featureids,
        numbers(nodes_values, nodes_values_as_tensor), nodes_truenodeids, nodes_falsenodeids,
        nodes_missing_value_tracks_true, target_treeids, target_nodeids, target_ids,
        numbers(target_weights, target_weights_as_tensor),
    )  # fmt: skip
    base = numbers(base_values, base_values_as_tensor)
    scores, _ = aggregated(forest, leaves(forest, X), aggregate_function)
    if len(base):
        scores = scores + base.astype(X.dtype)
    return transformed(scores, post_transform).astype(np.float32)


@lowers("ai.onnx.ml::TreeEnsembleClassifier")
def tree_ensemble_classifier(
    X, base_values, base_values_as_tensor, class_ids, class_nodeids, class_treeids, class_weights,
    class_weights_as_tensor, classlabels_int64s, classlabels_strings, nodes_falsenodeids,
    nodes_featureids, nodes_hitrates, nodes_hitrates_as_tensor, nodes_missing_value_tracks_true,
    nodes_modes, nodes_nodeids, nodes_treeids, nodes_truenodeids, nodes_values,
    nodes_values_as_tensor, post_transform,
):  # fmt: skip
    X, classes = floats(X), len(classlabels_int64s or classlabels_strings)
    forest = forest_of(
        X.dtype, classes, nodes_treeids, nodes_nodeids, nodes_modes, nodes_featureids,
        numbers(nodes_values, nodes_values_as_tensor), nodes_truenodeids, nodes_falsenodeids,
        nodes_missing_value_tracks_true, class_treeids, class_nodeids, class_ids,
        numbers(class_weights, class_weights_as_tensor),
    )  # fmt: skip
    base = numbers(base_values, base_values_as_tensor).astype(X.dtype)
    pick = two_classes if classes == 2 else several_classes
    index, scores = pick(forest, leaves(forest, X), base, post_transform)
    numbered = classes == 2 == len({*class_ids})  # by onnxruntime, in the place of labels
    named = labels(index, (0, 1) if numbered else classlabels_int64s, classlabels_strings)
    return named, scores.astype(np.float32)


def several_classes(forest, leaf, base, post_transform):
    """Returns the best class of each row among those that have a score, and the scores."""
    if forest.weights.shape[1] == 1:
        raise Unsupported(
            "a classifier with one class",
            why="onnxruntime leaves its label undefined",
            do="leave it out of the model",
        )
    scores, scored = aggregated(forest, leaf, "SUM")
    scores = scores + base if len(base) else scores
    index = jnp.where(scored | bool(len(base)), scores, -np.inf).argmax(-1)
    return index, transformed(scores, post_transform)


def two_classes(forest, leaf, base, post_transform):
    """Returns which rows are of the second of two classes, and the scores of both.

    The weights of boosted trees are all for the first class: their sum is the second one's score.
    """
    first, second = forest.scored.any(0)
    weights = forest.weights[forest.scored]
    if len(base) == 2 or (second and (len(base) or not always_scored(forest)[1])):
        raise Unsupported(
            "two classes with base values, or with leaves that do not weigh the second one",
            why="onnxruntime computes something else there than ONNX describes",
            do="write a weight for each class in each leaf, and add the base values to them",
        )
    positive = first != second and (weights >= 0).all()
    scores, _ = aggregated(forest, leaf, "SUM")
    score = scores[:, int(second)] + (base[0] if len(base) else 0)
    is_second = score > (0.5 if positive else 0)
    if second:
        return is_second, transformed(scores, post_transform)
    return is_second, both_classes(score, post_transform, complement=positive)


def always_scored(forest):
    """Returns whether each target has a score whichever leaves a row reaches: one tree suffices."""
    is_leaf = forest.mode == MODES.index(LEAF)
    starts = [*forest.roots, len(forest.mode)]
    trees = [slice(*ends) for ends in pairwise(starts)]
    return np.any([forest.scored[tree][is_leaf[tree]].all(0) for tree in trees], axis=0)


@lowers("ai.onnx.ml::TreeEnsemble")
def tree_ensemble(
    X, aggregate_function, leaf_targetids, leaf_weights, membership_values, n_targets,
    nodes_falseleafs, nodes_falsenodeids, nodes_featureids, nodes_hitrates,
    nodes_missing_value_tracks_true, nodes_modes, nodes_splits, nodes_trueleafs, nodes_truenodeids,
    post_transform, tree_roots,
):  # fmt: skip
    """The transforms are numbered as ONNX does; onnxruntime takes SOFTMAX and LOGISTIC for each
    other.
    """
    count, leaf_count = len(nodes_modes), len(leaf_targetids)
    at = np.arange(count, count + leaf_count)  # leaves are behind the nodes
    child = lambda ids, is_leaf: np.r_[np.where(is_leaf, count, 0) + np.asarray(ids), at]
    fill = lambda values, value: np.r_[values, np.full(leaf_count, value)]
    value, sets = members(np.asarray(nodes_modes), np.asarray(nodes_splits), membership_values)
    forest = Forest(
        np.asarray(tree_roots), fill(nodes_featureids, 0), fill(nodes_modes, MODES.index(LEAF)),
        fill(value, value[0]), child(nodes_truenodeids, nodes_trueleafs),
        child(nodes_falsenodeids, nodes_falseleafs),
        fill(nodes_missing_value_tracks_true or np.zeros(count), 0).astype(bool), sets,
        *weight_table(count + leaf_count, n_targets, at, np.asarray(leaf_targetids), leaf_weights),
    )  # fmt: skip
    scores, _ = aggregated(forest, leaves(forest, X), AGGREGATES[aggregate_function])
    return transformed(scores, TRANSFORM_NAMES[post_transform]).astype(X.dtype)


def members(mode, value, membership_values):
    """Returns the nodes' values, and the sets that some nodes compare with, padded with NaN.

    The values of such nodes are their rows of the sets.
    """
    nodes = mode == MODES.index(MEMBER)
    if not nodes.any():
        return value, value[:0]
    values = np.asarray(membership_values)
    ends = np.flatnonzero(np.isnan(values))
    sets = np.split(values, ends + 1)[: nodes.sum()]
    longest = max(map(len, sets))
    rows = [np.pad(x, (0, longest - len(x)), constant_values=np.nan) for x in sets]
    numbered = value.copy()
    numbered[nodes] = np.arange(len(rows))
    return numbered, np.stack(rows)
