// SPDX-License-Identifier: Apache-2.0
// A store of the program's, over which ranks meet. Included by ronde.hpp.
#pragma once

#include <ronde/ronde.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace ronde {

// Ranks that nothing else introduces meet over a store of keys and values: LibTorch's c10d::Store,
// etcd, Redis, a shared folder (examples/shared_folder.cc). Derive from it, and pass it to the
// Engine. One engine uses a store: another one needs another, or keys with another prefix. Keys
// have at most 128 letters, digits, '/', '-' and '_'. Whoever can write to the store can take part.
//
// Ownership: the caller's; the engine uses it in its constructor alone. Errors: what a function
// throws, the Engine's constructor throws. Thread safety: only the thread that opens the engine
// calls it.
class Store {
 public:
  // A base for the program's class; the engine keeps a pointer, so a store cannot be copied.
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  // Puts a value there, for every rank to get.
  virtual void set(const std::string& key, std::span<const std::byte> value) = 0;
  // Waits until some rank has put a value there; nothing if none has after `timeout`.
  virtual std::optional<std::vector<std::byte>> get(const std::string& key,
                                                    std::chrono::nanoseconds timeout) = 0;
};

namespace detail {

// A Store as the C ABI takes it. It is used while it lives, and so is not moved.
class StoreFunctions {
 public:
  explicit StoreFunctions(Store& store) : store_(store) {
    ronde_store_init(&functions_);
    functions_.context = this;
    functions_.set = [](void* self, const char* key, const void* bytes, std::size_t size) {
      return guarded(self, [&](Store& of) {
        of.set(key, {static_cast<const std::byte*>(bytes), size});
        return RONDE_OK;
      });
    };
    functions_.get = [](void* self, const char* key, std::int64_t timeout, ronde_store_take take,
                        void* taker) {
      return guarded(self, [&](Store& of) {
        const auto value = of.get(key, std::chrono::nanoseconds(timeout));
        if (!value) return RONDE_DEADLINE;
        take(taker, value->data(), value->size());
        return RONDE_OK;
      });
    };
    functions_.failure = [](void* self) {
      return static_cast<StoreFunctions*>(self)->words_.c_str();
    };
  }
  StoreFunctions(const StoreFunctions&) = delete;
  StoreFunctions& operator=(const StoreFunctions&) = delete;
  ~StoreFunctions() = default;

  [[nodiscard]] const ronde_store* get() const { return &functions_; }
  // Throws what the store has thrown, if it has.
  void rethrow() const {
    if (thrown_) std::rethrow_exception(thrown_);
  }

 private:
  template <class Call>
  static ronde_status guarded(void* self, const Call& call) noexcept {
    auto& functions = *static_cast<StoreFunctions*>(self);
    functions.words_.clear();  // those of an earlier call
    try {
      return call(functions.store_);
    } catch (const std::exception& error) {
      return functions.keep(error.what());
    } catch (...) {
      return functions.keep("an exception without words");
    }
  }

  // Inside a handler.
  ronde_status keep(const char* words) noexcept {
    thrown_ = std::current_exception();
    try {
      words_ = words;
    } catch (...) {
      words_.clear();  // there is no memory for them
    }
    return RONDE_SYSTEM;
  }

  Store& store_;
  ronde_store functions_;
  std::exception_ptr thrown_;
  std::string words_;  // of what was thrown
};

}  // namespace detail
}  // namespace ronde
