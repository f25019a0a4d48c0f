// SPDX-License-Identifier: Apache-2.0
// Each block is mapped twice: for the device, and for the program, which may use managed ones only.
#include "test/device/toy_memory.h"

#include <sys/mman.h>
#include <unistd.h>

namespace ronde::toy {

namespace {

constexpr std::size_t kPage = 4096;

std::byte* map(int descriptor, std::size_t bytes, int protection) {
  void* const memory = ::mmap(nullptr, bytes, protection, MAP_SHARED, descriptor, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

}  // namespace

Memory& Memory::instance() {
  static auto* const kMemory = new Memory;  // outlives whatever frees at exit
  return *kMemory;
}

void* Memory::allocate(std::size_t bytes, bool managed) {
  const std::size_t whole = (bytes + kPage) / kPage * kPage;  // also of none
  const int descriptor = ::memfd_create("toy-device", MFD_CLOEXEC);
  if (descriptor < 0) return nullptr;
  std::byte* outside = nullptr;
  std::byte* view = nullptr;
  if (::ftruncate(descriptor, static_cast<off_t>(whole)) == 0) {
    outside = map(descriptor, whole, managed ? PROT_READ | PROT_WRITE : PROT_NONE);
    view = map(descriptor, whole, PROT_READ | PROT_WRITE);
  }
  ::close(descriptor);
  if (outside == nullptr || view == nullptr) {
    if (outside != nullptr) ::munmap(outside, whole);
    if (view != nullptr) ::munmap(view, whole);
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  ranges_[reinterpret_cast<std::uintptr_t>(outside)] = {whole, view, managed};
  return outside;
}

void Memory::free(void* memory) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == ranges_.end()) return;
  ::munmap(memory, found->second.bytes);
  ::munmap(found->second.view, found->second.bytes);
  ranges_.erase(found);
}

std::optional<Memory::Place> Memory::find(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const std::lock_guard lock(mutex_);
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return std::nullopt;
  const auto& [begin, range] = *--next;
  if (address - begin >= range.bytes) return std::nullopt;
  return Place{range.view + (address - begin), range.managed};
}

std::byte* Memory::view(const void* pointer) {
  if (const auto place = find(pointer)) return place->view;
  return static_cast<std::byte*>(const_cast<void*>(pointer));
}

}  // namespace ronde::toy
