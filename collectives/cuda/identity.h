// SPDX-License-Identifier: Apache-2.0
// Which device each rank has, and what the job makes of that. What all ranks say goes to all ranks,
// and each comes to the same verdict. Pure, but for own_host().
#pragma once

#include <nccl.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace ronde::collectives::cuda {

// Bytes on their way to the others: texts are cut to fit, and end with a zero.
struct Identity {
  std::int32_t has_device = 0;
  std::int32_t nccl_version = 0;    // 0: there is none
  std::array<char, 32> bus_id{};    // of the device
  std::array<char, 128> host{};     // see own_host()
  std::array<char, 192> why_not{};  // there is no device, or else no NCCL
  ncclUniqueId communicator{};      // of rank 0
};

template <std::size_t kSize>
void store_text(std::array<char, kSize>& field, const std::string& text) {
  field.fill('\0');
  text.copy(field.data(), kSize - 1);
}

struct Verdict {
  bool has_devices = false;      // all ranks have one
  bool has_collectives = false;  // and NCCL can join them
  std::string why_not;           // of the first of the two that is not so
};
[[nodiscard]] Verdict verdict_of(std::span<const Identity> ranks);

// What ranks of one machine have in common and others have not: as NCCL sees it, NCCL_HOSTID
// included, since whether two ranks share a device must be seen as NCCL sees it.
[[nodiscard]] std::string own_host();

}  // namespace ronde::collectives::cuda
