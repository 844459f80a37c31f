"""Networks that know rotations: e3nn."""

import itertools

import torch

from proof.cases import Arguments, Example, cases

IRREPS = "4x0e + 3x1o + 2x2e"


@cases("e3nn", "Linear", "BatchNorm", "Gate", "NormActivation", "Extract", "S2Activation")
def layer(name: str) -> Example:
    from e3nn import nn, o3

    irreps = o3.Irreps(IRREPS)
    module = {
        "Linear": lambda: o3.Linear(irreps, "3x0e + 2x1o"),
        "BatchNorm": lambda: nn.BatchNorm(irreps),
        "Gate": lambda: nn.Gate("4x0e", [torch.relu], "5x0e", [torch.sigmoid], "3x1o + 2x2e"),
        "NormActivation": lambda: nn.NormActivation(irreps, torch.sigmoid),
        "Extract": lambda: nn.Extract(irreps, ["4x0e", "2x2e"], [(0,), (2,)]),
        "S2Activation": lambda: nn.S2Activation("0e + 1o + 2e", torch.relu, 8),
    }[name]()
    width = o3.Irreps("4x0e + 5x0e + 3x1o + 2x2e").dim if name == "Gate" else irreps.dim
    width = 9 if name == "S2Activation" else width
    return Example(module, lambda others: (torch.randn(4 + others, width),))


@cases("e3nn", "FullyConnectedTensorProduct", "FullTensorProduct", "ElementwiseTensorProduct",
       "TensorSquare", "weights given")  # fmt: skip
def product(name: str) -> Example:
    from e3nn import o3

    left, right = o3.Irreps(IRREPS), o3.Irreps("1x0e + 1x1o")
    if name == "weights given":
        module = o3.FullyConnectedTensorProduct(left, right, "3x0e + 2x1o", shared_weights=False)

        def inputs(others: bool) -> Arguments:
            rows = 4 + others
            weights = torch.randn(rows, module.weight_numel)
            return torch.randn(rows, left.dim), torch.randn(rows, right.dim), weights

        return Example(module, inputs)
    if name == "TensorSquare":
        module = o3.TensorSquare(left)
        return Example(module, lambda others: (torch.randn(4 + others, left.dim),))
    if name == "ElementwiseTensorProduct":
        module, right = o3.ElementwiseTensorProduct(left, left), left
    elif name == "FullTensorProduct":
        module = o3.FullTensorProduct(left, right)
    else:
        module = o3.FullyConnectedTensorProduct(left, right, "3x0e + 2x1o")

    def inputs(others: bool) -> Arguments:
        return torch.randn(4 + others, left.dim), torch.randn(4 + others, right.dim)

    return Example(module, inputs)


@cases("e3nn", "spherical_harmonics", "SphericalHarmonics", "soft_one_hot_linspace", "wigner_D",
       "ReducedTensorProducts")  # fmt: skip
def function(name: str) -> Example:
    from e3nn import math, o3

    if name == "spherical_harmonics":
        harmonics = lambda x: o3.spherical_harmonics([0, 1, 2, 3], x, normalize=True)
        return Example(harmonics, lambda others: (torch.randn(5 + others, 3),), {"x": "rows, _"})
    if name == "SphericalHarmonics":
        module = o3.SphericalHarmonics([0, 1, 2], True, normalization="component")
        return Example(module, lambda others: (torch.randn(5 + others, 3),), {"x": "rows, _"})
    if name == "soft_one_hot_linspace":
        embed = lambda x: math.soft_one_hot_linspace(x, 0.0, 2.0, 6, "smooth_finite", cutoff=True)
        return Example(embed, lambda others: (2 * torch.rand(5 + others),), {"x": "rows"})
    if name == "wigner_D":
        return Example(
            lambda a, b, c: o3.wigner_D(2, a, b, c), lambda others: tuple(torch.rand(3, 4))
        )
    module = o3.ReducedTensorProducts("ij=-ji", i="3x0e + 1o")
    return Example(module, lambda others: (torch.randn(4, 6), torch.randn(4, 6)))


@cases("e3nn", "convolution", "SimpleNetwork")
def network(name: str) -> Example:
    from e3nn import nn, o3
    from e3nn.math import soft_one_hot_linspace

    class Convolution(torch.nn.Module):
        """The convolution of e3nn's guide, as many layers as its irreps."""

        def __init__(self, *irreps: str):
            super().__init__()
            self.products, self.nets = torch.nn.ModuleList(), torch.nn.ModuleList()
            self.harmonics = o3.Irreps.spherical_harmonics(2)
            for before, after in itertools.pairwise(irreps):
                product = o3.FullyConnectedTensorProduct(
                    before, self.harmonics, after, shared_weights=False
                )
                self.products.append(product)
                self.nets.append(
                    nn.FullyConnectedNet([5, 8, product.weight_numel], torch.nn.functional.silu)
                )

        def forward(self, x: torch.Tensor, pos: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            source, target = edges
            vector = pos[source] - pos[target]
            harmonics = o3.spherical_harmonics(
                self.harmonics, vector, normalize=True, normalization="component"
            )
            lengths = soft_one_hot_linspace(
                vector.norm(dim=1), 0.0, 3.0, 5, basis="smooth_finite", cutoff=True
            )
            for product, net in zip(self.products, self.nets):
                messages = product(x[source], harmonics, net(lengths))
                x = messages.new_zeros(x.shape[0], messages.shape[1]).index_add(0, target, messages)
            return x

    def inputs(others: bool) -> Arguments:
        nodes, edges = (6, 14) if others else (5, 10)
        source = torch.randint(nodes, (edges,))
        target = (source + torch.randint(1, nodes, (edges,))) % nodes
        return torch.randn(nodes, 2), torch.randn(nodes, 3), torch.stack([source, target])

    irreps = ["2x0e", "3x0e + 2x1o", "1x0e"] if name == "SimpleNetwork" else ["2x0e", "0e + 1o"]
    sizes = {"x": "nodes, _", "pos": "nodes, _", "edges": "_, edges"}
    return Example(Convolution(*irreps), inputs, sizes)
