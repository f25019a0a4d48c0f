// SPDX-License-Identifier: Apache-2.0
// Memory that the ranks of a host share. It has one of two backings: a memfd (one process per rank;
// it has no name, so nothing is left behind after a kill, and the size of /dev/shm is no limit) or
// the heap (many engines in one process, where the thread sanitizer sees every access). Pages of
// either cost nothing until they are touched, so a board may be much larger than memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/numbers.h"
#include "base/process/file_descriptor.h"
#include "base/status.h"

namespace ronde::collectives {

// The owner of a mapping and its descriptor; the destructor unmaps it.
//
// Thread safety: any thread, since the mapping itself never changes; its users order what they
// write into it.
class SharedMemory {
 public:
  // Both make zeroed memory. The size of a memfd is sealed, so that no process can cut it while
  // others use it.
  static base::Result<std::shared_ptr<SharedMemory>> create_memfd(base::Bytes bytes);
  static base::Result<std::shared_ptr<SharedMemory>> create_heap(base::Bytes bytes);
  // Maps a memfd that another process created. Fails unless its size is sealed.
  static base::Result<std::shared_ptr<SharedMemory>> map_fd(base::FileDescriptor fd);

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  // The memory, aligned to a page.
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  // Declares that `part`, which begins and ends on a page, holds data in bulk: it gets huge pages
  // where the kernel gives them to shared memory, and stays out of core dumps, for which the kernel
  // would make every page of it real.
  void declare_bulk(std::span<std::byte> part) const;

  // The memfd to hand to other processes; -1 on the heap.
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  SharedMemory(base::FileDescriptor fd, std::span<std::byte> bytes)
      : fd_(std::move(fd)), bytes_(bytes) {}
  static base::Result<std::shared_ptr<SharedMemory>> map(base::FileDescriptor fd,
                                                         base::Bytes bytes);

  base::FileDescriptor fd_;
  std::span<std::byte> bytes_;
};

}  // namespace ronde::collectives
