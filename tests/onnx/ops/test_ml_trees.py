"""Random forests of all kinds of nodes, against onnxruntime."""

import jax
import numpy as np
import pytest
from onnx import numpy_helper

import anyjax
from anyjax.errors import Unsupported, WrongArguments
from tests.onnx.with_onnxruntime import assert_agrees, node

pytestmark = pytest.mark.sample(every=4)

RNG = np.random.default_rng(1)
X = RNG.integers(-4, 5, (20, 5)).astype(np.float32)
X[RNG.random(X.shape) < 0.2] = np.nan
MODES = [f"BRANCH_{x}" for x in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")]
TARGET = ("target_treeids", "target_nodeids", "target_ids", "target_weights")
CLASS = ("class_treeids", "class_nodeids", "class_ids", "class_weights")
COLUMNS = (
    "nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_modes", "nodes_values",
    "nodes_truenodeids", "nodes_falsenodeids", "nodes_missing_value_tracks_true",
)  # fmt: skip


def forest(modes, ids, names, depth=4, positive=False):
    """Returns the attributes of six random trees; ``ids(tree)`` are the targets of its leaves."""
    nodes, leaves = [], []

    def grow(tree, depth, count):
        row, here = len(nodes), count[0]
        count[0] += 1
        nodes.append((tree, here, 0, "LEAF", 0.0, 0, 0, 0))
        if depth == 0 or (here and RNG.random() < 0.2):
            weights = RNG.standard_normal(10).astype(np.float32)
            weights = np.abs(weights) if positive else weights
            leaves.extend((tree, here, i, float(weights[i])) for i in ids(tree))
        else:
            value, feature, flag = (int(RNG.integers(*x)) for x in ((-3, 4), (5,), (2,)))
            branches = grow(tree, depth - 1, count), grow(tree, depth - 1, count)
            mode = str(RNG.choice(modes))
            nodes[row] = (tree, here, feature, mode, float(value), *branches, flag)
        return here

    for tree in range(6):
        grow(tree, depth, [0])
    columns = dict(zip(COLUMNS, map(list, zip(*nodes))))
    return columns | dict(zip(names, map(list, zip(*leaves))))


@pytest.mark.parametrize("modes", [*([x] for x in MODES), MODES], ids=[*MODES, "all"])
def test_modes(modes):
    attributes = forest(modes, lambda tree: [0], TARGET) | dict(n_targets=1)
    assert_agrees("ai.onnx.ml::TreeEnsembleRegressor", {"X": X}, **attributes)


@pytest.mark.parametrize("function", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("ids", [lambda tree: range(3), lambda tree: [tree % 3]])
def test_aggregates(function, ids):
    attributes = forest(MODES, ids, TARGET) | dict(n_targets=3, base_values=[0.1, 0.2, 0.3])
    how = attributes | dict(aggregate_function=function, post_transform="SOFTMAX")
    assert_agrees("ai.onnx.ml::TreeEnsembleRegressor", {"X": X}, **how)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("case", ["first", "second", "both", "three", "based"])
def test_classifier(positive, transform, case):
    ids = {"first": [0], "second": [1], "both": [0, 1], "based": [0]}
    of = ids.get(case)
    attributes = forest(MODES[:2], lambda tree: of or [tree % 3], CLASS, positive=positive)
    attributes |= dict(classlabels_int64s=[0, 1] if of else [4, 2, 9], post_transform=transform)
    attributes |= dict(base_values=[0.1]) if case == "based" else {}
    assert_agrees("ai.onnx.ml::TreeEnsembleClassifier", {"X": X}, 2, **attributes)


def test_base_values_of_two_classes_are_refused():
    attributes = forest(MODES, lambda tree: [0], CLASS) | dict(classlabels_int64s=[0, 1])
    model = node(
        "ai.onnx.ml::TreeEnsembleClassifier", {"X": X}, 2, base_values=[0.1, 0.2], **attributes
    )
    with pytest.raises(Unsupported, match="two classes with base values"):
        anyjax.from_onnx(model)(X)


def test_too_few_features():
    attributes = forest(MODES, lambda tree: [0], TARGET) | dict(n_targets=1)
    model = anyjax.from_onnx(
        node("ai.onnx.ml::TreeEnsembleRegressor", {"X": X[:, :2]}, **attributes)
    )
    with pytest.raises(WrongArguments, match="rows of 2 features"):
        model(X[:, :2])


def test_no_gradient_for_the_features():
    attributes = forest(MODES[:1], lambda tree: [0], TARGET) | dict(n_targets=1)
    model = anyjax.from_onnx(node("ai.onnx.ml::TreeEnsembleRegressor", {"X": X}, **attributes))
    apply = lambda x: model.apply(model.params, x)
    assert not jax.grad(lambda x: apply(x).sum())(X).any()
    assert (jax.vmap(apply)(X[None])[0] == apply(X)).all()


def drawn_trees(modes, targets):
    """Returns the nodes, leaves, sets and roots of random trees."""
    rows, leaves, sets = [], [], {}

    def grow(depth):
        if depth == 0 or (depth < 4 and RNG.random() < 0.2):
            leaves.append((int(RNG.integers(targets)), RNG.standard_normal()))
            return len(leaves) - 1, 1
        row, mode = len(rows), int(RNG.choice(modes))
        rows.append(None)
        value, feature, flag = (int(RNG.integers(*x)) for x in ((-3, 4), (5,), (2,)))
        if mode == 6:
            sets[row] = sorted({float(x) for x in RNG.integers(1, 5, 3)})
        rows[row] = (feature, mode, value, flag, *grow(depth - 1), *grow(depth - 1))
        return row, 0

    roots = [grow(4)[0] for _ in range(5)]
    return rows, leaves, sets, roots


def ensemble(modes, targets):
    """Returns the attributes of a TreeEnsemble."""
    rows, leaves, sets, roots = drawn_trees(modes, targets)
    feature, mode, value, flag, true, true_leaf, false, false_leaf = map(list, zip(*rows))
    tensor = lambda values, dtype: numpy_helper.from_array(np.array(values, dtype))
    members = [x for row in sorted(sets) for x in (*sets[row], np.nan)]
    return dict(
        leaf_targetids=[x for x, _ in leaves], n_targets=targets, tree_roots=roots,
        leaf_weights=tensor([x for _, x in leaves], np.float32), nodes_featureids=feature,
        nodes_modes=tensor(mode, np.uint8), nodes_splits=tensor(value, np.float32),
        nodes_truenodeids=true, nodes_trueleafs=true_leaf, nodes_falsenodeids=false,
        nodes_falseleafs=false_leaf, nodes_missing_value_tracks_true=flag,
        **(dict(membership_values=tensor(members, np.float32)) if members else {}),
    )  # fmt: skip


@pytest.mark.parametrize("modes", [range(6), [6], range(7)], ids=["numbers", "sets", "all"])
@pytest.mark.parametrize("function", range(4))
def test_tree_ensemble(modes, function):
    how = ensemble(modes, 3) | dict(aggregate_function=function, post_transform=3 * (function % 2))
    assert_agrees("ai.onnx.ml::TreeEnsemble", {"X": X}, opsets={"ai.onnx.ml": 5}, **how)
