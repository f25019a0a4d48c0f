// SPDX-License-Identifier: Apache-2.0
// Memory that the ranks of a host share. Two backings carry the same bytes: a memfd (one process
// per rank; it has no name, so nothing is left behind after a kill, and the size of /dev/shm is no
// limit) and the heap (many engines in one process, where the thread sanitizer sees every access).
// Pages of either cost nothing until they are touched, so a board may be much larger than memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/numbers.h"
#include "base/status.h"
#include "collectives/board/file_descriptor.h"

namespace ronde::collectives {

// Thread safety: the mapping itself never changes; what is written into it is the users' business.
class SharedMemory {
 public:
  // Zeroed memory; the size of a memfd is sealed, so that no process can cut it under the others.
  static base::Result<std::shared_ptr<SharedMemory>> create_memfd(base::Bytes bytes);
  static base::Result<std::shared_ptr<SharedMemory>> create_heap(base::Bytes bytes);
  // A memfd that another process created. Refused unless it has this size and the size is sealed.
  static base::Result<std::shared_ptr<SharedMemory>> map_fd(FileDescriptor fd, base::Bytes bytes);

  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  // Aligned to a page.
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  // `part` holds data, in bulk: in huge pages where the kernel gives them to shared memory, and in
  // no core dump, for which the kernel would make every page of it real. From page to page.
  void declare_bulk(std::span<std::byte> part) const;

  // The memfd to hand to other processes; -1 on the heap.
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  SharedMemory(FileDescriptor fd, std::span<std::byte> bytes) : fd_(std::move(fd)), bytes_(bytes) {}
  static base::Result<std::shared_ptr<SharedMemory>> map(FileDescriptor fd, base::Bytes bytes);

  FileDescriptor fd_;
  std::span<std::byte> bytes_;
};

}  // namespace ronde::collectives
