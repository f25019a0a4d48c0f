# SPDX-License-Identifier: Apache-2.0
"""PyTorch's schedules and optimisers, and what f32 may differ by in a step of them: see torch_reference.py."""
import torch

from torch_reference import TINY, U


def scheduled(one, steps):
    """The learning rates of the steps by torch.optim.lr_scheduler."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=one["learning_rate"])
    schedulers = torch.optim.lr_scheduler
    warmup, kind, length = one["warmup"], one["kind"], one["total"] - one["warmup"]
    main = {"kConstant": lambda: schedulers.ConstantLR(optimizer, factor=1.0),
            "kStep": lambda: schedulers.StepLR(optimizer, one["every"], one["factor"]),
            "kCosine": lambda: schedulers.CosineAnnealingLR(optimizer, length),
            "kLinear": lambda: schedulers.LinearLR(optimizer, 1.0, 0.0, length)}[kind]
    rates = []
    if warmup > 0:  # all of it in the last step of the warm-up: PyTorch begins with 1/warmup
        rise = schedulers.LambdaLR(optimizer, lambda step: (step + 1) / warmup)
        for _ in range(warmup):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            rise.step()
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=one["learning_rate"])
    scheduler = main()
    while len(rates) < steps:
        # CosineAnnealingLR rises again after its end, where ours stays.
        over = kind in ("kCosine", "kLinear") and len(rates) >= one["total"]
        rates.append(0.0 if over else optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates[:steps]


def torch_optimizer_of(options, value, rate):
    """(the optimiser, {moment of the core: that of PyTorch}, a state to be filled)"""
    rest = {key: value for key, value in options.items() if key not in ("kind", "beta1", "beta2", "epsilon")}
    if options["kind"] == "Sgd":
        kinds = {"velocity": "momentum_buffer"} if options.get("momentum") else {}
        return torch.optim.SGD([value], lr=rate, **rest), kinds, {}
    if "beta1" in options or "beta2" in options:
        rest["betas"] = (options.get("beta1", 0.9), options.get("beta2", 0.999))
    if "epsilon" in options:
        rest["eps"] = options["epsilon"]
    made = (torch.optim.Adam if options["kind"] == "Adam" else torch.optim.AdamW)([value], lr=rate, **rest)
    return made, {"moment1": "exp_avg", "moment2": "exp_avg_sq"}, {"step": None}


def bounds_of_update(options, before, gradient, after, state, step, rate):
    """A few roundings of each term; of a moment's square root, half of its relative error."""
    value = before.abs()
    decay = options.get("weight_decay", 0.01 if options["kind"] == "AdamW" else 0.0)
    slope = gradient.abs() + (0.0 if options["kind"] == "AdamW" else decay * value)
    if options["kind"] == "Sgd":
        momentum = options.get("momentum", 0.0)
        high = slope + (momentum * state["momentum_buffer"].abs() if momentum and state else 0.0)
        move = rate * (slope + momentum * high + high)
        return {"momentum_buffer": 5 * U * high, "value": 2 * U * value + 8 * U * move}
    beta1, beta2 = options.get("beta1", 0.9), options.get("beta2", 0.999)
    high1 = (1 - beta1) * slope + (beta1 * state["exp_avg"].abs() if state else 0.0)
    high2 = (1 - beta2) * slope ** 2 + (beta2 * state["exp_avg_sq"] if state else 0.0)
    of1, of2 = 6 * U * high1, 10 * U * high2
    rate1 = rate / (1 - beta1 ** (step + 1))
    root = (1 - beta2 ** (step + 1)) ** -0.5
    square = after["exp_avg_sq"].sqrt()
    of_square = torch.minimum(of2.sqrt(), of2 / (2 * square + TINY))
    under = square * root + options.get("epsilon", 1e-8)
    move = rate1 * after["exp_avg"].abs() / under
    # Squares below what f32 can hold are lost; their roots count where epsilon is smaller.
    of_under = root * (of_square + torch.where(after["exp_avg_sq"] < 1e-36, 1e-19, 0.0)) + 4 * U * under
    low = (under - of_under).clamp(min=options.get("epsilon", 1e-8) / 2)
    return {"exp_avg": of1, "exp_avg_sq": of2 + 2e-45,
            "value": 4 * U * value + rate1 * of1 / low + move * (of_under / low + 6 * U)}
