# SPDX-License-Identifier: Apache-2.0
"""Random cases for core_runner: each operation alone, each loss, and networks that are trained for 20 steps.

A case is what core_runner reads, and "tensors": its arrays by name.
"""
import numpy
import torch

import torch_reference

SIDES = (1, 3, 7, 64)
MOST_ELEMENTS = 20_000  # of a tensor of one operation, and of all tensors of a network together
STEPS = 20


def arrays(rng, shape):
    """Of a size that is neither that of 1 nor always the same."""
    return (rng.standard_normal(shape) * rng.choice([0.3, 1.0, 3.0])).astype("f4")


def sides(rng, count, most=MOST_ELEMENTS):
    while True:
        shape = [int(rng.choice(SIDES)) for _ in range(count)]
        if numpy.prod(shape) <= most:
            return shape


def window(rng, height, width, most_padding):
    """{"side", "stride", "padding"} that fits; a padding stays below the side, and below most_padding."""
    sides_, strides, paddings = [], [], []
    for image in (height, width):
        side = int(rng.choice([1, 2, 3, 5, 7]))
        padding = int(rng.integers(0, min(side - 1, most_padding) + 1))
        side = min(side, image + 2 * padding)
        padding = min(padding, side - 1)
        sides_.append(min(side, image + 2 * padding))
        strides.append(int(rng.integers(1, 4)))
        paddings.append(padding)
    return {"side": sides_, "stride": strides, "padding": paddings}


def windowed(image, one):
    return [(image[i] + 2 * one["padding"][i] - one["side"][i]) // one["stride"][i] + 1 for i in range(2)]


# ---- one operation ----

def of_matmul(rng):
    rows, inner, columns = sides(rng, 3, 64 * 64 * 64)
    return {"a": [rows, inner], "b": [inner, columns]}, {}


def of_linear(rng):
    samples, inputs, outputs = sides(rng, 3, 64 * 64 * 64)
    return {"x": [samples, inputs], "w": [inputs, outputs], "b": [outputs]}, {}


def of_convolution(rng):
    while True:
        samples, channels, height, width = sides(rng, 4)
        one = window(rng, height, width, 3)
        outputs = int(rng.choice(SIDES))
        area = numpy.prod(windowed([height, width], one))
        if samples * outputs * area <= MOST_ELEMENTS and samples * outputs * area * channels * numpy.prod(
                one["side"]) <= 4_000_000:
            return {"x": [samples, channels, height, width], "w": [outputs, channels, *one["side"]],
                    "b": [outputs]}, {"window": one}


def of_pool(rng):
    shape = sides(rng, 4)
    return {"x": shape}, {"window": window(rng, shape[2], shape[3], 6)}


def of_one(rng):
    return {"x": sides(rng, int(rng.integers(1, 5)))}, {}


def of_pair(rng):
    shape = sides(rng, int(rng.integers(1, 5)))
    first = int(rng.integers(0, len(shape)))
    return {"a": shape, "b": [[1], shape, shape[first:]][int(rng.integers(0, 3))]}, {}


def of_scale(rng):
    return {"x": sides(rng, 2)}, {"factor": float(numpy.float32(rng.normal()))}


def of_dropout(rng):
    return {"x": sides(rng, int(rng.integers(2, 4)))}, {"rate": float(rng.choice([0.0, 0.1, 0.5, 0.9]))}


def of_reshape(rng):
    shape = sides(rng, 3)
    return {"x": shape}, {"shape": [shape[2], shape[0] * shape[1]]}


def of_flatten(rng):
    return {"x": sides(rng, int(rng.integers(2, 5)))}, {}


def of_concat(rng):
    shape = sides(rng, int(rng.integers(1, 4)), MOST_ELEMENTS // 4)
    axis = int(rng.integers(0, len(shape)))
    parts = {}
    for i in range(int(rng.integers(1, 4))):
        parts[f"part{i}"] = [int(rng.choice(SIDES[:3])) if side == axis else size for side, size in enumerate(shape)]
    return parts, {"axis": axis}


def of_axis(rng):
    shape = sides(rng, int(rng.integers(1, 5)))
    return {"x": shape}, {"axis": int(rng.integers(0, len(shape)))}


def of_batch_norm(rng):
    while True:
        shape = sides(rng, int(rng.choice([2, 4])))
        if numpy.prod(shape) > shape[1]:  # one number of a channel has no deviation
            channels = [shape[1]]
            return {"x": shape, "scale": channels, "shift": channels}, {"epsilon": 1e-5}


OPERATIONS = {
    "matmul": of_matmul, "linear": of_linear, "convolution": of_convolution, "max_pool": of_pool,
    "average_pool": of_pool, "relu": of_one, "sigmoid": of_one, "add": of_pair, "subtract": of_pair,
    "multiply": of_pair, "scale": of_scale, "dropout": of_dropout, "reshape": of_reshape, "flatten": of_flatten,
    "concat": of_concat, "sum": of_one, "mean": of_one, "sum_axis": of_axis, "mean_axis": of_axis,
    "batch_norm": of_batch_norm, "batch_norm_over_ranks": of_batch_norm, "batch_norm_as_given": of_batch_norm}


def operation(rng, name, op):
    """The operation, and a loss whose gradient by its result is random."""
    shapes, options = OPERATIONS[op](rng)
    tensors = {leaf: arrays(rng, shape) for leaf, shape in shapes.items()}
    leaves = [{"name": leaf, "as": str(rng.choice(["variable", "parameter", "parameter", "constant", "borrowed"]))}
              for leaf in shapes]
    if all(leaf["as"] in ("constant", "borrowed") for leaf in leaves):
        leaves[0]["as"] = "variable"
    if op == "batch_norm_as_given":
        tensors["mean"] = arrays(rng, shapes["scale"])
        tensors["variance"] = arrays(rng, shapes["scale"]) ** 2
    node = {"op": op, "in": list(shapes), "out": "y", **options}
    ones = {kind: torch.ones(shapes.get("scale", [])) for kind in ("mean", "variance")}
    result = torch_reference.FUNCTIONS[op]({**node, **ones, "mask": 1}, *map(torch.ones, shapes.values()))
    tensors["targets"] = arrays(rng, result.shape)
    return {"id": name, "what": op, "samples": shapes[next(iter(shapes))][0], "leaves": leaves, "tensors": tensors,
            "nodes": [node],
            "loss": {"op": "weighted_sum", "in": "y", "global_batch": 1}}


# ---- losses ----

LOSSES = ("softmax_cross_entropy", "binary_cross_entropy", "mean_squared_error")


def outputs_and_targets(rng, op, samples, classes):
    """(the outputs' sides without the samples, targets)"""
    if op == "softmax_cross_entropy":
        return [classes], rng.integers(0, classes, samples).astype("f4")
    if op == "binary_cross_entropy":
        return [1], rng.integers(0, 2, samples).astype("f4")
    return [classes], arrays(rng, [samples, classes])


def loss(rng, name, op):
    samples, classes = sides(rng, 2)
    each, targets = outputs_and_targets(rng, op, samples, classes)
    flat = op == "binary_cross_entropy" and bool(rng.integers(0, 2))
    shape = [samples] if flat else [samples, *each]
    return {"id": name, "what": op, "samples": samples, "nodes": [],
            "leaves": [{"name": "y", "as": "variable"}],
            "tensors": {"y": arrays(rng, shape) * numpy.float32(rng.choice([1, 30])), "targets": targets},
            "loss": {"op": op, "in": "y", "global_batch": samples + int(rng.integers(0, 9))}}


# ---- networks ----

class Network:
    """Layers one after the other, with branches that meet again; `shape` is that of the last result's sample."""

    def __init__(self, rng, shape):
        self.rng, self.shape, self.last = rng, shape, "x"
        self.layers, self.nodes, self.tensors, self.elements = [], [], {}, 0

    def put(self, op, shape, before=None, parameters=None, **options):
        """A layer (its name begins with a capital letter) or an operation; its result becomes the last one."""
        inputs = before or [self.last]
        out = f"t{len(self.nodes)}"
        node = {"op": op, "in": inputs, "out": out, **options}
        if op[0].isupper():
            name = node["layer"] = f"{op}{len(self.layers)}"
            self.layers.append({"op": op, "name": name, **options})
            node["parameters"] = []
            for kind, sides_ in (parameters or {}).items():
                node["parameters"].append(f"{name}/{kind}")
                spread = 1 / numpy.sqrt(max(1, numpy.prod(sides_[1:] if len(sides_) == 4 else sides_[:1])))
                values = self.rng.standard_normal(sides_) * spread
                # Scales near 1; the others near 0.
                self.tensors[f"{name}/{kind}"] = (values * 0.2 + 1 if kind == "scale" else values).astype("f4")
        self.nodes.append(node)
        self.last, self.shape = out, shape
        return out

    def linear(self, outputs):
        inputs = self.shape[0]
        return self.put("Linear", [outputs], inputs=inputs, outputs=outputs,
                        parameters={"weight": [inputs, outputs], "bias": [outputs]})

    def convolution(self, outputs, one):
        channels = self.shape[0]
        return self.put("Convolution", [outputs, *windowed(self.shape[1:], one)], window=one, inputs=channels,
                        outputs=outputs, parameters={"weight": [outputs, channels, *one["side"]], "bias": [outputs]})

    def activation(self, names):
        """Perhaps a normalisation, then an activation and perhaps dropout."""
        rng = self.rng
        if names and rng.integers(0, 2):
            channels = [self.shape[0]]
            self.put("BatchNorm", self.shape, channels=channels[0], over_ranks=bool(rng.integers(0, 2)),
                     epsilon=1e-5, parameters={"scale": channels, "shift": channels})
        self.put(str(rng.choice(["Relu", "Relu", "Sigmoid"])), self.shape)
        if rng.integers(0, 4) == 0:
            self.put("Dropout", self.shape, rate=float(rng.choice([0.2, 0.5])))

    def convolutions(self):
        rng = self.rng
        for _ in range(int(rng.integers(1, 4))):
            before = self.last, self.shape
            one = window(rng, *self.shape[1:], 2)
            self.convolution(int(rng.choice(SIDES[:3])), one)
            if rng.integers(0, 3) == 0:  # another branch of the same sides, beside it or added
                first, shape = self.last, self.shape
                self.last, self.shape = before
                beside = bool(rng.integers(0, 2))
                second = self.convolution(int(rng.choice(SIDES[:3])) if beside else shape[0], one)
                both = [first, second]
                if beside:
                    self.put("concat", [shape[0] + self.shape[0], *shape[1:]], both, axis=1)
                else:
                    self.put("add", shape, both)
            self.activation(True)
            if rng.integers(0, 2):
                one = window(rng, *self.shape[1:], 6)
                self.put(str(rng.choice(["MaxPool", "AveragePool"])),
                         [self.shape[0], *windowed(self.shape[1:], one)], window=one)
        self.put("Flatten", [int(numpy.prod(self.shape))])


def optimizer(rng):
    """Options that are not named keep their defaults, which must be PyTorch's."""
    kind = str(rng.choice(["Sgd", "Adam", "AdamW"]))
    one = {"kind": kind}
    if kind == "Sgd":
        choices = {"momentum": 0.9, "weight_decay": 0.01}
    else:
        choices = {"beta1": 0.8, "beta2": 0.99, "epsilon": 1e-6, "weight_decay": 0.1}
    for option, value in choices.items():
        if rng.integers(0, 2):
            one[option] = value
    if "momentum" in one:
        one["nesterov"] = bool(rng.integers(0, 2))
    return one


def schedule(rng):
    warmup = int(rng.choice([0, 1, 5]))
    return {"kind": str(rng.choice(["kConstant", "kStep", "kCosine", "kLinear"])), "warmup": warmup,
            "learning_rate": float(rng.choice([0.001, 0.01])), "every": int(rng.integers(1, 8)),
            "factor": float(rng.choice([0.1, 0.5])), "total": warmup + int(rng.integers(1, STEPS + 5))}


def network(rng, name):
    images = bool(rng.integers(0, 2))
    shape = sides(rng, 3, 64 * 7) if images else [int(rng.choice(SIDES))]
    area = numpy.prod(shape[1:]) * 7 if images else 64
    samples = int(rng.choice([size for size in (3, 7, 64) if size == 3 or size * area <= 4096]))
    net = Network(rng, shape)
    if images:
        net.convolutions()
    for _ in range(int(rng.integers(0 if images else 1, 3))):
        net.linear(int(rng.choice(SIDES)))
        net.activation(True)
    op = str(rng.choice(LOSSES))
    classes = int(rng.choice([2, 3, 10]))
    net.linear(outputs_and_targets(rng, op, 1, classes)[0][0])
    # Micro-batches of different sizes; normalisation needs two samples or more, others may have none.
    normalised = any(node["op"] == "BatchNorm" for node in net.nodes)
    cut = int(rng.integers(2, samples - 1)) if normalised and samples > 3 else int(rng.integers(0, samples))
    parts = [samples] if (normalised and samples == 3) or rng.integers(0, 2) else [cut, samples - cut]
    steps = []
    for step in range(STEPS):
        steps.append([])
        for i, size in enumerate(parts):
            x, targets = f"x{step % 3}.{i}", f"y{step % 3}.{i}"  # three batches, again and again
            if step < 3:
                net.tensors[x] = arrays(rng, [size, *shape])
                net.tensors[targets] = outputs_and_targets(rng, op, size, classes)[1]
            steps[-1].append({"x": x, "targets": targets, "op": op, "in": net.last, "global_batch": samples})
    return {"id": name, "what": "network", "layers": net.layers, "nodes": net.nodes, "tensors": net.tensors,
            "optimizer": optimizer(rng), "schedule": schedule(rng), "steps": steps,
            "clip_norm": float(rng.choice([0.0, 0.0, 0.1, 1.0]))}


def of_seed(seed):
    rng = numpy.random.default_rng(seed)
    cases = [operation(rng, f"{seed}.{op}", op) for op in OPERATIONS]
    cases += [loss(rng, f"{seed}.{op}", op) for op in LOSSES]
    return cases + [network(rng, f"{seed}.network{i}") for i in range(2)]
