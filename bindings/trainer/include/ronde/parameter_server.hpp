// SPDX-License-Identifier: Apache-2.0
// Parameter servers, for programs that link ronde::parameter_server, which is there where Ronde was
// built with ZeroMQ. With <ronde/trainer.hpp>, and as little promised.
#pragma once

#include <ronde/trainer.hpp>

#include "bindings/trainer/server/coordinator/coordinator.h"
#include "bindings/trainer/server/parameter_server.h"
#include "bindings/trainer/server/store/store.h"
#include "bindings/trainer/server/strategy/settings.h"
#include "bindings/trainer/server/strategy/strategy.h"
#include "bindings/trainer/server/tasks.h"
