# SPDX-License-Identifier: Apache-2.0
"""The operations of the core as PyTorch has them, in f64, with bounds for what f32 may differ by.

Tolerances. u = 2^-24 is the rounding of f32. A sum of k products in any order differs by at most k u sum|a b| (Higham,
Accuracy and Stability of Numerical Algorithms, 3.1); the roundings of a long sum are a random walk, of which eight
deviations are 8 sqrt(k) u sum|a b|. gamma(k) is the smaller of both, and a few roundings more for what comes after.
sum|a b|, the *magnitude* of a result, is what the same operation makes of absolute values. So

  forward    each result is compared with the f64 result of the very f32 numbers that the core's operation got:
             bound = gamma(k) * magnitude, whatever came before
  backward   the f64 chain is taken at the core's own f32 results (a ReLU or a pool decides as it did in the core), so
             that only the roundings on the way back differ. They are linear: an operation multiplies the magnitude by
             the absolute values of its derivatives, and adds its gamma. bound = (sum of gammas) * magnitude
  losses     are computed in double precision: one rounding of the result
  a step     of an optimiser or of running statistics starts from the core's f32 state: a few roundings of the terms

Batch normalisation subtracts a mean, so that its magnitudes have |x| + mean|x| where the result has x - mean(x); its
deviation has a relative error of gamma(k) * R with R = 1 + 2 mean(|x - mean| (|x| + mean|x|)) / (variance + epsilon).
"""
import math

import torch
import torch.nn.functional as F

U = 2.0 ** -24
TINY = 1e-37  # numbers below are denormal in f32


def gamma(terms):
    return U * (4 + min(terms, 8 * math.sqrt(terms)))


class Forced(torch.autograd.Function):
    """The core's number in place of the reference's; gradients pass."""

    @staticmethod
    def forward(_, made, core):
        return core.clone()

    @staticmethod
    def backward(_, gradient):
        return gradient, None


def padded(x, window, fill):
    (height, width) = window["padding"]
    return F.pad(x, (width, width, height, height), value=fill)


def max_pool(node, x):
    window = node["window"]
    # PyTorch refuses a padding of more than half of the side.
    if all(2 * pad <= side for pad, side in zip(window["padding"], window["side"])):
        return F.max_pool2d(x, window["side"], window["stride"], window["padding"])
    return F.max_pool2d(padded(x, window, -math.inf), window["side"], window["stride"])


def average_pool(node, x):
    window = node["window"]
    if all(2 * pad <= side for pad, side in zip(window["padding"], window["side"])):
        return F.avg_pool2d(x, window["side"], window["stride"], window["padding"])
    return F.avg_pool2d(padded(x, window, 0.0), window["side"], window["stride"])


def convolution(node, x, w, b):
    return F.conv2d(x, w, b, node["window"]["stride"], node["window"]["padding"])


def dropout(node, x):
    return x * node["mask"]


def batch_norm(node, x, scale, shift):
    return F.batch_norm(x, None, None, scale, shift, training=True, eps=node["epsilon"])


def batch_norm_as_given(node, x, scale, shift):
    return F.batch_norm(x, node["mean"], node["variance"], scale, shift, training=False, eps=node["epsilon"])


FUNCTIONS = {
    "matmul": lambda node, a, b: a @ b,
    "linear": lambda node, x, w, b: F.linear(x, w.t(), b),
    "convolution": convolution,
    "max_pool": max_pool,
    "average_pool": average_pool,
    "relu": lambda node, x: F.relu(x),
    "sigmoid": lambda node, x: torch.sigmoid(x),
    "add": lambda node, a, b: a + b.reshape(()) if b.numel() == 1 else a + b,
    "subtract": lambda node, a, b: a - b.reshape(()) if b.numel() == 1 else a - b,
    "multiply": lambda node, a, b: a * b.reshape(()) if b.numel() == 1 else a * b,
    "scale": lambda node, x: node["factor"] * x,
    "dropout": dropout,
    "reshape": lambda node, x: x.reshape(node["shape"]),
    "flatten": lambda node, x: torch.flatten(x, 1),
    "concat": lambda node, *parts: torch.cat(parts, node["axis"]),
    "sum": lambda node, x: x.sum(),
    "mean": lambda node, x: x.mean(),
    "sum_axis": lambda node, x: x.sum(node["axis"]),
    "mean_axis": lambda node, x: x.mean(node["axis"]),
    "batch_norm": batch_norm,
    "batch_norm_over_ranks": batch_norm,
    "batch_norm_as_given": batch_norm_as_given,
}
# Linear in each input: absolute values make magnitudes. The others have derivatives that are not negative.
LINEAR = {"matmul", "linear", "convolution", "average_pool", "add", "subtract", "multiply", "scale", "dropout",
          "reshape", "flatten", "concat", "sum", "mean", "sum_axis", "mean_axis"}


def terms(op, xs, y):
    """The longest sum in f32 of an operation and of its way back. Sums and means add in double precision."""
    if op in ("matmul", "linear"):
        return max(xs[0].shape[0], *xs[1].shape)
    if op == "convolution":
        weights = xs[1]
        each = weights[0, 0].numel()
        return max(weights.shape[1] * each, weights.shape[0] * each, y.numel() // weights.shape[0])
    if op.endswith("_pool"):
        return 64  # elements of a window, or windows over an element
    if op in ("add", "subtract", "multiply"):
        return max(1, xs[0].numel() // max(1, xs[1].numel()))
    if op.startswith("batch_norm"):
        return xs[0].numel() // max(1, xs[0].shape[1])
    return 2


class Normalised:
    """What the bounds of batch normalisation need, by channel and shaped to be multiplied with x."""

    def __init__(self, node, x, scale):
        self.axes = [axis for axis in range(x.dim()) if axis != 1]
        self.shape = [1, -1] + [1] * (x.dim() - 2)
        given = "mean" in node
        mean = node["mean"].reshape(self.shape) if given else x.mean(self.axes, keepdim=True)
        around = (x - mean).abs()
        variance = node["variance"].reshape(self.shape) if given else (around ** 2).mean(self.axes, keepdim=True)
        level = mean.abs() if given else x.abs().mean(self.axes, keepdim=True)
        self.given = given
        self.variance = variance
        self.slip = x.abs() + level  # times gamma: the error of x - mean
        lift = (around * self.slip).mean(self.axes, keepdim=True) / (variance + node["epsilon"])
        self.r = 1.0 if given else 1.0 + 2.0 * lift
        self.inverse = 1.0 / torch.sqrt(variance + node["epsilon"])
        self.high = self.inverse * self.slip
        self.factor = scale.abs().reshape(self.shape) * self.inverse

    def forward(self, scale, shift):
        return self.r * scale.abs().reshape(self.shape) * self.high + shift.abs().reshape(self.shape)

    def backward(self, a):
        product = a * self.high
        by_x = a
        if not self.given:
            by_x = a + a.mean(self.axes, keepdim=True) + self.high * product.mean(self.axes, keepdim=True)
        return [self.factor * self.r * by_x, (self.r * product).sum(self.axes), a.sum(self.axes)]


def forward_magnitude(node, xs, y):
    op = node["op"]
    if op == "subtract":
        return FUNCTIONS["add"](node, xs[0].abs(), xs[1].abs())
    if op in LINEAR:
        return FUNCTIONS[op](node, *(x.abs() for x in xs)).abs()
    if op.startswith("batch_norm"):
        return Normalised(node, xs[0], xs[1]).forward(xs[1], xs[2])
    return y.abs()


def backward_magnitudes(node, xs, a):
    """By each input; `a` is the magnitude of the gradient by the result."""
    op = node["op"]
    if op.startswith("batch_norm"):
        return Normalised(node, xs[0], xs[1]).backward(a)
    if op == "sigmoid":
        return [a * torch.sigmoid(xs[0])]  # y (1 - y), of which 1 - y has an error of u
    at = [(x.abs() if op in LINEAR else x).detach().requires_grad_() for x in xs]
    y = FUNCTIONS[op](node, *at)
    return [by.abs() for by in torch.autograd.grad(y, at, a)]


def loss(part, outputs, targets):
    """(value, sum over samples, how many are right or None); targets is None for outputs without any."""
    op, batch = part["op"], part["global_batch"]
    if op == "weighted_sum":
        return (outputs * targets).sum(), None, None
    if op == "softmax_cross_entropy":
        labels = targets.long()
        total = F.cross_entropy(outputs, labels, reduction="sum")
        right = int((outputs.argmax(1) == labels).sum())
    elif op == "binary_cross_entropy":
        total = F.binary_cross_entropy_with_logits(outputs.reshape(-1), targets, reduction="sum")
        right = int(((outputs.reshape(-1) > 0) == (targets == 1)).sum())
    else:
        each = outputs.numel() // max(1, outputs.shape[0])
        total = F.mse_loss(outputs, targets.reshape(outputs.shape), reduction="sum") / max(1, each)
        right = 0
    return total / batch, total, right
