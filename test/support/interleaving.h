// SPDX-License-Identifier: Apache-2.0
// A small model checker: runs a few threads that share a few words in every possible interleaving,
// with stores that become visible late, and looks for a forbidden state. Code written as a template
// over its atomics runs in it unchanged.
//
// How it works. Every operation on a shared word is a step. A state is the words, each thread's
// store buffer, and where each thread is. Where a thread is follows from what its operations
// returned, so a thread is never suspended: its body is run again from the start with the results
// it had, and stops at the first operation that has none. A checkpoint (nothing but its number
// lives on there) makes different pasts one, which keeps loops finite. The states are visited
// breadth first, each once, so that the run shown for a failure is a shortest one.
//
// Memory. A store that is not seq_cst goes to the thread's buffer and becomes visible, in order, at
// any later time (so does an addition whose result is not used); seq_cst stores, read-modify-writes
// and lock() wait until the buffer is empty; a relaxed read-modify-write does not. Loads are never
// early: the model is x86's and a little weaker, not C++'s whole one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ronde::test {

using Value = std::uint8_t;

enum class Step : std::uint8_t {
  kLoad,
  kStore,
  kStoreLater,  // buffered
  kPut,         // at once, past the buffer: for owned words
  kAdd,         // returns the old value
  kAddLater,    // buffered; returns 0
  kExchange,
  kRelaxedExchange,
  kCompareExchange,  // `a` expected, `b` new; returns the old value
  kChoose,           // any of 0 .. a-1
  kWaitWhile,        // blocks while the word is `a`, then 1; `b` is a TimeOut: then 0
  kLock,             // blocks while the word is not 0, then 1
  kUnlock,           // at once: later would only keep others waiting
  kCheckpoint,       // number `a`
  kFail,
  kFinish,
};

// Tells whether a wait ends by itself. A wait that only may end (a deadline far away) rescues no
// thread: a state where nothing else can happen is quiet. A wait that will end counts as a thread
// that runs.
enum class TimeOut : Value { kNever, kMay, kWill };

struct Operation {
  Step step = Step::kFinish;
  Value word = 0;
  Value a = 0;
  Value b = 0;
  const char* text = "";
  friend bool operator==(const Operation& x, const Operation& y) {
    return x.step == y.step && x.word == y.word && x.a == y.a && x.b == y.b;
  }
};

// The operations of a thread's body. A body may hold no state of its own across operations except
// what follows from their results.
class ModelThread {
 public:
  ModelThread(int thread, const std::vector<Value>& results) : thread_(thread), results_(results) {}

  [[nodiscard]] int index() const { return thread_; }

  Value load(Value word) { return perform({Step::kLoad, word}); }
  void store(Value word, Value value) { perform({Step::kStore, word, value}); }
  void store_later(Value word, Value value) { perform({Step::kStoreLater, word, value}); }
  void put(Value word, Value value) { perform({Step::kPut, word, value}); }
  Value add(Value word, Value value) { return perform({Step::kAdd, word, value}); }
  void add_later(Value word, Value value) { perform({Step::kAddLater, word, value}); }
  Value exchange(Value word, Value value) { return perform({Step::kExchange, word, value}); }
  Value relaxed_exchange(Value word, Value value) {
    return perform({Step::kRelaxedExchange, word, value});
  }
  bool compare_exchange(Value word, Value& expected, Value value) {
    const Value old = perform({Step::kCompareExchange, word, expected, value});
    const bool same = old == expected;
    expected = old;
    return same;
  }
  Value choose(Value alternatives) { return perform({Step::kChoose, 0, alternatives}); }
  // Returns false when the wait timed out.
  bool wait_while(Value word, Value value, TimeOut time_out) {
    return perform({Step::kWaitWhile, word, value, static_cast<Value>(time_out)}) != 0;
  }
  void lock(Value word) { perform({Step::kLock, word}); }
  void unlock(Value word) { perform({Step::kUnlock, word, 0}); }
  void checkpoint(Value number) { perform({Step::kCheckpoint, 0, number}); }
  void require(bool condition, const char* text) {
    if (!condition) perform({Step::kFail, 0, 0, 0, text});
  }

  // A body throws this at its first operation without a result.
  struct Stop {
    Operation next;
  };

 private:
  Value perform(const Operation& operation);

  int thread_;
  const std::vector<Value>& results_;
  std::size_t used_ = 0;
};

using ModelBody = std::function<void(ModelThread&)>;

// A state as a check sees it.
struct ModelView {
  std::vector<Value> words;
  std::vector<bool> finished;  // by thread
};

class Interleaving {
 public:
  // Returns what is wrong with a state, or nullopt.
  using Check = std::function<std::optional<std::string>(const ModelView&)>;

  // Two promises make fewer states; both are about loads whose time no thread can observe.
  // owned: the threads take care that only one at a time touches the word, and check that
  // themselves by other words. Loads, puts and relaxed exchanges of it happen at once. last: once
  // the word has this value it keeps it, so that loads then happen at once.
  struct Promise {
    bool owned = false;
    std::optional<Value> last = std::nullopt;
  };
  Value add_word(std::string name, Value initial, Promise promise);
  Value add_word(std::string name, Value initial) { return add_word(std::move(name), initial, {}); }
  // `forever`: the thread need not finish.
  void add_thread(std::string name, ModelBody body, bool forever = false);
  // This check is required. It runs where nothing can happen any more except that a wait times out.
  void when_quiet(Check check) { when_quiet_ = std::move(check); }

  struct Report {
    std::uint64_t states = 0;
    std::uint64_t transitions = 0;
    std::uint64_t quiet = 0;  // states where nothing but a time-out can happen
    // Empty when all is well; otherwise what is wrong and a shortest run that leads there.
    std::string failure;
    bool complete = false;  // every state was visited
  };
  // Visits every state, at most `limit`. A state from which the threads that must finish cannot do
  // so any more, whatever happens, is a failure too (a loop without a way out).
  Report explore(std::uint64_t limit);

 private:
  class Search;
  struct Thread {
    std::string name;
    ModelBody body;
    bool forever;
  };
  struct Word {
    std::string name;
    Value initial;
    Promise promise;
  };
  std::vector<Thread> threads_;
  std::vector<Word> words_;
  Check when_quiet_;
};

}  // namespace ronde::test
