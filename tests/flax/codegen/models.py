"""Modules as people write them, small: what source code is written from in the tests."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.flax.codegen import resized, tables


class MLP(nn.Module):
    def __init__(self, width=16, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Linear(8 if i == 0 else width, width) for i in range(depth)]
        )
        self.out = nn.Linear(width, 4)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        for layer in self.layers:
            x = self.drop(F.relu(layer(x)))
        return self.out(x)


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(16 * 4 * 4, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        return self.fc(self.drop(torch.flatten(x, 1)))


class BasicBlock(nn.Module):
    def __init__(self, inplanes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            shortcut = nn.Conv2d(inplanes, planes, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(planes))

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = nn.Sequential(BasicBlock(8, 8), BasicBlock(8, 8))
        self.layer2 = nn.Sequential(BasicBlock(8, 16, 2), BasicBlock(16, 16))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer1(x)
        x = self.layer2(x)
        x = torch.flatten(self.avgpool(x), 1)
        return self.fc(x)


class DoubleConv(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(inside, outside, 3, padding=1),
            nn.GroupNorm(2, outside),
            nn.SiLU(),
            nn.Conv2d(outside, outside, 3, padding=1),
            nn.SiLU(),
        )

    def forward(self, x):
        return self.net(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = DoubleConv(3, 8)
        self.down2 = DoubleConv(8, 16)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.up1 = DoubleConv(16, 8)
        self.out = nn.Conv2d(8, 1, 1)

    def forward(self, x):
        skip = self.down1(x)
        x = self.down2(F.max_pool2d(skip, 2))
        x = torch.cat([self.up(x), skip], dim=1)
        return self.out(self.up1(x))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 12, num_layers=2, batch_first=True, bidirectional=True)
        self.tag = nn.Linear(24, 5)

    def forward(self, tokens):
        hidden, _ = self.lstm(self.embed(tokens))
        return self.tag(hidden)


class GRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.gru = nn.GRU(16, 12, batch_first=True)
        self.out = nn.Linear(12, 5)

    def forward(self, tokens):
        _, last = self.gru(self.embed(tokens))
        return self.out(last[-1])


class VAE(nn.Module):
    def __init__(self, latent=4):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 16), nn.ReLU())
        self.mu = nn.Linear(16, latent)
        self.logvar = nn.Linear(16, latent)
        self.decoder = nn.Sequential(nn.Linear(latent, 16), nn.ReLU(), nn.Linear(16, 20))

    def forward(self, x):
        hidden = self.encoder(x)
        mu, logvar = self.mu(hidden), self.logvar(hidden)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu) if self.training else mu
        return torch.sigmoid(self.decoder(z)), mu, logvar


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.ConvTranspose2d(8, 16, 4, 1, 0, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(True),
            nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.net(z[:, :, None, None])


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 4, 1, 0)
        )

    def forward(self, x):
        return self.net(x).view(x.size(0), -1).mean(1)


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        attn = (q @ k.transpose(-2, -1)) * (C // self.heads) ** -0.5
        x = (attn.softmax(-1) @ v).transpose(1, 2).reshape(B, N, C)
        return self.proj(x)


class ViTBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 4 * dim), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * dim, dim)
        )

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, dim=16, depth=2):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 4, 4)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(torch.randn(1, 65, dim) * 0.02)
        self.blocks = nn.ModuleList([ViTBlock(dim, 4) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        cls = self.cls.expand(x.shape[0], -1, -1)
        x = torch.cat([cls, x], 1) + self.pos
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(16, 3)

    def forward(self, x):
        return self.out(self.encoder(x))


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = nn.Transformer(16, 4, 1, 1, 32, batch_first=True)

    def forward(self, source, target):
        return self.transformer(source, target)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 8)
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 30, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(torch.tanh(self.body(self.embed(tokens))))


class TiedWithBias(Tied):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(8, 30)
        self.head.weight = self.embed.weight


class Standardized(nn.Module):
    """Weights of mean 0 and variance 1 in each call, and a list that begins with Flatten."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 3, 3))
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x):
        rows = self.weight.reshape(1, 4, -1)
        weight = F.batch_norm(rows, None, None, training=True, momentum=0.0).view_as(self.weight)
        return self.head(F.adaptive_avg_pool2d(F.conv2d(x, weight, padding=1), 1))


class Separable(nn.Module):
    """A list whose modules are called in several runs, functions between them."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(3, 6, 3), nn.ReLU()])
        for _ in range(2):
            depthwise = nn.Conv2d(6, 6, 3, groups=6)
            self.layers += [depthwise, nn.Conv2d(6, 6, 1), nn.ReLU()]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Written(nn.Module):
    """Writes to parts of what it has computed."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))
        self.gate = nn.Linear(6, 1)

    def forward(self, x):
        y = (x * self.scale).clone()
        part = y[:, 1:3]
        part += 1
        y[:, 0] = y[:, 3] * 2
        y[:, 4:] *= 2
        with torch.no_grad():
            frozen = y.sum(-1, keepdim=True)
            gate = self.gate(x)
        return y.relu_() * gate / (1 + frozen.abs())


class Pooled(nn.Module):
    """Means over single dimensions of a picture, and dropout as a function."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)

    def forward(self, x):
        x = F.dropout(self.conv(x), 0.2, self.training)
        return x.mean(2), x.mean(3).sum(1), x.amax(1), x.mean((2, 3)), x.mean((0, 2), keepdim=True)


class Arguments(nn.Module):
    """Arguments that are easily passed over."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x):
        x = F.interpolate(0.1 * self.conv(x), scale_factor=2, mode="nearest")
        rows = x.flatten(2)
        square = torch.baddbmm(rows @ rows.mT, rows, rows.mT, beta=0.5, alpha=2)
        return x, square, rows.logsumexp(-1, keepdim=True), x.mean((2, 3), dtype=torch.float64)


def ids(*shape):
    return torch.randint(0, 30, shape, generator=torch.Generator().manual_seed(0))


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


# The module, an example of its inputs, inputs of other sizes.
CASES = {
    "mlp": (MLP, (drawn(5, 8),), (drawn(3, 8),)),
    "cnn": (CNN, (drawn(4, 3, 16, 16),), (drawn(2, 3, 16, 16),)),
    "resnet": (ResNet, (drawn(2, 3, 32, 32),), (drawn(3, 3, 48, 40),)),
    "unet": (UNet, (drawn(2, 3, 16, 16),), (drawn(3, 3, 24, 20),)),
    "tagger": (Tagger, (ids(3, 7),), (ids(2, 9),)),
    "gru": (GRU, (ids(3, 7),), (ids(2, 9),)),
    "vae": (VAE, (drawn(4, 20),), (drawn(2, 20),)),
    "generator": (Generator, (drawn(2, 8),), (drawn(3, 8),)),
    "discriminator": (Discriminator, (drawn(2, 3, 8, 8),), (drawn(3, 3, 8, 8),)),
    "vit": (ViT, (drawn(2, 3, 32, 32),), (drawn(3, 3, 32, 32),)),
    "encoder": (Encoder, (drawn(2, 7, 16),), (drawn(3, 5, 16),)),
    "translator": (
        Translator,
        (drawn(2, 7, 16), drawn(2, 5, 16)),
        (drawn(3, 4, 16), drawn(3, 6, 16)),
    ),
    "tied": (Tied, (ids(2, 6),), (ids(3, 4),)),
    "tied, biased": (TiedWithBias, (ids(2, 6),), (ids(3, 4),)),
    "arguments": (Arguments, (drawn(2, 3, 8, 9),), (drawn(3, 3, 7, 6),)),
    "pooled": (Pooled, (drawn(2, 3, 8, 9),), (drawn(3, 3, 7, 6),)),
    "standardized": (Standardized, (drawn(2, 3, 8, 9),), (drawn(3, 3, 7, 8),)),
    "separable": (Separable, (drawn(2, 3, 8, 9),), (drawn(3, 3, 7, 8),)),
    "written": (Written, (drawn(2, 6),), (drawn(3, 6),)),
    **resized.CASES,
    **tables.CASES,
}
