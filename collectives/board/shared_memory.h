// SPDX-License-Identifier: Apache-2.0
// Memory that the ranks of a host share. It has one of two backings: memfds (one process per rank;
// they have no name, so nothing is left behind after a kill, and the size of /dev/shm is no limit)
// or the heap (many engines in one process, where the thread sanitizer sees every access). Pages of
// either cost nothing until they are touched, so a board may be much larger than memory. Its parts,
// each a memfd, lie one after the other: the board itself, and then the arena of each rank.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/numbers.h"
#include "base/process/file_descriptor.h"
#include "base/status.h"

namespace ronde::collectives {

// The owner of a mapping and its descriptors; the destructor unmaps it.
//
// Thread safety: any thread, since the mapping itself never changes; its users order what they
// write into it.
class SharedMemory {
 public:
  // Both make zeroed memory. The size of a memfd is sealed, so that no process can cut it while
  // others use it. All parts but the last are whole pages.
  static base::Result<std::shared_ptr<SharedMemory>> create_memfds(
      std::span<const base::Bytes> parts);
  static base::Result<std::shared_ptr<SharedMemory>> create_heap(base::Bytes bytes);
  // Maps memfds that another process created. Fails unless their sizes are sealed.
  static base::Result<std::shared_ptr<SharedMemory>> map_fds(std::vector<base::FileDescriptor> fds);

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  // The memory, aligned to a page, of memfds to a huge one.
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  // Declares that `part`, which begins and ends on a page, holds data in bulk: it gets huge pages
  // where the kernel gives them to shared memory, and stays out of core dumps, for which the kernel
  // would make every page of it real.
  void declare_bulk(std::span<std::byte> part) const;

  // The memfds to hand to other processes, by part; -1: of a part that is not kept, and none on the
  // heap.
  [[nodiscard]] std::vector<int> fds() const;
  // Keeps the descriptors of the first part and of this one, so that they can be handed on later.
  void keep_fds_of(std::size_t part);

 private:
  explicit SharedMemory(std::span<std::byte> bytes) : bytes_(bytes) {}
  static base::Result<std::shared_ptr<SharedMemory>> map(std::vector<base::FileDescriptor> fds,
                                                         std::span<const base::Bytes> parts);

  std::span<std::byte> bytes_;
  std::vector<base::FileDescriptor> fds_;
};

}  // namespace ronde::collectives
