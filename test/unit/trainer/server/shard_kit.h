// SPDX-License-Identifier: Apache-2.0
// Messages to one server, by hand.
#pragma once

#include <gmock/gmock.h>

#include <cstdint>
#include <string>

#include "bindings/trainer/server/protocol.h"
#include "bindings/trainer/server/variables.h"

namespace ronde::trainer::server {

inline Message message_from(const Address& from, Kind kind, std::uint64_t sequence = 0) {
  Message message;
  message.kind = kind;
  message.from = from;
  message.to = {Role::kServer, 0, 0};
  message.sequence = sequence;
  message.weight = 1.0;
  message.rate = 1.0;
  if (kind == Kind::kHello) message.text = "job";
  if (kind == Kind::kPush) message.floats = Floats::of({1.0F});
  if (kind == Kind::kCreate) message.floats = Floats::of({0.0F});
  return message;
}

inline Message create_message(const Address& chief, const std::string& mode) {
  VariableSpecs specs;
  specs.variables = {{"v", {1}}};
  specs.mode = mode_of(mode);
  Message message = message_from(chief, Kind::kCreate, 1);
  message.text = specs.text();
  return message;
}

inline auto has_kind(Kind kind) { return testing::Contains(testing::Field(&Message::kind, kind)); }

}  // namespace ronde::trainer::server
