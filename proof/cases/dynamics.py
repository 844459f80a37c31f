"""Differential equations and operators: torchdiffeq, torchsde, neuraloperator, torch-harmonics."""

import torch

from proof.cases import Arguments, Example, cases


class Field(torch.nn.Module):
    """The right-hand side of a differential equation."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)
        )

    def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.net(y) * torch.cos(t)


class Solved(torch.nn.Module):
    """Solutions at some times, those of the module or of the call."""

    def __init__(self, method: str, adjoint: bool, options: dict):
        super().__init__()
        self.field, self.method, self.adjoint, self.options = Field(), method, adjoint, options

    def forward(self, y: torch.Tensor, t: torch.Tensor | None = None) -> torch.Tensor:
        import torchdiffeq

        solve = torchdiffeq.odeint_adjoint if self.adjoint else torchdiffeq.odeint
        times = torch.linspace(0.0, 1.0, 5) if t is None else t
        return solve(self.field, y, times, method=self.method, **self.options)


METHODS = (
    "euler",
    "midpoint",
    "rk4",
    "explicit_adams",
    "implicit_adams",
    "dopri5",
    "bosh3",
)
TIGHT = {"rtol": 1e-9, "atol": 1e-11}


@cases("torchdiffeq", *METHODS, "rk4 adjoint", "dopri5 adjoint", "rk4 step_size", "rk4 of times",
       wide=True)  # fmt: skip
def solver(name: str) -> Example:
    method, _, rest = name.partition(" ")
    options = {"options": {"step_size": 0.05}} if rest == "step_size" else {}
    if method not in METHODS[:5]:
        options = {"rtol": 1e-6, "atol": 1e-8}
    if rest == "adjoint":
        options = TIGHT if method == "dopri5" else {}

    def inputs(others: bool) -> Arguments:
        times = (torch.linspace(0.0, 1.0, 5),) if rest == "of times" else ()
        return torch.randn(4 + others, 2), *times

    return Example(Solved(method, rest == "adjoint", options), inputs, {"y": "batch, _"})


@cases("torchdiffeq", "event", wide=True)
def event(name: str) -> Example:
    import torchdiffeq

    def fall(y: torch.Tensor) -> Arguments:
        field = lambda t, y: torch.stack([y[1], torch.full_like(y[1], -9.8)])
        return torchdiffeq.odeint_event(
            field, y, torch.zeros(()), event_fn=lambda t, y: y[0], method="dopri5"
        )

    return Example(fall, lambda others: (torch.rand(2) + 1,))


@cases("torchsde", "euler", "milstein", "srk", "euler_heun", "adjoint")
def stochastic(name: str) -> Example:
    import torchsde

    class Equation(torch.nn.Module):
        """Drift and diagonal noise, solved along one path."""

        noise_type = "diagonal"
        sde_type = "stratonovich" if name in ("euler_heun", "adjoint") else "ito"

        def __init__(self):
            super().__init__()
            self.drift, self.noise = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

        def f(self, t, y):
            return self.drift(y)

        def g(self, t, y):
            return torch.sigmoid(self.noise(y))

        def forward(self, y: torch.Tensor) -> torch.Tensor:
            times = torch.linspace(0, 1, 3)
            solve = torchsde.sdeint_adjoint if name == "adjoint" else torchsde.sdeint
            method = "midpoint" if name == "adjoint" else name
            return solve(self, y, times, dt=0.25, method=method)

    return Example(Equation(), lambda others: (torch.randn(4 + others, 2),), random=True)


@cases("torchsde", "a path given")
def path(name: str) -> Example:
    import torchsde

    class Path:
        """A Brownian path of given increments."""

        def __init__(self, steps: torch.Tensor):
            self.steps, self.dtype, self.device = steps, steps.dtype, steps.device
            self.shape, self.levy_area_approximation = steps.shape[1:], "none"

        def __call__(self, ta, tb=None, **_):
            return self.steps[round(float(ta) * len(self.steps))]

    class Equation(torch.nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.drift, self.noise = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

        def f(self, t, y):
            return self.drift(y)

        def g(self, t, y):
            return torch.sigmoid(self.noise(y))

        def forward(self, y: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
            times = torch.linspace(0, 1, 3)
            return torchsde.sdeint(self, y, times, bm=Path(steps), dt=0.25, method="euler")

    def inputs(others: bool) -> Arguments:
        return torch.randn(4 + others, 2), 0.5 * torch.randn(4, 4 + others, 2)

    return Example(Equation(), inputs, {"y": "batch, _", "steps": "_, batch, _"})


@cases("neuraloperator", "FNO", "FNO 1d", "TFNO", "UNO", "SFNO", "FNOGNO")
def operator(name: str) -> Example:
    from neuralop import models

    size = {"in_channels": 2, "out_channels": 1, "hidden_channels": 8}
    field = lambda others: (torch.randn(2 + others, 2, 16, 16),)
    if name == "FNO 1d":
        module = models.FNO(n_modes=(6,), n_layers=2, **size)
        field = lambda others: (torch.randn(2 + others, 2, 16),)
        return Example(module, field, {"x": "batch, _, _"})
    if name == "UNO":
        module = models.UNO(
            **size, uno_out_channels=[8, 8, 8], uno_n_modes=[[4, 4]] * 3, n_layers=3,
            channel_mlp_skip="linear", uno_scalings=[[1.0, 1.0], [0.5, 0.5], [2, 2]],
        )  # fmt: skip
    elif name == "FNOGNO":
        module = models.FNOGNO(
            in_channels=1, out_channels=1, fno_n_modes=(4, 4), fno_hidden_channels=8,
            fno_n_layers=1, gno_coord_dim=2, gno_radius=0.4, gno_use_open3d=False,
        )  # fmt: skip
        grid = torch.stack(
            torch.meshgrid(torch.linspace(0, 1, 6), torch.linspace(0, 1, 6), indexing="ij"), -1
        )
        return Example(
            lambda x, f: module(grid, x, f), lambda others: (torch.rand(5, 2), torch.randn(6, 6, 1))
        )
    else:
        modes = (8, 8) if name == "SFNO" else (4, 4)
        module = getattr(models, name)(n_modes=modes, n_layers=2, **size)
    return Example(module, field, {"x": "batch, _, _, _"})


@cases("neuraloperator", "H1Loss", "LpLoss")
def loss(name: str) -> Example:
    from neuralop import losses

    module = getattr(losses, name)(d=2)
    field = lambda others: (torch.randn(2, 1, 8, 8), torch.randn(2, 1, 8, 8))
    return Example(lambda x, y: module(x, y), field)


@cases("torch-harmonics", "RealSHT", "InverseRealSHT", "RealVectorSHT", "round trip")
def transform(name: str) -> Example:
    import torch_harmonics as harmonics

    forward, inverse = harmonics.RealSHT(8, 16), harmonics.InverseRealSHT(8, 16)
    field = lambda others: (torch.randn(2 + others, 8, 16),)
    if name == "RealSHT":
        return Example(Parts(forward), field, {"x": "batch, _, _"})
    if name == "RealVectorSHT":
        module = Parts(harmonics.RealVectorSHT(8, 16))
        return Example(module, lambda others: (torch.randn(2 + others, 2, 8, 16),))
    if name == "round trip":
        return Example(torch.nn.Sequential(forward, inverse), field)
    return Example(
        lambda re, im: inverse(torch.complex(re, im)),
        lambda others: tuple(torch.randn(2, 2, forward.lmax, forward.mmax)),
    )


class Parts(torch.nn.Module):
    """Complex numbers as real and imaginary parts."""

    def __init__(self, module: torch.nn.Module):
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(self.module(x))


@cases("torch-harmonics", "DiscreteContinuousConvS2", "AttentionS2", "ResampleS2")
def on_the_sphere(name: str) -> Example:
    import torch_harmonics as harmonics

    if name == "DiscreteContinuousConvS2":
        module = harmonics.DiscreteContinuousConvS2(
            2, 3, (8, 16), (8, 16), 3, theta_cutoff=0.8, optimized_kernel=False
        )
    elif name == "AttentionS2":
        module = harmonics.AttentionS2(4, 2, (8, 16), (8, 16))
    else:
        module = harmonics.ResampleS2(8, 16, 6, 12)
    channels = 4 if name == "AttentionS2" else 2
    return Example(module, lambda others: (torch.randn(2, channels, 8, 16),))
