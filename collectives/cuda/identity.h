// SPDX-License-Identifier: Apache-2.0
// Which device each rank has, and what the job can do with them. All ranks exchange their
// identities, and each reaches the same verdict. Pure, but for own_host().
#pragma once

#include <nccl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ronde::collectives::cuda {

// What a rank sends to the others, as bytes: texts are cut to fit, and end with a zero.
struct Identity {
  std::int32_t has_device = 0;
  std::int32_t nccl_version = 0;    // 0: there is none
  std::array<char, 32> bus_id{};    // the device's
  std::array<char, 128> host{};     // own_host()
  std::array<char, 192> why_not{};  // the reason for no device, or else for no NCCL
  ncclUniqueId communicator{};      // rank 0's
};

template <std::size_t kSize>
void store_text(std::array<char, kSize>& field, const std::string& text) {
  field.fill('\0');
  text.copy(field.data(), kSize - 1);
}

struct Verdict {
  bool has_devices = false;      // all ranks have one
  bool has_collectives = false;  // and NCCL can join them
  std::string why_not;           // the reason for the first of the two that is false
};
[[nodiscard]] Verdict verdict_of(std::span<const Identity> ranks);

// Returns a text that is the same for ranks of one machine and differs between machines. It follows
// NCCL, NCCL_HOSTID included, since NCCL decides whether two ranks share a device.
[[nodiscard]] std::string own_host();

}  // namespace ronde::collectives::cuda
