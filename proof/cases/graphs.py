"""Graph networks: torch-geometric's layers as its documentation calls them, models and pools.

No layer is told ``num_nodes`` or ``size``; those that add self loops do so. The second graph has as
many edges as the first and other self loops.
"""

import torch

from proof.cases import Arguments, Example, cases

NODES, EDGES, WIDTH = 7, 15, 4
OPEN = {"x": "nodes, _", "edge_index": "_, edges"}


def graph(others: bool, width: int = WIDTH) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the features of nodes, and edges with a self loop or two among them."""
    nodes, edges = (NODES + 3, EDGES + 4) if others else (NODES, EDGES)
    return torch.randn(nodes, width), torch.randint(nodes, (2, edges))


LAYERS = {
    "GCNConv": {},
    "GATConv": {"heads": 2},
    "GATv2Conv": {"heads": 2},
    "ChebConv": {"K": 3},
    "SAGEConv": {},
    "TransformerConv": {"heads": 2},
    "TAGConv": {},
    "SGConv": {"K": 2},
    "ARMAConv": {"num_stacks": 2, "num_layers": 2},
    "GraphConv": {},
    "LEConv": {},
    "SuperGATConv": {"heads": 2},
    "ClusterGCNConv": {},
    "MFConv": {},
    "ResGatedGraphConv": {},
    "FeaStConv": {"heads": 2},
    "GeneralConv": {},
    "GENConv": {},
    "MixHopConv": {},
    "EGConv": {"num_heads": 2},
    "DirGNNConv": {},
    "PANConv": {"filter_size": 2},
    "FiLMConv": {},
    "SSGConv": {"alpha": 0.1},
    "AntiSymmetricConv": {},
    "PDNConv": {"edge_dim": 3, "hidden_channels": 5},
}


@cases("torch-geometric", *LAYERS)
def layer(name: str) -> Example:
    from torch_geometric import nn

    if name == "DirGNNConv":
        module = nn.DirGNNConv(nn.SAGEConv(WIDTH, 6))
    elif name == "AntiSymmetricConv":
        module = nn.AntiSymmetricConv(WIDTH)
    elif name == "EGConv":
        module = nn.EGConv(WIDTH, 6, **LAYERS[name])
    elif name == "PANConv":
        module = First(nn.PANConv(WIDTH, 6, **LAYERS[name]))
    else:
        module = getattr(nn, name)(WIDTH, 6, **LAYERS[name])
    if name == "PDNConv":

        def inputs(others: bool) -> Arguments:
            x, edges = graph(others)
            return x, edges, torch.randn(edges.shape[1], 3)

        return Example(module, inputs, OPEN | {"edge_attr": "edges, _"})
    return Example(module, graph, OPEN)


class First(torch.nn.Module):
    """The first output of a layer: the others are of classes of its own."""

    def __init__(self, layer: torch.nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.layer(x, edge_index)[0]


def mlp(width: int, out: int) -> torch.nn.Module:
    """Returns the network that some layers are made of."""
    return torch.nn.Sequential(torch.nn.Linear(width, 8), torch.nn.ReLU(), torch.nn.Linear(8, out))


@cases("torch-geometric", "GINConv", "EdgeConv", "APPNP", "GatedGraphConv", "AGNNConv", "LGConv")
def one_argument(name: str) -> Example:
    from torch_geometric import nn

    module = {
        "GINConv": lambda: nn.GINConv(mlp(WIDTH, 6), train_eps=True),
        "EdgeConv": lambda: nn.EdgeConv(mlp(2 * WIDTH, 6)),
        "APPNP": lambda: nn.APPNP(3, 0.1),
        "GatedGraphConv": lambda: nn.GatedGraphConv(6, 2),
        "AGNNConv": lambda: nn.AGNNConv(),
        "LGConv": lambda: nn.LGConv(),
    }[name]()
    return Example(module, graph, OPEN)


@cases("torch-geometric", "FAConv", "GCN2Conv")
def with_first_features(name: str) -> Example:
    from torch_geometric import nn

    module = nn.FAConv(WIDTH) if name == "FAConv" else nn.GCN2Conv(WIDTH, 0.5)

    def inputs(others: bool) -> Arguments:
        x, edges = graph(others)
        return x, torch.randn_like(x), edges

    return Example(module, inputs, OPEN | {"x_0": "nodes, _"})


@cases("torch-geometric", "NNConv", "GINEConv", "CGConv", "GMMConv", "SplineConv", "GATConv edges")
def with_edge_features(name: str) -> Example:
    from torch_geometric import nn

    module = {
        "NNConv": lambda: nn.NNConv(WIDTH, 6, mlp(3, WIDTH * 6)),
        "GINEConv": lambda: nn.GINEConv(mlp(WIDTH, 6), edge_dim=3),
        "CGConv": lambda: nn.CGConv(WIDTH, dim=3),
        "GMMConv": lambda: nn.GMMConv(WIDTH, 6, dim=3, kernel_size=2),
        "SplineConv": lambda: nn.SplineConv(WIDTH, 6, dim=3, kernel_size=2),
        "GATConv edges": lambda: nn.GATConv(WIDTH, 6, heads=2, edge_dim=3),
    }[name]()

    def inputs(others: bool) -> Arguments:
        x, edges = graph(others)
        return x, edges, torch.rand(edges.shape[1], 3)

    return Example(module, inputs, OPEN | {"edge_attr": "edges, _"})


@cases("torch-geometric", "RGCNConv", "FastRGCNConv", "RGATConv")
def with_edge_types(name: str) -> Example:
    from torch_geometric import nn

    module = getattr(nn, name)(WIDTH, 6, num_relations=3)

    def inputs(others: bool) -> Arguments:
        x, edges = graph(others)
        return x, edges, torch.randint(3, (edges.shape[1],))

    return Example(module, inputs, OPEN | {"edge_type": "edges"})


@cases("torch-geometric", "PointNetConv", "PPFConv", "PointTransformerConv")
def of_points(name: str) -> Example:
    from torch_geometric import nn

    if name == "PointNetConv":
        module = nn.PointNetConv(mlp(WIDTH + 3, 6))
    elif name == "PPFConv":
        module = nn.PPFConv(mlp(WIDTH + 4, 6))
    else:
        module = nn.PointTransformerConv(WIDTH, 6)

    def inputs(others: bool) -> Arguments:
        x, edges = graph(others)
        pos = torch.randn(len(x), 3)
        normal = (torch.nn.functional.normalize(torch.randn(len(x), 3)),)
        return x, pos, *(normal if name == "PPFConv" else ()), edges

    return Example(module, inputs, OPEN | {"pos": "nodes, _"})


@cases("torch-geometric", "HypergraphConv")
def hypergraph(name: str) -> Example:
    from torch_geometric import nn

    return Example(nn.HypergraphConv(WIDTH, 6), graph, {"x": "nodes, _"})


@cases("torch-geometric", "GCN", "GraphSAGE", "GIN", "GAT", "PNA", "EdgeCNN")
def model(name: str) -> Example:
    from torch_geometric import nn

    further = {}
    if name == "PNA":
        further = {
            "aggregators": ["mean", "min", "max", "std"],
            "scalers": ["identity", "amplification", "attenuation"],
            "deg": torch.tensor([0, 3, 2, 1]),
        }
    module = getattr(nn, name)(WIDTH, 8, num_layers=2, out_channels=3, **further)
    return Example(module, graph, OPEN)


def batched(others: bool) -> Arguments:
    """Returns the features of nodes in several graphs, and which graph each is of."""
    nodes = NODES + 3 if others else NODES
    batch = torch.sort(torch.cat([torch.arange(3), torch.randint(3, (nodes - 3,))])).values
    return torch.randn(nodes, WIDTH), batch


@cases(
    "torch-geometric", "global_mean_pool", "global_add_pool", "global_max_pool", "to_dense_batch"
)
def pool(name: str) -> Example:
    from torch_geometric import nn, utils

    function = utils.to_dense_batch if name == "to_dense_batch" else getattr(nn, name)
    return Example(
        lambda x, batch: function(x, batch), batched, {"x": "nodes, _", "batch": "nodes"}
    )


@cases("torch-geometric", "AttentionalAggregation", "Set2Set", "SoftmaxAggregation", "GraphNorm")
def aggregation(name: str) -> Example:
    from torch_geometric import nn

    module = {
        "AttentionalAggregation": lambda: nn.AttentionalAggregation(mlp(WIDTH, 1)),
        "Set2Set": lambda: nn.Set2Set(WIDTH, 2),
        "SoftmaxAggregation": lambda: nn.SoftmaxAggregation(learn=True),
        "GraphNorm": lambda: nn.GraphNorm(WIDTH),
    }[name]()
    names = ("x", "batch" if name == "GraphNorm" else "index")
    return Example(module, batched, {names[0]: "nodes, _", names[1]: "nodes"})


@cases("torch-geometric", "TopKPooling", "SAGPooling")
def pooling(name: str) -> Example:
    from torch_geometric import nn

    module = First(getattr(nn, name)(WIDTH, ratio=0.5))
    return Example(module, graph, OPEN)


def all_pairs(pos: torch.Tensor, batch: torch.Tensor) -> Arguments:
    """Returns the pairs of a molecule with their lengths: radius_graph needs pyg-lib."""
    atoms = torch.arange(pos.shape[0])
    source, target = torch.cartesian_prod(atoms, atoms[1:] - 1).T
    target = target + (target >= source)
    return torch.stack([source, target]), (pos[source] - pos[target]).norm(dim=-1)


@cases("torch-geometric", "SchNet", "DimeNet++")
def molecule(name: str) -> Example:
    from torch_geometric import nn

    if name == "SchNet":
        module = nn.SchNet(16, 16, 2, 10, interaction_graph=all_pairs)
    else:
        module = nn.DimeNetPlusPlus(16, 1, 2, 8, 8, 8, 3, 4)

    def inputs(others: bool) -> Arguments:
        atoms = NODES + 1 if others else NODES
        return torch.randint(1, 9, (atoms,)), 2 * torch.rand(atoms, 3)

    return Example(module, inputs, {"z": "atoms", "pos": "atoms, _"})
