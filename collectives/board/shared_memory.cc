// SPDX-License-Identifier: Apache-2.0
// The system calls behind shared memory, and errors that name the setting to change.
#include "collectives/board/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace ronde::collectives {

namespace {

using base::Bytes;
using base::Code;
using base::FileDescriptor;
using base::Result;
using base::Status;

std::string size_text(Bytes bytes) { return std::to_string(bytes.value()) + " bytes"; }

Status check_size(Bytes bytes) {
  if (bytes.value() > 0) return {};
  return Status::error(Code::kInvalidArgument, "shared memory must have more than 0 bytes");
}

// Returns an error beyond the limit, where ftruncate() would not fail but kill the process.
Status check_file_size_limit(Bytes bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      std::cmp_less_equal(bytes.value(), limit.rlim_cur)) {
    return {};
  }
  return Status::error(Code::kSystem,
                       "the limit on file sizes (ulimit -f) of " + std::to_string(limit.rlim_cur) +
                           " bytes is too small for shared memory of " + size_text(bytes) +
                           ", most of it address space for ronde::Buffer: raise it, or lower "
                           "RONDE_BUFFER_BYTES");
}

}  // namespace

Result<std::shared_ptr<SharedMemory>> SharedMemory::create_memfd(Bytes bytes) {
  RONDE_RETURN_IF_ERROR(check_size(bytes));
  RONDE_RETURN_IF_ERROR(check_file_size_limit(bytes));
  FileDescriptor fd(::memfd_create("ronde-board", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::system("could not create shared memory (memfd_create)", errno);
  if (::ftruncate(fd.get(), bytes.value()) != 0) {
    return Status::system("could not size shared memory to " + size_text(bytes), errno);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Status::system("could not seal the size of shared memory", errno);
  }
  return map(std::move(fd), bytes);
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::create_heap(Bytes bytes) {
  RONDE_RETURN_IF_ERROR(check_size(bytes));
  // Pages come from mmap and not from operator new, because they are zero without being touched.
  return map(FileDescriptor(), bytes);
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::map_fd(FileDescriptor fd) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) {
    return Status::system("could not inspect the shared memory that was received", errno);
  }
  // Without the seal another process could shrink it, and the next access would be a SIGBUS.
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Status::error(Code::kSystem, "the shared memory that was received is not sealed");
  }
  return map(std::move(fd), Bytes(status.st_size));
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::map(FileDescriptor fd, Bytes bytes) {
  const int kind = fd.valid() ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* memory =
      ::mmap(nullptr, bytes.size(), PROT_READ | PROT_WRITE, kind | MAP_NORESERVE, fd.get(), 0);
  if (memory == MAP_FAILED) {
    return Status::system("could not map shared memory of " + size_text(bytes) +
                              " (most of it is address space for ronde::Buffer: a lower "
                              "RONDE_BUFFER_BYTES needs less)",
                          errno);
  }
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(std::move(fd), std::span(static_cast<std::byte*>(memory), bytes.size())));
}

void SharedMemory::declare_bulk(std::span<std::byte> part) const {
  if (part.empty()) return;
  // Both calls are advice: nothing depends on whether the kernel takes it.
  ::madvise(part.data(), part.size(), MADV_DONTDUMP);
  if (fd_.valid()) ::madvise(part.data(), part.size(), MADV_HUGEPAGE);
}

SharedMemory::~SharedMemory() { ::munmap(bytes_.data(), bytes_.size()); }

}  // namespace ronde::collectives
