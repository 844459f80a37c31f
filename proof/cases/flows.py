"""Densities: the flows of zuko, nflows and sbi, and pyro's distributions."""

import torch

from proof.cases import Arguments, Example, cases

ZUKO = {
    "MAF": {"transforms": 2, "hidden_features": (8, 8)},
    "NSF": {"transforms": 2, "hidden_features": (8, 8), "bins": 4},
    "NAF": {"transforms": 1, "hidden_features": (8, 8)},
    "NICE": {"transforms": 2, "hidden_features": (8, 8)},
    "SOSPF": {"transforms": 2, "hidden_features": (8, 8)},
    "BPF": {"transforms": 2, "hidden_features": (8, 8)},
    "GMM": {"components": 3},
    "CNF": {"hidden_features": (8, 8)},
}


class Conditioned(torch.nn.Module):
    """A method of the distribution that a flow gives for a context."""

    def __init__(self, flow: torch.nn.Module, draw: bool = False):
        super().__init__()
        self.flow, self.draw = flow, draw

    def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
        if self.draw:
            return self.flow(context).sample((3,))
        return self.flow(context).log_prob(x)


def pair(others: bool) -> Arguments:
    """Returns points and contexts."""
    rows = 7 if others else 5
    return torch.randn(rows, 3), torch.randn(rows, 2)


OPEN = {"x": "rows, _", "context": "rows, _"}


@cases("zuko", *ZUKO)
def zuko(name: str) -> Example:
    import zuko

    return Example(Conditioned(getattr(zuko.flows, name)(3, 2, **ZUKO[name])), pair, OPEN)


@cases("zuko", "MAF sample", "NSF sample")
def zuko_sample(name: str) -> Example:
    import zuko

    kind = name.split()[0]
    flow = getattr(zuko.flows, kind)(3, 2, **ZUKO[kind])
    return Example(Conditioned(flow, draw=True), pair, random=True)


class Density(torch.nn.Module):
    """The log density of an unconditional flow, or the noise of points and back."""

    def __init__(self, flow: torch.nn.Module, back: bool = False):
        super().__init__()
        self.flow, self.back = flow, back

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.back:
            return self.flow._transform.inverse(x)[0]
        return self.flow.log_prob(x)


@cases(
    "nflows", "affine autoregressive", "spline autoregressive", "spline coupling", "LU", "inverse"
)
def nflows(name: str) -> Example:
    from nflows import distributions, flows, transforms
    from nflows.nn.nets import ResidualNet

    net = lambda i, o: ResidualNet(i, o, hidden_features=8, num_blocks=1)
    affine = transforms.MaskedAffineAutoregressiveTransform(4, 8)
    transform = {
        "affine autoregressive": lambda: affine,
        "spline autoregressive": (
            lambda: transforms.MaskedPiecewiseRationalQuadraticAutoregressiveTransform(
                4, 8, num_bins=4, tails="linear", tail_bound=3.0
            )
        ),
        "spline coupling": lambda: transforms.PiecewiseRationalQuadraticCouplingTransform(
            torch.tensor([1, 0, 1, 0]), net, num_bins=4, tails="linear", tail_bound=3.0
        ),
        "LU": lambda: transforms.LULinear(4, identity_init=False),
        "inverse": lambda: affine,
    }[name]()
    whole = transforms.CompositeTransform([transforms.ReversePermutation(4), transform])
    flow = flows.Flow(whole, distributions.StandardNormal([4]))
    module = Density(flow, back=name == "inverse")
    return Example(module, lambda others: (torch.randn(5 + 2 * others, 4),), {"x": "rows, _"})


@cases("sbi", "maf", "nsf", "mdn", "zuko_nsf")
def sbi(name: str) -> Example:
    from sbi.neural_nets import posterior_nn

    theta, x = torch.randn(50, 3), torch.randn(50, 2)
    flow = posterior_nn(name, hidden_features=8, num_transforms=2)(theta, x)

    class Estimator(torch.nn.Module):
        """The log density of parameters for observations."""

        def __init__(self):
            super().__init__()
            self.flow = flow

        def forward(self, x: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
            return self.flow.log_prob(x[None], condition=context)

    return Example(Estimator(), pair, OPEN)


@cases("sbi", "classifier")
def ratio(name: str) -> Example:
    from sbi.neural_nets import classifier_nn

    net = classifier_nn("resnet", hidden_features=8)(torch.randn(50, 3), torch.randn(50, 2))
    return Example(net, pair)


DISTRIBUTIONS = {
    "Normal": lambda d, a, b: d.Normal(a, b),
    "Gamma": lambda d, a, b: d.Gamma(b, b + 1),
    "LowRankMultivariateNormal": lambda d, a, b: d.LowRankMultivariateNormal(
        a, b[..., None], b + 1
    ),
    "AffineBeta": lambda d, a, b: d.AffineBeta(b + 1, b + 2, a - 9, 20 + b),
    "AsymmetricLaplace": lambda d, a, b: d.AsymmetricLaplace(a, b, b + 1),
    "SkewLogistic": lambda d, a, b: d.SkewLogistic(a, b),
    "Stable": lambda d, a, b: d.StudentT(b + 2, a, b),
    "SineSkewed": lambda d, a, b: d.VonMises(a, b),
}


@cases("pyro-ppl", *DISTRIBUTIONS)
def distribution(name: str) -> Example:
    import pyro.distributions

    def log_prob(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        value = x.abs() + 0.1 if name == "Gamma" else x
        return DISTRIBUTIONS[name](pyro.distributions, a, b).log_prob(value)

    def inputs(others: bool) -> Arguments:
        rows = 6 if others else 4
        return torch.randn(rows, 3), torch.randn(rows, 3), torch.rand(rows, 3) + 0.5

    return Example(log_prob, inputs, dict.fromkeys("xab", "rows, _"))


@cases("pyro-ppl", "AutoRegressiveNN", "spline", "conditional_affine_autoregressive")
def transform(name: str) -> Example:
    import pyro.distributions as dist
    from pyro.distributions import transforms
    from pyro.nn import AutoRegressiveNN

    if name == "AutoRegressiveNN":
        return Example(AutoRegressiveNN(4, [8]), lambda others: (torch.randn(5, 4),))
    if name == "spline":
        part = transforms.Spline(4, count_bins=4)
    else:
        part = transforms.affine_autoregressive(4, [8])

    class Flow(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.part = part

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            base = dist.Normal(torch.zeros(4), torch.ones(4)).to_event(1)
            return dist.TransformedDistribution(base, [self.part]).log_prob(x)

    return Example(Flow(), lambda others: (torch.randn(5 + others, 4),), {"x": "rows, _"})
