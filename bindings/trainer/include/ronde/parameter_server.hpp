// SPDX-License-Identifier: Apache-2.0
// Parameter servers, for programs that link ronde::parameter_server, which is there where Ronde was
// built with ZeroMQ. As little promised as <ronde/trainer.hpp>.
#pragma once

#include "bindings/trainer/server/coordinator/coordinator.h"
#include "bindings/trainer/server/parameter_server.h"
#include "bindings/trainer/server/store/store.h"
#include "bindings/trainer/server/strategy/settings.h"
#include "bindings/trainer/server/strategy/strategy.h"
#include "bindings/trainer/server/tasks.h"
