// SPDX-License-Identifier: Apache-2.0
// The system calls behind shared memory, and errors that name the setting to change.
#include "collectives/board/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

#include "collectives/board/geometry.h"

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

Result<FileDescriptor> make_memfd(const char* name, Bytes bytes) {
  RONDE_RETURN_IF_ERROR(check_size(bytes));
  RONDE_RETURN_IF_ERROR(check_file_size_limit(bytes));
  FileDescriptor fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return Status::system("could not create shared memory (memfd_create)", errno);
  if (::ftruncate(fd.get(), bytes.value()) != 0) {
    return Status::system("could not size shared memory to " + size_text(bytes), errno);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Status::system("could not seal the size of shared memory", errno);
  }
  return fd;
}

Status not_mapped(Bytes bytes) {
  return Status::system("could not map shared memory of " + size_text(bytes) +
                            " (most of it is address space for ronde::Buffer: a lower "
                            "RONDE_BUFFER_BYTES needs less)",
                        errno);
}

}  // namespace

Result<std::shared_ptr<SharedMemory>> SharedMemory::create_memfds(std::span<const Bytes> parts) {
  std::vector<FileDescriptor> fds;
  for (const Bytes bytes : parts) {
    RONDE_ASSIGN_OR_RETURN(auto fd, make_memfd(fds.empty() ? "ronde-board" : "ronde-arena", bytes));
    fds.push_back(std::move(fd));
  }
  return map(std::move(fds), parts);
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::create_heap(Bytes bytes) {
  RONDE_RETURN_IF_ERROR(check_size(bytes));
  // Pages come from mmap and not from operator new, because they are zero without being touched.
  void* const memory = ::mmap(nullptr, bytes.size(), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return not_mapped(bytes);
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(std::span(static_cast<std::byte*>(memory), bytes.size())));
}

Result<std::shared_ptr<SharedMemory>> SharedMemory::map_fds(std::vector<FileDescriptor> fds) {
  std::vector<Bytes> parts;
  for (const FileDescriptor& fd : fds) {
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) {
      return Status::system("could not inspect the shared memory that was received", errno);
    }
    // Without the seal another process could shrink it, and the next access would be a SIGBUS.
    const int seals = ::fcntl(fd.get(), F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
      return Status::error(Code::kSystem, "the shared memory that was received is not sealed");
    }
    parts.emplace_back(status.st_size);
  }
  return map(std::move(fds), parts);
}

// In one range of addresses, which begins where a huge page may.
Result<std::shared_ptr<SharedMemory>> SharedMemory::map(std::vector<FileDescriptor> fds,
                                                        std::span<const Bytes> parts) {
  Bytes sum;
  for (const Bytes part : parts) {
    RONDE_RETURN_IF_ERROR(check_size(part));
    sum += part;
  }
  const std::size_t size = (sum.size() + kPage - 1) / kPage * kPage;
  void* const range = ::mmap(nullptr, size + kHugePage, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return not_mapped(sum);
  auto* const begin = static_cast<std::byte*>(range);
  const std::size_t before =
      (kHugePage - reinterpret_cast<std::uintptr_t>(range) % kHugePage) % kHugePage;
  if (before > 0) ::munmap(begin, before);
  ::munmap(begin + before + size, kHugePage - before);
  std::byte* next = begin + before;
  // Owns the range from here on.
  std::shared_ptr<SharedMemory> memory(new SharedMemory(std::span(next, sum.size())));
  for (std::size_t i = 0; i < fds.size(); ++i) {
    if (::mmap(next, parts[i].size(), PROT_READ | PROT_WRITE,
               MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fds[i].get(), 0) == MAP_FAILED) {
      return not_mapped(sum);
    }
    next += parts[i].size();
  }
  memory->fds_ = std::move(fds);
  return memory;
}

std::vector<int> SharedMemory::fds() const {
  std::vector<int> fds;
  fds.reserve(fds_.size());
  for (const FileDescriptor& fd : fds_) fds.push_back(fd.get());
  return fds;
}

void SharedMemory::keep_fds_of(std::size_t part) {
  for (std::size_t i = 1; i < fds_.size(); ++i) {
    if (i != part) fds_[i] = FileDescriptor();
  }
}

void SharedMemory::declare_bulk(std::span<std::byte> part) const {
  if (part.empty()) return;
  // Both calls are advice: nothing depends on whether the kernel takes it.
  ::madvise(part.data(), part.size(), MADV_DONTDUMP);
  if (!fds_.empty()) ::madvise(part.data(), part.size(), MADV_HUGEPAGE);
}

SharedMemory::~SharedMemory() { ::munmap(bytes_.data(), bytes_.size()); }

}  // namespace ronde::collectives
