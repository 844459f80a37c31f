"""jax.nn, jax.random, jax.scipy, jax.numpy.linalg and fft, jax.ops, jax.image."""

import functools

import jax
import jax.numpy as jnp
import jax.scipy as jsp
from jax import lax

from tests.conformance.stablehlo_cases.arguments import lines, named

NN = {
    "celu elu gelu glu hard_sigmoid hard_silu hard_tanh leaky_relu log_sigmoid log_softmax "
    "logsumexp mish relu relu6 selu sigmoid silu soft_sign softmax softplus sparse_plus "
    "sparse_sigmoid squareplus standardize logmeanexp": "f3,4",
    "log1mexp": "p5",
}
NN_ROWS = [
    ("one_hot", "j5", lambda i: jax.nn.one_hot(i, 4)),
    ("gelu_exact", "f9", lambda x: jax.nn.gelu(x, approximate=False)),
    ("attention", "f2,5,3,4 f2,6,3,4 f2,6,3,4", jax.nn.dot_product_attention),
    ("attention_causal", "f1,5,2,4 f1,5,2,4 f1,5,2,4",
     lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True)),
    ("softmax_where", "f3,4 b3,4", lambda x, b: jax.nn.softmax(x, where=b | (x < 9))),
    ("cross_entropy", "f6,4 j6",
     lambda x, i: -jnp.take_along_axis(jax.nn.log_softmax(x), i[:, None], 1).mean()),
    ("huber", "f6 f6", lambda x, y: jnp.where(abs(x - y) < 1, (x - y) ** 2 / 2, abs(x - y) - 0.5)),
    ("binary_cross_entropy", "f6 q6",
     lambda x, p: -(p * jax.nn.log_sigmoid(x) + (1 - p) * jax.nn.log_sigmoid(-x)).sum()),
    ("kl_divergence", "f6,4 f6,4",
     lambda x, y: (jax.nn.softmax(x) * (jax.nn.log_softmax(x) - jax.nn.log_softmax(y))).sum()),
]  # fmt: skip


def drawn(name, *args, **options):
    draw = getattr(jax.random, name)
    return lambda key, *params: draw(key, *params, *args, **options)


R = jax.random
RANDOM = [
    ("ball", "k", drawn("ball", 3, shape=(4,))),
    ("bernoulli", "k", drawn("bernoulli", 0.3, (9,))),
    ("beta", "k p4 p4", R.beta, 4096),
    ("binomial", "k", lambda k: R.binomial(k, 10.0, 0.3, (5,))),
    ("bits", "k", drawn("bits", (7,))),
    ("bits8", "k", drawn("bits", (7,), jnp.uint8)),
    ("categorical", "k f3,4", R.categorical),
    ("cauchy", "k", drawn("cauchy", (5,))),
    ("chisquare", "k p4", R.chisquare, 4096),
    ("choice", "k f9", lambda k, x: R.choice(k, x, (4,))),
    ("choice_without", "k f9", lambda k, x: R.choice(k, x, (4,), replace=False)),
    ("choice_weights", "k f5 q5", lambda k, x, p: R.choice(k, x, (4,), p=p / p.sum())),
    ("dirichlet", "k p4", R.dirichlet, 4096),
    ("double_sided_maxwell", "k", lambda k: R.double_sided_maxwell(k, 1.0, 2.0, (4,))),
    ("exponential", "k", drawn("exponential", (5,))),
    ("f", "k", lambda k: R.f(k, 3.0, 4.0, (4,)), 4096),
    ("fold_in", "k i", lambda k, i: R.fold_in(k, i)),
    ("gamma", "k p5", R.gamma, 4096),
    ("loggamma", "k p5", R.loggamma, 4096),
    ("generalized_normal", "k", lambda k: R.generalized_normal(k, 1.5, (4,)), 4096),
    ("geometric", "k q4", R.geometric),
    ("gumbel", "k", drawn("gumbel", (5,))),
    ("laplace", "k", drawn("laplace", (5,))),
    ("logistic", "k", drawn("logistic", (5,))),
    ("lognormal", "k p4", R.lognormal),
    ("maxwell", "k", drawn("maxwell", (4,))),
    ("multinomial", "k q4", lambda k, p: R.multinomial(k, 8.0, p / p.sum())),
    ("multivariate_normal", "k f3 m3,3", R.multivariate_normal),
    ("normal", "k", drawn("normal", (5,))),
    ("normal_bf16", "k", drawn("normal", (5,), jnp.bfloat16)),
    ("normal_complex", "k", drawn("normal", (5,), jnp.complex64)),
    ("orthogonal", "k", drawn("orthogonal", 3)),
    ("pareto", "k p4", R.pareto),
    ("permutation", "k f9", R.permutation),
    ("poisson", "k p4", R.poisson),
    ("rademacher", "k", drawn("rademacher", (5,))),
    ("randint", "k", drawn("randint", (5,), -3, 9)),
    ("rayleigh", "k p4", R.rayleigh),
    ("split", "k", drawn("split", 3)),
    ("t", "k p4", R.t, 4096),
    ("triangular", "k", lambda k: R.triangular(k, 0.0, 0.3, 1.0, (4,))),
    ("truncated_normal", "k", lambda k: R.truncated_normal(k, -1.0, 1.5, (5,))),
    ("uniform", "k", lambda k: R.uniform(k, (5,), minval=-1.0, maxval=3.0)),
    ("wald", "k p4", R.wald),
    ("weibull_min", "k p4 p4", R.weibull_min),
    ("typed_key", "i", lambda seed: R.normal(R.key(seed), (3,))),
    ("rbg_key", "i", lambda seed: R.uniform(R.key(seed, impl="rbg"), (3,))),
    ("dropout", "k f3,4", lambda k, x: jnp.where(R.bernoulli(k, 0.5, x.shape), x * 2, 0)),
]

SPECIAL = {
    "bessel_jn_ dawsn entr erf erfc erfcx expit i0 i0e i1 i1e log_ndtr ndtr log_softmax logsumexp "
    "softmax sici_ wofz_ fresnel": "f4",
    "digamma exp1 gamma gammaln gammasgn loggamma spence factorial": "p4",
    "erfinv": "u4",
    "logit ndtri": "q4",
    "expi": "p4",
    "beta betaln gammainc gammaincc kl_div rel_entr xlog1py xlogy boxcox boxcox1p poch comb": "p4 "
    "p4",
    "betainc": "p4 p4 q4",
    "zeta": "g4 p4",
    "sici": "p4",
    "hyp1f1": "p4 g4 u4",
    "owens_t": "f4 f4",
}  # fmt: skip
STATS = {
    "norm.pdf norm.logpdf norm.cdf norm.logcdf norm.sf norm.logsf cauchy.logpdf cauchy.cdf "
    "laplace.logpdf laplace.cdf logistic.logpdf logistic.cdf gumbel_l.logpdf gumbel_r.logpdf "
    "t.logpdf2": "f5",
    "norm.ppf cauchy.ppf logistic.ppf": "q5",
    "expon.logpdf": "p5",
    "beta.logpdf": "q4 g4 g4",
    "beta.cdf": "q4 g4 g4",
    "gamma.logpdf gamma.cdf chi2.logpdf chi2.cdf": "p4 g4",
    "t.logpdf": "f4 p4",
    "pareto.logpdf": "g4 p4",
    "truncnorm.logpdf": "u4 f4 g4",
    "uniform.logpdf": "q4",
    "vonmises.logpdf": "u4 p4",
    "wrapcauchy.logpdf": "p4 q4",
    "gennorm.logpdf": "f4 p4",
    "poisson.logpmf poisson.cdf": "i5 p5",
    "bernoulli.logpmf": "j5 q5",
    "geom.logpmf": "i5 q5",
    "multivariate_normal.logpdf": "f3 f3 m3,3",
    "dirichlet.logpdf_": "q3 p3",
}
STATS_ROWS = [
    ("binom.logpmf", "j5 q5", lambda k, p: jsp.stats.binom.logpmf(k, 5, p)),
    ("nbinom.logpmf", "i5 q5", lambda k, p: jsp.stats.nbinom.logpmf(k, 5.0, p)),
    ("betabinom.logpmf", "j5 p5 p5", lambda k, a, b: jsp.stats.betabinom.logpmf(k, 5, a, b)),
    ("gaussian_kde", "f9 f4", lambda x, y: jsp.stats.gaussian_kde(x)(y)),
    ("mode", "j9", jsp.stats.mode),
    ("rankdata", "f9", jsp.stats.rankdata),
    ("sem", "f4,5", jsp.stats.sem),
]
SPECIAL_ROWS = [
    ("multigammaln", "g4", lambda x: jsp.special.multigammaln(x, 2)),
    ("polygamma", "p4", lambda x: jsp.special.polygamma(1, x)),
    ("expn", "p4", lambda x: jsp.special.expn(2, x)),
    ("bernoulli", "f", lambda x: x * jsp.special.bernoulli(5)),
    ("bessel_jn", "p4", lambda x: jsp.special.bessel_jn(x, v=2, n_iter=30)),
    ("logsumexp_weights", "f3,4 f3,4", lambda x, b: jsp.special.logsumexp(x, 1, b=jnp.abs(b))),
]
SIGNAL = [
    ("convolve", "f9 f4", lambda x, y: jsp.signal.convolve(x, y, "same")),
    ("convolve2d", "f5,6 f3,3", lambda x, y: jsp.signal.convolve2d(x, y, "valid")),
    ("correlate", "f9 f4", jsp.signal.correlate),
    ("correlate2d", "f5,6 f3,3", lambda x, y: jsp.signal.correlate2d(x, y, "same")),
    ("detrend", "f4,9", jsp.signal.detrend, 4096),
    ("fftconvolve", "f9 f4", jsp.signal.fftconvolve),
    ("stft", "f32", lambda x: jsp.signal.stft(x, nperseg=8)[2]),
    ("istft", "f32", lambda x: jsp.signal.istft(jsp.signal.stft(x, nperseg=8)[2], nperseg=8)[1]),
    ("welch", "f32", lambda x: jsp.signal.welch(x, nperseg=8)[1]),
    ("csd", "f32 f32", lambda x, y: jsp.signal.csd(x, y, nperseg=8)[1]),
    ("map_coordinates", "f5,6 p7 p7",
     lambda x, i, j: jsp.ndimage.map_coordinates(x, [i, j], order=1)),
    ("trapezoid", "f5", jsp.integrate.trapezoid),
    ("grid_interpolator", "f4,5 q3,2", lambda v, x: jsp.interpolate.RegularGridInterpolator(
        (jnp.arange(4.0), jnp.arange(5.0)), v)(x * 3)),
]  # fmt: skip
FFT = [
    ("fft", "c8", jnp.fft.fft), ("ifft", "c3,8", jnp.fft.ifft), ("fft2", "c4,5", jnp.fft.fft2),
    ("ifft2", "c4,5", jnp.fft.ifft2), ("fftn", "f3,4,5", jnp.fft.fftn),
    ("ifftn", "c3,4,5", jnp.fft.ifftn), ("rfft", "f3,8", jnp.fft.rfft),
    ("irfft", "c3,5", jnp.fft.irfft), ("rfft2", "f4,6", jnp.fft.rfft2),
    ("irfft2", "c4,5", jnp.fft.irfft2), ("rfftn", "f3,4,6", jnp.fft.rfftn),
    ("irfftn", "c3,4,5", jnp.fft.irfftn), ("hfft", "c5", jnp.fft.hfft),
    ("ihfft", "f8", jnp.fft.ihfft), ("fftshift", "f5,4", jnp.fft.fftshift),
    ("rfft_odd", "f7", lambda x: jnp.abs(jnp.fft.rfft(x))),
    ("irfft_odd", "c4", lambda x: jnp.fft.irfft(x, 7)),
    ("axis", "f6,3", lambda x: jnp.real(jnp.fft.fft(x, axis=0))),
    ("dct", "f3,8", jsp.fft.dct), ("idct", "f3,8", jsp.fft.idct),
]  # fmt: skip
A = jnp.linalg
L = lax.linalg
LINALG = [
    ("cholesky", "m4,4", A.cholesky, 1024),
    ("cholesky_complex", "M3,3", A.cholesky, 1024),
    ("cholesky_upper", "m2,4,4", lambda x: A.cholesky(x, upper=True), 1024),
    ("cholesky_fails", "f3,3", lambda x: A.cholesky(x - 9 * jnp.eye(3))),
    ("cond", "f3,3", A.cond, 10**6),
    ("det", "f2,4,4", A.det, 1024),
    ("slogdet", "f4,4", A.slogdet, 1024),
    ("slogdet_complex", "c3,3", A.slogdet, 1024),
    ("eig", "f4,4", lambda x: jnp.sort(jnp.abs(A.eig(x)[0])), 10**5),
    ("eig_vectors", "f4,4", lambda x: A.eig(x), 10**5),
    ("eigvals", "c4,4", A.eigvals, 10**5),
    ("eigh", "m4,4", A.eigh, 10**5),
    ("eigh_complex", "M4,4", A.eigh, 10**5),
    ("eigh_batched", "m2,3,3", lambda x: A.eigh(x, UPLO="U"), 10**5),
    ("eigvalsh", "m4,4", A.eigvalsh, 10**4),
    ("inv", "f4,4", A.inv, 10**5),
    ("lstsq", "f5,3 f5", lambda a, b: A.lstsq(a, b)[0], 10**6),
    ("matrix_norm", "f3,4", lambda x: (A.matrix_norm(x), A.norm(x, 2), A.norm(x, "nuc")), 10**4),
    ("matrix_power", "f3,3", lambda x: A.matrix_power(x, 3)),
    ("matrix_power_negative", "m3,3", lambda x: A.matrix_power(x, -2), 10**5),
    ("matrix_rank", "f3,4", A.matrix_rank),
    ("multi_dot", "f2,3 f3,4 f4,2", lambda a, b, c: A.multi_dot([a, b, c])),
    ("norm", "f3,4", lambda x: (A.norm(x), A.norm(x, 1), A.norm(x, axis=0))),
    ("pinv", "f4,3", A.pinv, 10**6),
    ("qr", "f5,3", A.qr, 10**4),
    ("qr_complex", "c5,3", A.qr, 10**4),
    ("qr_complete", "f4,4", lambda x: A.qr(x, mode="complete"), 10**4),
    ("qr_wide", "f3,5", A.qr, 10**4),
    ("qr_batched", "f2,4,3", lambda x: A.qr(x, mode="r"), 10**4),
    ("solve", "f4,4 f4,2", A.solve, 10**5),
    ("solve_complex", "c3,3 c3", A.solve, 10**5),
    ("solve_batched", "m2,3,3 f2,3,2", A.solve, 10**5),
    ("svd", "f4,3", lambda x: A.svd(x, full_matrices=False), 10**5),
    ("svd_full", "f4,3", A.svd, 10**5),
    ("svd_complex", "c3,4", lambda x: A.svd(x, full_matrices=False), 10**5),
    ("svdvals", "f2,4,3", A.svdvals, 10**4),
    ("tensorinv", "f4,2,2", lambda x: A.tensorinv(x, 1), 10**5),
    ("tensorsolve", "f4,2,2 f4", A.tensorsolve, 10**5),
    ("expm", "u3,3", jsp.linalg.expm, 10**4),
    ("lu", "f4,4", jsp.linalg.lu, 1024),
    ("lu_wide", "f3,5", lambda x: jsp.linalg.lu(x), 1024),
    ("lu_factor", "f4,4", jsp.linalg.lu_factor, 1024),
    ("lu_solve", "f3,3 f3", lambda a, b: jsp.linalg.lu_solve(jsp.linalg.lu_factor(a), b), 10**5),
    ("cho_solve", "m3,3 f3", lambda a, b: jsp.linalg.cho_solve(jsp.linalg.cho_factor(a), b), 10**5),
    ("solve_triangular", "m3,3 f3,2", jsp.linalg.solve_triangular, 10**4),
    (
        "solve_triangular_lower",
        "m3,3 f3",
        lambda a, b: jsp.linalg.solve_triangular(a, b, trans=1, lower=True, unit_diagonal=True),
        10**4,
    ),
    (
        "solve_triangular_complex",
        "M3,3 c3,2",
        lambda a, b: jsp.linalg.solve_triangular(a, b, trans=2),
        10**4,
    ),
    (
        "triangular_right",
        "m3,3 f2,3",
        lambda a, b: L.triangular_solve(a, b, lower=True, left_side=False, transpose_a=True),
        10**4,
    ),
    ("sqrtm", "m3,3", jsp.linalg.sqrtm, 10**5),
    ("schur", "f4,4", jsp.linalg.schur, 10**5),
    ("schur_complex", "c3,3", jsp.linalg.schur, 10**5),
    ("hessenberg", "f4,4", lambda x: jsp.linalg.hessenberg(x, calc_q=True), 10**5),
    ("polar", "f3,3", lambda x: jsp.linalg.polar(x, method="svd"), 10**6),
    ("block_diag", "f2,2 f1,3", jsp.linalg.block_diag),
    ("toeplitz", "f4 f4", jsp.linalg.toeplitz),
    ("tridiagonal", "m4,4", L.tridiagonal, 10**4),
    ("tridiagonal_solve", "u4 g4 u4 f4,2", L.tridiagonal_solve, 10**4),
    (
        "eigh_tridiagonal",
        "f4 f3",
        lambda d, e: jsp.linalg.eigh_tridiagonal(d, e, eigvals_only=True),
        10**5,
    ),
    ("householder_product", "f4,3 p3", L.householder_product, 1024),
    (
        "symmetric_product",
        "f3,4 f3,3",
        lambda a, c: L.symmetric_product(a, c, symmetrize_output=True),
    ),
    ("qdwh", "f4,3", lambda x: L.qdwh(x)[0], 10**6),
    ("solve_sylvester", "m3,3 m3,3 f3,3", jsp.linalg.solve_sylvester, 10**6),
    ("funm", "m3,3", lambda x: jsp.linalg.funm(x, jnp.sin), 10**6),
]
SEGMENTS = [
    (name, "f9,2 j9", functools.partial(getattr(jax.ops, f"segment_{name}"), num_segments=4))
    for name in ("sum", "prod", "max", "min")
]


def resized(method, *shape, **options):
    return lambda x: jax.image.resize(x, shape, method, **options)


IMAGE = [
    ("nearest", "f2,5,6,3", resized("nearest", 2, 7, 4, 3)),
    ("linear", "f2,5,6,3", resized("linear", 2, 8, 9, 3)),
    ("linear_down", "f2,6,6,1", resized("linear", 2, 3, 4, 1)),
    ("cubic", "f5,6", resized("cubic", 8, 9)),
    ("lanczos3", "f7,6", resized("lanczos3", 4, 9)),
    ("lanczos5_plain", "f7,6", resized("lanczos5", 4, 9, antialias=False)),
    ("scale_and_translate", "f5,6 p2 u2",
     lambda x, s, t: jax.image.scale_and_translate(x, (7, 8), (0, 1), s, t, "linear")),
]  # fmt: skip


def statistics():
    found = {}
    for names, spec in STATS.items():
        for name in names.split():
            family, _, function = name.partition(".")
            if hasattr(getattr(jsp.stats, family), function):
                found |= lines(
                    "stats", [(name, spec, getattr(getattr(jsp.stats, family), function))]
                )
    return found


CASES = {
    **named("nn", jax.nn, NN),
    **lines("nn", NN_ROWS),
    **lines("random", RANDOM),
    **named("special", jsp.special, SPECIAL),
    **lines("special", SPECIAL_ROWS),
    **statistics(),
    **lines("stats", STATS_ROWS),
    **lines("signal", SIGNAL),
    **lines("fft", FFT),
    **lines("linalg", LINALG),
    **lines("segment", SEGMENTS),
    **lines("image", IMAGE),
}
