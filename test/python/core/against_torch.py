#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the training core with PyTorch (Debian's python3-torch), which computes in f64.

usage: against_torch.py CORE_RUNNER ROOT [--seeds N] [--first-seed N] [--only WHAT]

Each seed makes one random case of every operation and loss, and two random networks, which are trained for 20 steps
with a random optimiser, schedule and clipping (core_cases.py). core_runner computes them with the core. The tolerances
are derived in torch_reference.py. What the headers of the core declare and no case covers is an error.
"""
import argparse
import collections
import json
import pathlib
import re
import sys
import tempfile

try:
    import numpy
    import torch
except ImportError as error:
    sys.exit(f"{error}: install Debian's python3-torch (./dev test torch does it), and run this with /usr/bin/python3")

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import core_cases
import core_coverage
import late
import safetensors_numpy
import torch_reference as reference
import torch_training
from torch_reference import TINY, U, gamma

SEEDS_A_RUN = 10  # of core_runner

def f64(array):
    return torch.from_numpy(numpy.array(array, dtype="f8"))


class Checker:
    """Compares, and remembers how much of each tolerance was needed."""

    def __init__(self):
        self.largest = collections.defaultdict(lambda: (0.0, 0.0))  # by what: share of the bound, difference
        self.numbers = 0
        self.problems = []

    def compare(self, case, what, got, want, bound):
        """`bound` has the sides of `want`; the difference is also told relative to its largest number."""
        where = f"{case['id']}, {what}"
        if list(got.shape) != list(want.shape):
            self.problems.append(f"{where}: the shape is {list(got.shape)}, expected {list(want.shape)}")
            return
        if want.numel() == 0:
            return
        error = (got - want).abs()
        share = (error / (bound + TINY)).nan_to_num(nan=float("inf"), posinf=float("inf"))
        worst = int(share.argmax())
        kind = case["what"] + (", " + re.sub(r"[ /].*", "", what) if case["what"] == "network" else "")
        before = self.largest[kind]
        # What is 0 but for roundings, as the gradient by a bias before a normalisation, says nothing here.
        size = float(want.abs().max())
        relative = float(error.max()) / size if size > 1e-20 + 8 * float(bound.max()) else 0.0
        self.largest[kind] = (max(before[0], float(share.max())), max(before[1], relative))
        self.numbers += want.numel()
        if float(share.max()) > 1:
            self.problems.append(
                f"{where}, element {worst} of {list(want.shape)}: {float(got.reshape(-1)[worst])!r}, expected "
                f"{float(want.reshape(-1)[worst])!r} to {float(bound.expand(want.shape).reshape(-1)[worst]):.2g}")


class Chain:
    """A pass in f64 at the core's own results, and the way back with its magnitudes."""

    def __init__(self, checker, case, out, prefix, leaves):
        self.checker, self.case, self.out, self.prefix = checker, case, out, prefix
        self.values = {name: tensor.requires_grad_() for name, tensor in leaves.items()}
        self.steps = []  # (node, names of inputs), in order
        self.slack = 4 * U  # the sum of gammas

    def run(self, nodes, extras):
        for node in nodes:
            names = node["in"] + node.get("parameters", [])
            xs = [self.values[name].detach() for name in names]
            core = f64(self.out[self.prefix + node["out"]])
            node = {**node, **extras(node)}
            node["op"] = core_op(node)
            if node["op"] == "dropout":
                node["mask"] = self.mask(node, xs[0], core)
            y = reference.FUNCTIONS[node["op"]](node, *(self.values[name] for name in names))
            slack = gamma(reference.terms(node["op"], xs, y))
            self.slack += slack
            bound = slack * reference.forward_magnitude(node, xs, y.detach())
            self.checker.compare(self.case, f"result {node['op']} {node['out']}", core, y.detach(), bound)
            self.values[node["out"]] = reference.Forced.apply(y, core) if core.shape == y.shape else y
            self.steps.append((node, names, xs))

    def mask(self, node, x, core):
        """Which elements were dropped is the core's own choice: it is read off, and its share must be likely."""
        rate = node["rate"] if node.get("training", True) else 0.0
        kept = (core != 0) | (x == 0)
        count, dropped = int((x != 0).sum()), int((~kept).sum())
        if abs(dropped - rate * count) > 6 * (rate * (1 - rate) * count) ** 0.5 + 1e-9:
            self.checker.problems.append(f"{self.case['id']}: dropout of {rate} has dropped {dropped} of {count}")
        return kept.double() / (1 - rate)

    def loss(self, part, targets):
        """Compares the loss; returns {leaf: (gradient, its bound)}."""
        outputs = self.values[part["in"]]
        value, total, right = reference.loss(part, outputs, targets)
        got = f64(self.out[self.prefix + "loss"])
        terms = (outputs * targets).detach().abs().sum() if total is None else value.detach().abs()
        batch = part["global_batch"]
        # PyTorch's own roundings in f64, of numbers near 1 of which little is left: 1 - probability.
        bound = 4 * U * terms + (0.0 if total is None else 1e-15 * outputs.numel() / batch)
        self.checker.compare(self.case, "loss", got, value.detach().reshape(got.shape), bound)
        if total is not None:
            sums = self.out[self.prefix + "loss", "text"].split()
            said = [float(sums[0]), int(sums[1]), int(sums[2])]
            expected = [float(total), right, outputs.shape[0]]
            if abs(said[0] - expected[0]) > 1e-12 * (1 + abs(expected[0])) or said[1:] != expected[1:]:
                self.checker.problems.append(f"{self.case['id']}: the loss sums to {said}, expected {expected}")
        leaves = [name for name, value in self.values.items() if value.is_leaf]
        wanted = [self.values[name] for name in leaves]
        gradients = torch.autograd.grad(value, wanted + [outputs], allow_unused=True)
        own = 0.0 if total is None else 1e-15 / (4 * U) / batch
        magnitudes = {part["in"]: gradients[-1].abs() + own}
        for node, names, xs in reversed(self.steps):
            if node["out"] not in magnitudes:
                continue
            for name, each in zip(names, reference.backward_magnitudes(node, xs, magnitudes[node["out"]])):
                magnitudes[name] = magnitudes[name] + each if name in magnitudes else each
        zeros = torch.zeros(())
        return {name: (gradient if gradient is not None else torch.zeros_like(self.values[name]),
                       self.slack * magnitudes.get(name, zeros)) for name, gradient in zip(leaves, gradients)}


def core_op(node):
    """The operation that a layer is."""
    names = {"Linear": "linear", "Convolution": "convolution", "MaxPool": "max_pool", "AveragePool": "average_pool",
             "Relu": "relu", "Sigmoid": "sigmoid", "Flatten": "flatten", "Dropout": "dropout"}
    if node["op"] == "BatchNorm":
        return "batch_norm" if node["training"] else "batch_norm_as_given"
    return names.get(node["op"], node["op"])


def check_alone(checker, case, out):
    """An operation or a loss."""
    tensors = {name: f64(array) for name, array in case["tensors"].items()}
    leaves = {leaf["name"]: tensors[leaf["name"]] for leaf in case["leaves"]}
    given = {name: tensors[name] for name in ("mean", "variance") if name in tensors}
    chain = Chain(checker, case, out, case["id"] + "/", leaves)
    chain.run(case["nodes"], lambda node: given)
    for name, (gradient, bound) in chain.loss(case["loss"], tensors["targets"]).items():
        if case["id"] + "/by/" + name in out:
            checker.compare(case, f"gradient by {name}", f64(out[f"{case['id']}/by/{name}"]), gradient, bound)
    if case["what"] in ("batch_norm", "batch_norm_over_ranks"):
        mean, variance, of_mean, of_variance = statistics_of(tensors["x"])
        checker.compare(case, "mean", f64(out[case["id"] + "/mean"]), mean, of_mean)
        checker.compare(case, "variance", f64(out[case["id"] + "/variance"]), variance, of_variance)


def statistics_of(x):
    """(mean, variance, their bounds) by channel."""
    one = reference.Normalised({"epsilon": 0.0}, x, torch.ones(x.shape[1], dtype=torch.double))
    slack = gamma(reference.terms("batch_norm", [x], x))
    mean, variance = x.mean(one.axes), one.variance.reshape(-1)
    around = (x - mean.reshape(one.shape)).abs()
    return (mean, variance, slack * x.abs().mean(one.axes),
            slack * (variance + 2 * (around * one.slip).mean(one.axes)))


# ---- training ----

class Training:
    """Steps, each from the core's own state before it."""

    def __init__(self, checker, case, out):
        self.checker, self.case, self.out = checker, case, out
        self.names = [name for layer in case["nodes"] for name in layer.get("parameters", [])]
        self.now = {name: case["tensors"][name] for name in self.names}  # parameters
        self.moments = {}
        self.statistics = {}
        for layer in case["layers"]:
            if layer["op"] == "BatchNorm":
                self.statistics[layer["name"] + "/mean"] = numpy.zeros(layer["channels"])
                self.statistics[layer["name"] + "/variance"] = numpy.ones(layer["channels"])

    def core(self, name):
        return f64(self.out[f"{self.case['id']}/{name}"])

    def chain(self, step, part, number, training):
        leaves = {name: f64(array) for name, array in self.now.items()}
        leaves["x"] = f64(self.case["tensors"][part["x"]])
        chain = Chain(self.checker, self.case, self.out, f"{self.case['id']}/{step}/{number}/", leaves)

        def extras(node):
            more = {"training": training}
            if node["op"] == "BatchNorm" and not training:
                for kind in ("mean", "variance"):
                    more[kind] = f64(self.statistics[f"{node['layer']}/{kind}"])
            return more

        chain.run(self.case["nodes"], extras)
        return chain

    def run(self):
        said = [float(number) for number in self.out[f"{self.case['id']}/rates", "text"].split()]
        rates = torch_training.scheduled(self.case["schedule"], len(self.case["steps"]))
        for step, parts in enumerate(self.case["steps"]):
            rate, norm = said[2 * step:2 * step + 2]
            if abs(rate - rates[step]) > 1e-9 * self.case["schedule"]["learning_rate"]:
                self.checker.problems.append(
                    f"{self.case['id']}: the learning rate of step {step} is {rate}, expected {rates[step]}")
            self.step(step, parts, rate, norm)
        for number, part in enumerate(self.case["steps"][0]):
            self.chain(len(self.case["steps"]), part, number, training=False)

    def step(self, step, parts, rate, norm):
        totals = {name: [0.0, 0.0, 0.0] for name in self.names}
        follow = {name: (f64(array), 0.0) for name, array in self.statistics.items()}
        for number, part in enumerate(parts):
            chain = self.chain(step, part, number, training=True)
            for node, _, xs in chain.steps:
                if node["op"] == "batch_norm":
                    follow_batch(follow, node["layer"], xs[0])
            for name, (gradient, bound) in chain.loss(part, f64(self.case["tensors"][part["targets"]])).items():
                if name != "x":
                    total = totals[name]
                    totals[name] = [total[0] + gradient, total[1] + bound, total[2] + U * (gradient.abs())]
        self.check_gradients(step, totals, norm)
        for name, (value, bound) in follow.items():
            self.statistics[name] = self.out[f"{self.case['id']}/{step}/statistic/{name}"]
            self.checker.compare(self.case, f"statistic {name} step {step}", f64(self.statistics[name]), value, bound)
        self.check_update(step, rate)

    def check_gradients(self, step, totals, norm):
        clip = self.case["clip_norm"]
        norm64 = sum(float((gradient ** 2).sum()) for gradient, _, _ in totals.values()) ** 0.5
        slip = sum(float(((bound + more) ** 2).sum()) for _, bound, more in totals.values()) ** 0.5
        if not abs(norm - norm64) <= slip + 1e-6 * norm64 * U:
            self.checker.problems.append(f"{self.case['id']}, step {step}: the norm is {norm}, expected {norm64}")
        factor = min(1.0, clip / (norm64 + 1e-6)) if clip > 0 else 1.0  # torch.nn.utils.clip_grad_norm_
        for name, (gradient, bound, more) in totals.items():
            spread = (slip / norm64 if factor < 1 else 0.0) + 2 * U
            self.checker.compare(self.case, f"gradient {name} step {step}", self.core(f"{step}/gradient/{name}"),
                                 gradient * factor, factor * (bound + more + gradient.abs() * spread))

    def check_update(self, step, rate):
        options = self.case["optimizer"]
        for name in self.names:
            before = f64(self.now[name])
            gradient = self.core(f"{step}/gradient/{name}")
            value = before.clone().requires_grad_()
            value.grad = gradient.clone()
            torch_optimizer, kinds, state = torch_training.torch_optimizer_of(options, value, rate)
            if step > 0:
                for kind, key in kinds.items():
                    state[key] = f64(self.moments[f"{kind}/{name}"])
                if "step" in state:
                    state["step"] = torch.tensor(float(step))
                torch_optimizer.state[value] = state
            torch_optimizer.step()
            after = torch_optimizer.state[value]
            bounds = torch_training.bounds_of_update(options, before, gradient, after, state if step > 0 else None, step,
                                                     rate)
            self.now[name] = self.out[f"{self.case['id']}/{step}/value/{name}"]
            self.checker.compare(self.case, f"value {name} step {step}", f64(self.now[name]), value.detach(),
                                 bounds["value"])
            for kind, key in kinds.items():
                array = self.moments[f"{kind}/{name}"] = self.out[f"{self.case['id']}/{step}/moment/{kind}/{name}"]
                self.checker.compare(self.case, f"moment {kind} of {name} step {step}", f64(array), after[key],
                                     bounds[key])


def follow_batch(follow, layer, x):
    """Running statistics as torch.nn.BatchNorm2d has them: momentum 0.1, the variance corrected."""
    mean, variance, of_mean, of_variance = statistics_of(x)
    running_mean, running_variance = follow[f"{layer}/mean"][0].clone(), follow[f"{layer}/variance"][0].clone()
    torch.nn.functional.batch_norm(x, running_mean, running_variance, training=True, momentum=0.1)
    for kind, value, new, bound in (("mean", running_mean, mean, of_mean),
                                    ("variance", running_variance, variance, of_variance)):
        before, slip = follow[f"{layer}/{kind}"]
        follow[f"{layer}/{kind}"] = (value, slip + 0.2 * bound + 4 * U * (before.abs() + new.abs()))


# ---- all of it ----

def run_core(runner, cases, folder):
    """{name: array}, and texts by (name, "text")."""
    names = ("id", "samples", "leaves", "nodes", "loss", "layers", "optimizer", "schedule", "steps", "clip_norm")
    described = [{key: case[key] for key in names if key in case} for case in cases]
    (folder / "cases.json").write_text(json.dumps(described), encoding="utf-8")
    safetensors_numpy.write(folder / "in", {f"{case['id']}/{name}": array for case in cases
                                            for name, array in case["tensors"].items()})
    files = [folder / "cases.json", folder / "in", folder / "out"]
    done = late.run([runner, *files], 300)
    if done.returncode != 0:
        sys.exit(f"core_runner ended with {done.returncode}: {done.stderr}")
    tensors, texts = safetensors_numpy.read(folder / "out")
    return {**tensors, **{(name, "text"): text for name, text in texts.items()}}


def check_seeds(checker, runner, seeds, only):
    cases = [case for seed in seeds for case in core_cases.of_seed(seed) if only in ("", case["what"])]
    with tempfile.TemporaryDirectory() as folder:
        out = run_core(runner, cases, pathlib.Path(folder))
    for case in cases:
        if said := out.get((case["id"] + "/error", "text")):
            checker.problems.append(f"{case['id']}: the core says: {said}; the case: {described(case)}")
        elif "steps" in case:
            Training(checker, case, out).run()
        else:
            check_alone(checker, case, out)
    return len(cases)


def described(case):
    return json.dumps({key: case[key] for key in ("nodes", "leaves", "layers") if key in case})[:600]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("runner")
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", default="", help="an operation, a loss, or network")
    flags = parser.parse_args()
    torch.set_num_threads(1)
    checker = Checker()
    checker.problems += core_coverage.problems(flags.root)
    count = 0
    last = flags.first_seed + flags.seeds
    for first in range(flags.first_seed, last, SEEDS_A_RUN):
        count += check_seeds(checker, flags.runner, range(first, min(last, first + SEEDS_A_RUN)), flags.only)
        if len(checker.problems) > 20:
            break
    print(f"{count} cases of {flags.seeds} seeds, {checker.numbers} numbers compared; the largest differences:")
    for kind, (share, error) in sorted(checker.largest.items()):
        print(f"  {kind:28} {error:.1e} of the largest number, {share:.3f} of the tolerance")
    if checker.problems:
        sys.exit("\n".join(checker.problems[:30]) + f"\n{len(checker.problems)} differences")


if __name__ == "__main__":
    sys.exit(main())  # random cases: no second try
