"""What everybody does with a Model, on one from ONNX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import anyjax
from anyjax.errors import (
    DataDependent,
    MissingRng,
    StaticArgument,
    UncheckedValues,
    Unsupported,
    WrongArguments,
)
from tests.onnx.agree import model, normal

TEXT = """net (float[n, 8] x) => (float[n, 4] y)
{ a1 = MatMul(x, w1) c1 = Add(a1, b1) h1 = Relu(c1)
  a2 = MatMul(h1, w2) c2 = Add(a2, b2) h2 = Relu(c2)
  a3 = MatMul(h2, w3) c3 = Add(a3, b3) h3 = Relu(c3)
  y = MatMul(h3, w4) }"""


@pytest.fixture(scope="module")
def proto():
    weights = {f"{k}{i}": normal(8, 8) if k == "w" else normal(8) for i in (1, 2, 3) for k in "wb"}
    return model(TEXT, weights={**weights, "w4": normal(8, 4)})


@pytest.fixture(scope="module")
def net(proto):
    return anyjax.from_onnx(proto)


X = normal(8, 8)


def test_jit_grad_and_vmap(net):
    want = net(X)
    np.testing.assert_allclose(jax.jit(net.apply)(net.params, X), want, rtol=1e-5, atol=1e-5)
    gradient = jax.grad(lambda p: net.apply(p, X).sum())(net.params)
    assert gradient.keys() == net.params.keys() and np.abs(gradient["w1"]).max() > 0
    rows = jax.vmap(lambda x: net.apply(net.params, x[None]))(X)
    np.testing.assert_allclose(rows[:, 0], want, rtol=1e-5, atol=1e-5)


def test_save_and_load_with_any_batch(net, tmp_path):
    shape = jax.export.symbolic_shape("b, 8")
    net.save(tmp_path / "m", jax.ShapeDtypeStruct(shape, np.float32))
    loaded = anyjax.load(tmp_path / "m")
    for n in (1, 5):
        np.testing.assert_allclose(loaded(X[:n]), net(X[:n]), rtol=1e-5, atol=1e-5)


def test_shard(net):
    sharded = anyjax.parallel.shard(net, jax.make_mesh((8,), ("data",)), plan="fsdp")
    assert len(sharded.params["w1"].sharding.device_set) == 8
    np.testing.assert_allclose(sharded(X), net(X), rtol=1e-5, atol=1e-5)


def test_roll(net):
    rolled = anyjax.transforms.roll(net, X)
    assert "w1|w2|w3" in rolled.params
    np.testing.assert_allclose(rolled(X), net(X), rtol=1e-5, atol=1e-5)


def test_quantize(net):
    small = anyjax.transforms.quantize(net, "int8")
    assert sum(x.nbytes for x in jax.tree.leaves(small.params)) < 0.6 * sum(
        x.nbytes for x in net.params.values()
    )
    assert np.abs(small(X) - net(X)).max() < 0.05 * np.abs(net(X)).max()


def test_to_nnx(net):
    module = anyjax.flax.to_nnx(net)
    np.testing.assert_allclose(module(X), net(X), rtol=1e-5, atol=1e-5)


def test_values_inside_are_read_and_edited(net):
    _, values = anyjax.transforms.intermediates(net, r"^h\d$")(X)
    assert [*values] == ["h1", "h2", "h3"] and values["h1"].shape == (8, 8)
    assert not np.asarray(anyjax.transforms.edit(net, {"^h3$": lambda h: 0 * h})(X)).any()
    with pytest.raises(WrongArguments, match="no module has a path with 'h9'"):
        anyjax.transforms.intermediates(net, "h9")(X)


def test_onnx_that_anyjax_wrote_comes_back(net, tmp_path):
    anyjax.export.to_onnx(net, tmp_path / "m.onnx", X)
    again = anyjax.convert(tmp_path / "m.onnx")
    np.testing.assert_allclose(again(X), net(X), rtol=1e-5, atol=1e-5)


def test_weights_go_back(net):
    other = net.with_params(jax.tree.map(lambda x: x + 1, net.params))
    proto = other.source.write_back(other.params, other.state)
    np.testing.assert_allclose(anyjax.from_onnx(proto)(X), other(X), rtol=1e-5)


def test_sources_and_examples(proto, net, tmp_path):
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    for source in (proto, proto.SerializeToString(), tmp_path / "m.onnx", str(tmp_path / "m.onnx")):
        np.testing.assert_array_equal(anyjax.convert(source)(X), net(X))
    with pytest.raises(WrongArguments, match=r"'x' is float32\[8, 7\]"):
        anyjax.from_onnx(proto, X[:, :7])


def test_examples_that_decide_shapes():
    shape = np.array([3, 2])
    text = "m (float[n, k] x, int64[2] shape) => (float[a, b] y) {y = Reshape(x, shape)}"
    converted = anyjax.from_onnx(model(text), X[:2, :3], shape)
    with pytest.warns(StaticArgument):
        assert converted(X[:2, :3], shape).shape == (3, 2)
    with pytest.raises(DataDependent, match="NonZero"):
        anyjax.from_onnx(model("m (float[n] x) => (int64[1, a] y) {y = NonZero(x)}"), X[0])


def test_wrong_arguments(net):
    np.testing.assert_array_equal(net(x=X), net(X))
    with pytest.raises(WrongArguments, match=r"missing a required argument: 'x'"):
        net()
    with pytest.raises(
        WrongArguments, match=r"unexpected keyword argument 'z'[\s\S]*its inputs: x"
    ):
        net(X, z=X)
    with pytest.raises(WrongArguments, match=r"'x' is int32\[8, 8\][\s\S]*takes float\[n, 8\]"):
        net(X.astype(np.int32))
    with pytest.raises(Unsupported, match="no training mode"):
        net.train()


def test_names_that_are_no_identifiers_and_several_outputs():
    proto = model(
        "m (float[2] x, float[2] z) => (float[2] b, float[2] a) { b = Add(x, z) a = Sub(x, z) }"
    )
    proto.graph.input[0].name = proto.graph.node[0].input[0] = proto.graph.node[1].input[0] = (
        "input.1"
    )
    converted = anyjax.from_onnx(proto)
    one, two = np.float32([1, 2]), np.float32([3, 4])
    for out in (
        converted(one, two),
        converted(**{"input.1": one, "z": two}),
        converted(input_1=one, z=two),
    ):
        assert [*out] == ["b", "a"] and out["a"].tolist() == [-2, -2]


def test_errors_name_the_node_and_the_argument():
    text = "m (float[6] x, int64[2] s) => (float[a, b] y) { [here] y = Reshape(x, s) }"
    converted = anyjax.from_onnx(model(text))
    with pytest.raises(DataDependent, match=r"node 'here' \(Reshape\)[\s\S]*s decided it"):
        jax.jit(lambda s: converted.apply({}, normal(6), s))(np.int64([2, 3]))
    with pytest.warns(anyjax.errors.StaticArgument, match="s"):
        assert converted(normal(6), np.int64([2, 3])).shape == (2, 3)
    with pytest.raises(ValueError) as error:
        converted.apply({}, normal(6), np.int64([4, 3]))
    assert any("node 'here' (Reshape)" in note for note in error.value.__notes__)


def test_random_operators_take_a_key():
    converted = anyjax.from_onnx(
        model("m (float[50] x) => (float[50] y) { y = RandomUniformLike(x) }")
    )
    one, two = (converted(np.zeros(50, np.float32), rng=jax.random.key(i)) for i in (0, 1))
    assert 0 < float(one.min()) < float(one.max()) < 1 and not jnp.array_equal(one, two)
    with pytest.raises(MissingRng, match=r"rng=jax\.random\.key"):
        converted(np.zeros(50, np.float32))


WIDE: dict = dict.fromkeys(
    [
        "Add(a, b)", "Mul(a, b)", "Sum(a, b, a)", "Pow(a, c)", "MatMul(m, m)", "Gemm(m, m)",
        'Einsum<equation="i,i->">(a, b)', "CumSum(a, z)", "ReduceSum(a)", "ReduceProd(a)",
        "ReduceL1(a)", "ReduceSumSquare(a)", 'ScatterElements<axis=0, reduction="add">(a, i, b)',
        'ScatterND<reduction="mul">(a, j, b)', "Cast<to=7>(f)", "Cast<to=7>(u)",
    ],
    None,
)  # fmt: skip
WIDE |= {
    "Sub(a, b)": {"b": -1},
    "Neg(a)": {"a": -2},
    "Abs(a)": {"a": -2},
    "ReduceL2(a)": {"a": 1.9},
}
WIDE |= {"Div(a, b)": {"a": -2, "b": -(2.0**-30)}, "Add(a, one)": {"a": 2 - 2**-30}}


@pytest.mark.parametrize("node", WIDE)
def test_integers_that_32_bits_do_not_hold(node):
    """Each has values of 2**30, or as many times that as the table says."""
    inputs = "int64[2] a, int64[2] b, int64[2,2] m, float[1] f, uint32[1] u, float[1] x"
    text = f"m ({inputs}) => (int64[n] z, float[1] g) {{ z = {node} g = Relu(x) }}"
    constants = {"c": [2, 1], "z": 0, "i": [0, 0], "j": [[0], [0]], "one": [1]}
    names = {x.strip("() ") for x in node.replace("(", ",").split(",")}
    run = anyjax.from_onnx(
        model(text, weights={k: np.int64(v) for k, v in constants.items() if k in names})
    )
    scale = lambda name: (WIDE[node] or {}).get(name, 1) * 2**30
    large = {"a": np.int64([scale("a")] * 2), "b": np.int64([scale("b"), 2]), "x": np.float32([1])}
    large |= {
        "m": np.int64([[2**30, 1], [5, 2**30]]),
        "f": np.float32([3e9]),
        "u": np.uint32([2**31]),
    }
    small = {k: (x % 7 + 2).astype(x.dtype) for k, x in large.items()}
    assert np.isfinite(run(**small)["g"]).all()
    for call in (run, lambda **x: run.apply({}, **jax.tree.map(jnp.asarray, x))):
        with pytest.raises(Unsupported, match="jax_enable_x64"):
            call(**large)
    if "one" not in node:  # a next position, which a program does not check
        assert np.isnan(jax.jit(run.apply)({}, **large)["g"]).all()


def test_products_in_a_branch_say_that_they_are_not_checked():
    branch = "then_branch = t () => (int64[1] y) { y = Mul(a, a) }"
    other = "else_branch = e () => (int64[1] y) { y = Identity(a) }"
    run = anyjax.from_onnx(
        model(f"m (int64[1] a, bool b) => (int64[1] z) {{ z = If<{branch}, {other}>(b) }}")
    )
    with pytest.warns(UncheckedValues, match="Mul of 64-bit integers inside a loop or branch"):
        jax.jit(run.apply)({}, np.int64([3]), np.True_)


def test_the_mean_of_integers_does_not_wrap():
    run = anyjax.from_onnx(model("m (int64[3] a) => (int64[1] z) { z = ReduceMean(a) }"))
    a = np.int64([2**30 + 7, 5, 2**30 + 7])
    assert run(a).item() == a.sum() // 3


def test_integers_of_32_bits_wrap():
    run = anyjax.from_onnx(model("m (int32[1] a) => (int32[1] z) { b = Mul(a, a) z = Add(b, a) }"))
    assert run(np.int32([2**20])).tolist() == [2**20]
