// SPDX-License-Identifier: Apache-2.0
// All of the training core, for programs outside of Ronde's tree: find_package(ronde COMPONENTS
// trainer) and ronde::trainer. Each header can be included alone too, as
// <ronde/trainer/tensor/tape.h>.
//
// Neither this interface nor its ABI is promised: names and defaults may change with every version,
// unlike those of <ronde/ronde.hpp>. The library is static, so that a program keeps the version
// that it was built with.
#pragma once

#include "bindings/trainer/data/dataset.h"
#include "bindings/trainer/data/fashion_mnist.h"
#include "bindings/trainer/data/images.h"
#include "bindings/trainer/data/pictures.h"
#include "bindings/trainer/fit/agreement.h"
#include "bindings/trainer/fit/fit.h"
#include "bindings/trainer/fit/metrics.h"
#include "bindings/trainer/fit/program/flags.h"
#include "bindings/trainer/fit/program/program.h"
#include "bindings/trainer/fit/program/settings.h"
#include "bindings/trainer/fit/program/training.h"
#include "bindings/trainer/fit/progress.h"
#include "bindings/trainer/fit/replica.h"
#include "bindings/trainer/fit/strategy/model.h"
#include "bindings/trainer/fit/strategy/optimizer.h"
#include "bindings/trainer/fit/strategy/strategies.h"
#include "bindings/trainer/keep/callbacks.h"
#include "bindings/trainer/keep/evaluator.h"
#include "bindings/trainer/keep/supervisor.h"
#include "bindings/trainer/nn/batch_norm.h"
#include "bindings/trainer/nn/layers.h"
#include "bindings/trainer/nn/models.h"
#include "bindings/trainer/nn/network.h"
#include "bindings/trainer/nn/sequence.h"
#include "bindings/trainer/optim/schedule.h"
#include "bindings/trainer/optim/update_rule.h"
#include "bindings/trainer/tensor/errors.h"
#include "bindings/trainer/tensor/losses.h"
#include "bindings/trainer/tensor/normalization.h"
#include "bindings/trainer/tensor/operations.h"
#include "bindings/trainer/tensor/random.h"
#include "bindings/trainer/tensor/tape.h"
#include "bindings/trainer/tensor/texts.h"
