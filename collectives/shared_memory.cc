// SPDX-License-Identifier: Apache-2.0
// Shared memory of a host: see shared_memory.h.
#include "collectives/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

namespace ronde::collectives {

namespace {

using base::Bytes;
using base::Code;
using base::Result;
using base::Status;

constexpr std::align_val_t kPage{4096};

std::string size_text(Bytes bytes) { return std::to_string(bytes.value()) + " bytes"; }

Status check_size(Bytes bytes) {
  if (bytes.value() > 0) return {};
  return Status::error(Code::kInvalidArgument, "shared memory of 0 bytes was asked for");
}

}  // namespace

Result<std::shared_ptr<SharedMemory>> SharedMemory::create_memfd(Bytes bytes) {
  RONDE_RETURN_IF_ERROR(check_size(bytes));
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
  void* memory = ::operator new(bytes.size(), kPage, std::nothrow);
  if (memory == nullptr) {
    return Status::error(Code::kOutOfMemory, "no memory for a board of " + size_text(bytes));
  }
  std::memset(memory, 0, bytes.size());
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(FileDescriptor(), std::span(static_cast<std::byte*>(memory), bytes.size())));
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::map_fd(FileDescriptor fd, Bytes bytes) {
  RONDE_RETURN_IF_ERROR(check_size(bytes));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) {
    return Status::system("could not look at the shared memory that was received", errno);
  }
  if (status.st_size != bytes.value()) {
    return Status::error(Code::kSystem, "the shared memory that was received has " +
                                            std::to_string(status.st_size) + " bytes, not " +
                                            std::to_string(bytes.value()));
  }
  // Without the seal another process could shrink it, and the next access would be a SIGBUS.
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Status::error(Code::kSystem, "the shared memory that was received is not sealed");
  }
  return map(std::move(fd), bytes);
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::map(FileDescriptor fd, Bytes bytes) {
  void* memory = ::mmap(nullptr, bytes.size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) {
    return Status::system("could not map shared memory of " + size_text(bytes), errno);
  }
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(std::move(fd), std::span(static_cast<std::byte*>(memory), bytes.size())));
}

SharedMemory::~SharedMemory() {
  if (fd_.valid()) {
    ::munmap(bytes_.data(), bytes_.size());
  } else {
    ::operator delete(bytes_.data(), kPage);
  }
}

}  // namespace ronde::collectives
