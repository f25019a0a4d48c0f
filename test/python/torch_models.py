# SPDX-License-Identifier: Apache-2.0
"""Small models with what trips an averager, and their batches."""
import torch

BATCH = 12  # divides by 1, 2 and 3 ranks


class Features(torch.nn.Module):
    """With tied weights, channels-last memory, a frozen parameter and a buffer."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last)
        self.first = torch.nn.Linear(16, 6)
        self.tied = torch.nn.Linear(16, 6)
        self.tied.weight = self.first.weight
        self.frozen = torch.nn.Parameter(torch.ones(6), requires_grad=False)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, images):
        features = self.conv(images.to(memory_format=torch.channels_last)).relu().contiguous().flatten(1)
        return (self.first(features) + self.tied(features * 0.5)) * self.frozen


class Unused(Features):
    """Has a parameter that nothing uses."""

    def __init__(self):
        super().__init__()
        self.unused = torch.nn.Parameter(torch.ones(3))


class Optional(Features):
    """Counts its passes, and has a part that may be left out."""

    def __init__(self):
        super().__init__()
        self.extra = torch.nn.Linear(6, 6)

    def forward(self, images, extra=True):
        self.count += 1
        values = super().forward(images)
        return self.extra(values) if extra else values


def data(step):
    generator = torch.Generator().manual_seed(100 + step)
    return torch.randn(BATCH, 2, 4, 4, generator=generator), torch.randn(BATCH, 6, generator=generator)
