"""Gaussian processes: gpytorch's kernels, posteriors and likelihoods; botorch's acquisitions."""

import torch

from proof.cases import Arguments, Example, cases

KERNELS = {
    "RBFKernel": {"ard_num_dims": 3},
    "MaternKernel": {"nu": 2.5},
    "MaternKernel 0.5": {"nu": 0.5},
    "RQKernel": {},
    "PeriodicKernel": {},
    "LinearKernel": {},
    "PolynomialKernel": {"power": 2},
    "CosineKernel": {},
    "SpectralMixtureKernel": {"num_mixtures": 2, "ard_num_dims": 3},
    "PiecewisePolynomialKernel": {"q": 2},
}


@cases("gpytorch", *KERNELS, wide=True)
def kernel(name: str) -> Example:
    from gpytorch import kernels

    module = getattr(kernels, name.partition(" ")[0])(**KERNELS[name])

    class Covariance(torch.nn.Module):
        """The matrix of a kernel, scaled."""

        def __init__(self):
            super().__init__()
            self.kernel = kernels.ScaleKernel(module)

        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.kernel(x, y).to_dense()

    def inputs(others: bool) -> Arguments:
        return torch.rand(6 + others, 3), torch.rand(4 + others, 3)

    return Example(Covariance(), inputs, {"x": "rows, _", "y": "columns, _"})


def exact(x: torch.Tensor, y: torch.Tensor) -> torch.nn.Module:
    """Returns the regression of gpytorch's first tutorial."""
    import gpytorch

    class Regression(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            mean, covariance = self.mean_module(x), self.covar_module(x)
            return gpytorch.distributions.MultivariateNormal(mean, covariance)

    return Regression(gpytorch.likelihoods.GaussianLikelihood())


@cases("gpytorch", "posterior", "likelihood of new values", wide=True)
def posterior(name: str) -> Example:
    x = torch.rand(12, 2)
    model = exact(x, torch.sin(4 * x).sum(1))

    class Posterior(torch.nn.Module):
        """Mean and variance at new points."""

        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> Arguments:
            out = self.model(x)
            if name != "posterior":
                out = self.model.likelihood(out)
            return out.mean, out.variance

    return Example(Posterior(), lambda others: (torch.rand(5 + others, 2),), {"x": "rows, _"})


@cases("gpytorch", "marginal likelihood", wide=True)
def marginal(name: str) -> Example:
    import gpytorch

    x = torch.rand(12, 2)
    model = exact(x, torch.zeros(12))

    class Marginal(torch.nn.Module):
        """What its tutorial maximizes."""

        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, y: torch.Tensor) -> torch.Tensor:
            likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, self.model)
            return likelihood(self.model(x), y)

    return Example(Marginal(), lambda others: (torch.randn(12),), train=True)


@cases("gpytorch", "variational", wide=True)
def variational(name: str) -> Example:
    import gpytorch
    from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

    class Approximate(gpytorch.models.ApproximateGP):
        def __init__(self):
            points = torch.rand(5, 2)
            strategy = VariationalStrategy(self, points, CholeskyVariationalDistribution(5))
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            mean, covariance = self.mean_module(x), self.covar_module(x)
            return gpytorch.distributions.MultivariateNormal(mean, covariance)

    class Moments(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = Approximate()

        def forward(self, x: torch.Tensor) -> Arguments:
            out = self.model(x)
            return out.mean, out.variance

    module = Moments()
    module(torch.rand(6, 2))  # which draws the parameters of its distribution
    return Example(module, lambda others: (torch.rand(6 + others, 2),), {"x": "rows, _"})


ACQUISITIONS = {
    "LogExpectedImprovement": {"best_f": 0.5},
    "ExpectedImprovement": {"best_f": 0.5},
    "UpperConfidenceBound": {"beta": 0.2},
    "ProbabilityOfImprovement": {"best_f": 0.5},
    "PosteriorMean": {},
    "qExpectedImprovement": {"best_f": 0.5},
    "qLogExpectedImprovement": {"best_f": 0.5},
    "qUpperConfidenceBound": {"beta": 0.2},
}


@cases("botorch", *ACQUISITIONS, wide=True)
def acquisition(name: str) -> Example:
    from botorch import acquisition
    from botorch.models import SingleTaskGP
    from botorch.sampling import SobolQMCNormalSampler

    x = torch.rand(10, 2)
    model = SingleTaskGP(x, torch.sin(4 * x).sum(1, keepdim=True))
    options = dict(ACQUISITIONS[name])
    if name.startswith("q"):
        options["sampler"] = SobolQMCNormalSampler(torch.Size([16]), seed=0)
    module = getattr(acquisition, name)(model, **options)
    rows = 2 if name.startswith("q") else 1
    return Example(module, lambda others: (torch.rand(4 + others, rows, 2),), {"X": "batch, _, _"})
