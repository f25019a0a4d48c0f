# SPDX-License-Identifier: Apache-2.0
"""What the headers of the core declare, and what the cases cover of it."""
import re

import core_cases
import torch_reference as reference

# What the cases cover, as the headers of the core declare it: functions, layers, optimisers, schedules and options.
COVERED = {
    "matmul(Tensor, Tensor)", "linear(Tensor, Tensor, Tensor)", "convolution(Tensor, Tensor, Tensor, Window)",
    "max_pool(Tensor, Window)", "average_pool(Tensor, Window)", "relu(Tensor)", "operator+(Tensor, Tensor)",
    "operator-(Tensor, Tensor)", "operator*(Tensor, Tensor)", "operator*(Tensor, float)", "sigmoid(Tensor)",
    "dropout(Tensor, double, std::string_view)", "reshape(Tensor, Shape)", "flatten(Tensor)",
    "concat(std::span<const Tensor>, std::size_t)", "sum(Tensor)", "mean(Tensor)", "sum(Tensor, std::size_t)",
    "mean(Tensor, std::size_t)",
    "softmax_cross_entropy(Tensor, Labels, std::size_t)",
    "binary_cross_entropy(Tensor, Labels, std::size_t)",
    "mean_squared_error(Tensor, std::span<const float>, std::size_t)",
    "batch_norm(Tensor, Tensor, Tensor, float)",
    "batch_norm_over_ranks(Tensor, Tensor, Tensor, float, SumOverRanks)",
    "batch_norm_as_given(Tensor, Tensor, Tensor, float, std::span<const float>, std::span<const float>)",
    "Window.side", "Window.stride", "Window.padding",
    "Linear", "Convolution", "MaxPool", "AveragePool", "Applied", "Dropout",
    "BatchNorm", "Layers",  # the latter only calls its layers, as core_runner does
    "kSgd", "kAdam", "kAdamW", "RuleOptions.kind", "RuleOptions.momentum", "RuleOptions.nesterov",
    "RuleOptions.beta1", "RuleOptions.beta2", "RuleOptions.epsilon", "RuleOptions.weight_decay",
    "kConstant", "kStep", "kCosine", "kLinear", "ScheduleOptions.kind", "ScheduleOptions.learning_rate",
    "ScheduleOptions.warmup", "ScheduleOptions.every", "ScheduleOptions.factor", "ScheduleOptions.total"}


def declared(text):
    """What a header declares of those kinds."""
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r"^template <[^\n]*>\n", "template ", text, flags=re.M)  # what `using` makes layers of
    found = set()
    for name, arguments in re.findall(r"^(?:Tensor|Loss|BatchNormalized) (operator[^\w\s(]+|\w+)\(([^;{]*)\);", text,
                                      re.M):
        types = [re.sub(r"^const |&|\s*=.*$|\s+\w+\s*$", "", re.sub(r"\s*=.*$", "", one.strip()))
                 for one in re.split(r",(?![^<]*>)", arguments)]
        found.add(f"{name}({', '.join(one.strip() for one in types)})")
    found |= set(re.findall(r"^class (\w+)(?: final)? : public Layer\b", text, re.M))
    found |= set(re.findall(r"^using (\w+) = \w+<\w+>;", text, re.M))  # layers that only call an operation
    for enumerators in re.findall(r"enum class Kind[^{]*\{([^}]*)\}", text):
        found |= set(re.findall(r"\bk\w+", enumerators))
    structs = "Window|ScheduleOptions|RuleOptions"
    for struct, body in re.findall(rf"^struct ({structs}) \{{\n(.*?)^\}};", text, re.M | re.S):
        found |= {f"{struct}.{field}" for field in re.findall(r"^  [\w:<>, ]+ (\w+)(?: =|\{|;)", body, re.M)
                  if field != "Kind"}
    return found


def problems(root):
    found = set()
    for room in ("tensor", "nn", "optim"):
        for header in (root / "bindings/trainer" / room).glob("*.h"):
            found |= declared(header.read_text(encoding="utf-8"))
    for one in sorted(found - COVERED):
        yield f"the core declares {one}, which no case covers: add it to core_cases.py, and to COVERED"
    for one in sorted(COVERED - found):
        yield f"the core does not declare {one} any more: take it out of COVERED"
    cased = set(core_cases.OPERATIONS) | set(core_cases.LOSSES)
    if missing := set(reference.FUNCTIONS) - cased:
        yield f"there are references, but no cases, for {sorted(missing)}"
