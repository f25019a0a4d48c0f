// SPDX-License-Identifier: Apache-2.0
#include "collectives/messages/barrier.h"

#include "collectives/transport/request_slot.h"

namespace ronde::collectives {
namespace {

// One tag is enough, because the peers of different rounds differ, and messages between two ranks
// keep their order from one barrier to the next.
class Barrier final : public Collective {
 public:
  Barrier(Transport& transport, int tag) : transport_(transport), tag_(tag) {}

  base::Result<StepResult> step() override {
    bool progress = false;
    while (distance_ < transport_.size()) {
      if (!round_begun_) {
        RONDE_RETURN_IF_ERROR(begin_round());
        progress = true;
      }
      for (RequestSlot* slot : {&sending_, &receiving_}) {
        RONDE_ASSIGN_OR_RETURN(const auto ended, slot->ended(transport_));
        progress |= ended;
      }
      if (sending_.busy() || receiving_.busy()) {
        return progress ? StepResult::kProgress : StepResult::kIdle;
      }
      round_begun_ = false;
      distance_ *= 2;
    }
    return StepResult::kDone;
  }

 private:
  base::Status begin_round() {
    const int size = transport_.size();
    const int rank = transport_.rank();
    const int further = static_cast<int>((rank + distance_) % size);
    const int before = static_cast<int>((rank + size - distance_) % size);
    RONDE_RETURN_IF_ERROR(receiving_.receive(transport_, before, tag_, {}));
    RONDE_RETURN_IF_ERROR(sending_.send(transport_, further, tag_, {}));
    round_begun_ = true;
    return {};
  }

  Transport& transport_;
  int tag_;
  std::int64_t distance_ = 1;
  bool round_begun_ = false;
  RequestSlot sending_;
  RequestSlot receiving_;
};

}  // namespace

std::unique_ptr<Collective> barrier(Transport& transport, int tag) {
  return std::make_unique<Barrier>(transport, tag);
}

}  // namespace ronde::collectives
