// SPDX-License-Identifier: Apache-2.0
// A mutex that clang's thread-safety analysis understands: `./dev lint` proves which lock guards
// what. Other compilers see a plain std::mutex.
#pragma once

#include <mutex>

#if defined(__clang__)
#define RONDE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define RONDE_THREAD_ANNOTATION(x)
#endif

#define RONDE_CAPABILITY(x) RONDE_THREAD_ANNOTATION(capability(x))
#define RONDE_SCOPED_CAPABILITY RONDE_THREAD_ANNOTATION(scoped_lockable)
#define RONDE_GUARDED_BY(x) RONDE_THREAD_ANNOTATION(guarded_by(x))
#define RONDE_REQUIRES(...) RONDE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define RONDE_EXCLUDES(...) RONDE_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define RONDE_ACQUIRE(...) RONDE_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define RONDE_RELEASE(...) RONDE_THREAD_ANNOTATION(release_capability(__VA_ARGS__))

namespace ronde::base {

class RONDE_CAPABILITY("mutex") Mutex {
 public:
  void lock() RONDE_ACQUIRE() { mutex_.lock(); }
  void unlock() RONDE_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class RONDE_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) RONDE_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() RONDE_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace ronde::base
