// SPDX-License-Identifier: Apache-2.0
// A mutex that clang's thread-safety analysis understands: `./dev lint` proves which lock guards
// what. Other compilers see a plain std::mutex.
#pragma once

#include <mutex>
#include <shared_mutex>

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
#define RONDE_UNGUARDED RONDE_THREAD_ANNOTATION(no_thread_safety_analysis)
#define RONDE_ACQUIRE(...) RONDE_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define RONDE_RELEASE(...) RONDE_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define RONDE_ACQUIRE_SHARED(...) RONDE_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define RONDE_RELEASE_SHARED(...) RONDE_THREAD_ANNOTATION(release_shared_capability(__VA_ARGS__))

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

// A lock that any number of readers hold together, or one writer. Readers that keep coming keep a
// writer out.
class RONDE_CAPABILITY("shared mutex") SharedMutex {
 public:
  void lock() RONDE_ACQUIRE() { mutex_.lock(); }
  void unlock() RONDE_RELEASE() { mutex_.unlock(); }
  void lock_shared() RONDE_ACQUIRE_SHARED() { mutex_.lock_shared(); }
  void unlock_shared() RONDE_RELEASE_SHARED() { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

class RONDE_SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) RONDE_ACQUIRE_SHARED(mutex) : mutex_(mutex) {
    mutex_.lock_shared();
  }
  ~ReaderLock() RONDE_RELEASE() { mutex_.unlock_shared(); }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  SharedMutex& mutex_;
};

class RONDE_SCOPED_CAPABILITY WriterLock {
 public:
  explicit WriterLock(SharedMutex& mutex) RONDE_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~WriterLock() RONDE_RELEASE() { mutex_.unlock(); }
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  SharedMutex& mutex_;
};

}  // namespace ronde::base
