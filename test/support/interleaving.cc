// SPDX-License-Identifier: Apache-2.0
// The search of the model checker; interleaving.h explains what it does and why it is sound.
#include "test/support/interleaving.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "base/numbers.h"
#include "test/support/model_paths.h"
#include "test/support/model_state.h"

namespace ronde::test {

namespace {

constexpr std::uint32_t kNone = 0xffffffffU;

}  // namespace

class Interleaving::Search {
 public:
  explicit Search(const Interleaving& model) : model_(model), paths_(bodies(model)) {}
  Report run(std::uint64_t limit);

 private:
  static std::vector<ModelBody> bodies(const Interleaving& model) {
    std::vector<ModelBody> result;
    for (const Thread& thread : model.threads_) result.push_back(thread.body);
    return result;
  }

  // Keeps a state as bytes in one arena, and returns its number; equal states have equal numbers.
  std::uint32_t intern(const State& state);
  [[nodiscard]] std::string_view bytes(std::uint32_t id) const {
    return std::string_view(arena_).substr(begin_[id], begin_[id + 1] - begin_[id]);
  }
  [[nodiscard]] State decode(std::uint32_t id) const;

  // Steps.
  void expand(std::uint32_t id);
  bool drain(std::uint32_t id, const State& state, std::size_t thread);
  // Returns true when something other than a time-out can happen.
  bool step(std::uint32_t id, const State& state, std::size_t thread);
  bool blocking(std::uint32_t id, const State& state, std::size_t thread, const Operation& next);
  [[nodiscard]] bool unobserved(const State& state, std::size_t thread) const;
  void reach(std::uint32_t from, State& to);
  void settle(State& state);
  void check_promise(Value word, Value before, Value after);
  void apply(State& state, std::size_t thread, const Operation& next);
  [[nodiscard]] static Value visible(const State& state, std::size_t thread, Value word);

  [[nodiscard]] std::vector<bool> finished(const State& state) const;
  void check_quiet(std::uint32_t id, const State& state);
  void check_ends();
  void fail(const std::string& what, std::uint32_t id);
  [[nodiscard]] std::string describe(std::uint32_t before, std::uint32_t after) const;

  struct HashId {
    const Search* search;
    std::size_t operator()(std::uint32_t id) const {
      return std::hash<std::string_view>()(search->bytes(id));
    }
  };
  struct SameId {
    const Search* search;
    bool operator()(std::uint32_t a, std::uint32_t b) const {
      return search->bytes(a) == search->bytes(b);
    }
  };

  const Interleaving& model_;
  ModelPaths paths_;
  std::string arena_;
  std::vector<std::size_t> begin_{0};
  std::unordered_set<std::uint32_t, HashId, SameId> known_{1024, HashId{this}, SameId{this}};
  std::vector<std::uint32_t> parent_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> edges_;
  std::string broken_promise_;
  Report report_;
};

std::uint32_t Interleaving::Search::intern(const State& state) {
  StateBytes form;
  encode(state, model_.words_.size(), model_.threads_.size(), form);
  arena_.append(form.data.data(), form.size);
  const auto id = base::narrow<std::uint32_t>(begin_.size() - 1);
  begin_.push_back(arena_.size());
  const auto [at, added] = known_.insert(id);
  if (!added) {
    begin_.pop_back();
    arena_.resize(begin_.back());
  }
  return *at;
}

State Interleaving::Search::decode(std::uint32_t id) const {
  return decode_state(bytes(id), model_.words_.size(), model_.threads_.size());
}

Value Interleaving::Search::visible(const State& state, std::size_t thread, Value word) {
  Value value = state.words[word];
  for (const Buffered& entry : state.buffers[thread]) {
    if (entry.word != word) continue;
    value = entry.adds != 0 ? static_cast<Value>(value + entry.value) : entry.value;
  }
  return value;
}

void Interleaving::Search::reach(std::uint32_t from, State& to) {
  ++report_.transitions;
  settle(to);
  const auto before = base::narrow<std::uint32_t>(begin_.size() - 1);
  const std::uint32_t id = intern(to);
  if (id == before) parent_.push_back(from);
  edges_.emplace_back(from, id);
}

bool Interleaving::Search::drain(std::uint32_t id, const State& state, std::size_t thread) {
  if (state.buffers[thread].empty()) return false;
  State after = state;
  const Buffered entry = after.buffers[thread].pop();
  const Value before = after.words[entry.word];
  Value& word = after.words[entry.word];
  word = entry.adds != 0 ? static_cast<Value>(word + entry.value) : entry.value;
  check_promise(entry.word, before, word);
  reach(id, after);
  return true;
}

bool Interleaving::Search::blocking(std::uint32_t id, const State& state, std::size_t thread,
                                    const Operation& next) {
  State after = state;
  if (next.step == Step::kLock) {
    if (state.words[next.word] != 0) return false;
    after.words[next.word] = 1;
    after.nodes[thread] = paths_.advance(state.nodes[thread], 0);
    reach(id, after);
    return true;
  }
  const bool ready = state.words[next.word] != next.a;
  if (next.b != 0) {
    after.nodes[thread] = paths_.advance(state.nodes[thread], 0);
    reach(id, after);
    after = state;
  }
  if (ready) {
    after.nodes[thread] = paths_.advance(state.nodes[thread], 1);
    reach(id, after);
  }
  return ready || next.b == static_cast<Value>(TimeOut::kWill);
}

bool Interleaving::Search::step(std::uint32_t id, const State& state, std::size_t thread) {
  const Operation next = paths_.next(state.nodes[thread]);
  if (next.step == Step::kFinish) return false;
  if (next.step == Step::kFail) {
    fail(next.text, id);
    return true;
  }
  const bool later = next.step == Step::kStoreLater || next.step == Step::kAddLater;
  if (later && state.buffers[thread].full()) return false;  // drain() goes on
  const bool ordered = next.step == Step::kStore || next.step == Step::kAdd ||
                       next.step == Step::kExchange || next.step == Step::kCompareExchange ||
                       next.step == Step::kLock || next.step == Step::kUnlock;
  if (ordered && !state.buffers[thread].empty()) return false;
  const auto own = [&](const Buffered& entry) { return entry.word == next.word; };
  if (next.step == Step::kRelaxedExchange && std::ranges::any_of(state.buffers[thread], own)) {
    return false;
  }
  if (next.step == Step::kWaitWhile || next.step == Step::kLock) {
    return blocking(id, state, thread, next);
  }
  if (next.step == Step::kChoose) {
    for (Value choice = 0; choice < next.a; ++choice) {
      State after = state;
      after.nodes[thread] = paths_.advance(state.nodes[thread], choice);
      reach(id, after);
    }
    return true;
  }
  State after = state;
  apply(after, thread, next);
  reach(id, after);
  return true;
}

void Interleaving::Search::check_promise(Value word, Value before, Value after) {
  if (before != after && model_.words_[word].promise.last == before) {
    broken_promise_ = "a word changes that had its last value: " + model_.words_[word].name;
  }
}

// Applies an operation that neither blocks nor chooses.
void Interleaving::Search::apply(State& state, std::size_t thread, const Operation& next) {
  const bool later = next.step == Step::kStoreLater || next.step == Step::kAddLater;
  Value& word = state.words[next.word];
  const Value before = word;
  Value result = 0;
  if (later) {
    const bool adds = next.step == Step::kAddLater;
    state.buffers[thread].push({next.word, next.a, static_cast<Value>(adds ? 1 : 0)});
  } else {
    result = next.step == Step::kLoad ? visible(state, thread, next.word) : word;
  }
  if (next.step == Step::kStore || next.step == Step::kExchange || next.step == Step::kUnlock ||
      next.step == Step::kRelaxedExchange || next.step == Step::kPut) {
    word = next.a;
  }
  if (next.step == Step::kAdd) word = static_cast<Value>(word + next.a);
  if (next.step == Step::kCompareExchange && word == next.a) word = next.b;
  if (next.step == Step::kStore || next.step == Step::kPut || next.step == Step::kUnlock)
    result = 0;
  check_promise(next.word, before, word);
  state.nodes[thread] = paths_.advance(state.nodes[thread], result);
}

// Does at once all operations whose time no other thread can observe.
void Interleaving::Search::settle(State& state) {
  for (std::size_t thread = 0; thread < model_.threads_.size();) {
    const Operation next = paths_.next(state.nodes[thread]);
    if (next.step != Step::kChoose && unobserved(state, thread)) {
      apply(state, thread, next);
    } else {
      ++thread;
    }
  }
}

std::vector<bool> Interleaving::Search::finished(const State& state) const {
  std::vector<bool> result;
  for (std::size_t i = 0; i < model_.threads_.size(); ++i) {
    result.push_back(paths_.next(state.nodes[i]).step == Step::kFinish);
  }
  return result;
}

void Interleaving::Search::check_quiet(std::uint32_t id, const State& state) {
  ++report_.quiet;
  const std::vector<bool> ends = finished(state);
  const ModelView view{{state.words.begin(), state.words.end()}, ends};
  if (const auto wrong = model_.when_quiet_(view)) fail(*wrong, id);
}

// Tells whether no other thread can observe when the next operation happens: then it happens at
// once, and only then.
bool Interleaving::Search::unobserved(const State& state, std::size_t thread) const {
  const Operation& next = paths_.next(state.nodes[thread]);
  if (next.step == Step::kChoose) return true;
  if (next.step == Step::kUnlock) return state.buffers[thread].empty();
  const Promise& promise = model_.words_[next.word].promise;
  if (next.step == Step::kLoad) {
    return promise.owned || promise.last == state.words[next.word];
  }
  return promise.owned && (next.step == Step::kPut || next.step == Step::kRelaxedExchange);
}

void Interleaving::Search::expand(std::uint32_t id) {
  const State state = decode(id);
  bool moves = false;
  for (std::size_t thread = 0; thread < model_.threads_.size() && !moves; ++thread) {
    if (unobserved(state, thread)) moves = step(id, state, thread);
  }
  if (moves && broken_promise_.empty()) return;
  for (std::size_t thread = 0; thread < model_.threads_.size(); ++thread) {
    if (drain(id, state, thread)) moves = true;
    if (step(id, state, thread)) moves = true;
  }
  if (!moves) check_quiet(id, state);
  if (!broken_promise_.empty()) fail(broken_promise_, id);
}

// Walks the edges backwards from the states where all threads have finished: a state that it does
// not reach has no way out.
void Interleaving::Search::check_ends() {
  const std::size_t states = begin_.size() - 1;
  std::vector<std::size_t> first(states + 1, 0);
  for (const auto& [from, to] : edges_) ++first[to + 1];
  for (std::size_t i = 0; i < states; ++i) first[i + 1] += first[i];
  std::vector<std::uint32_t> sources(edges_.size());
  std::vector<std::size_t> fill(first.begin(), first.end() - 1);
  for (const auto& [from, to] : edges_) sources[fill[to]++] = from;
  std::vector<bool> ends(states, false);
  std::vector<std::uint32_t> todo;
  for (std::uint32_t id = 0; id < states; ++id) {
    const std::vector<bool> done = finished(decode(id));
    bool all = true;
    for (std::size_t i = 0; i < done.size(); ++i) {
      all = all && (done[i] || model_.threads_[i].forever);
    }
    if (!all) continue;
    ends[id] = true;
    todo.push_back(id);
  }
  while (!todo.empty()) {
    const std::uint32_t id = todo.back();
    todo.pop_back();
    for (std::size_t i = first[id]; i < first[id + 1]; ++i) {
      if (ends[sources[i]]) continue;
      ends[sources[i]] = true;
      todo.push_back(sources[i]);
    }
  }
  for (std::uint32_t id = 0; id < states; ++id) {
    if (!ends[id]) return fail("from here on the threads can never all finish", id);
  }
}

std::string Interleaving::Search::describe(std::uint32_t before, std::uint32_t after) const {
  const State a = decode(before);
  const State b = decode(after);
  std::string text;
  for (std::size_t i = 0; i < model_.threads_.size(); ++i) {
    if (a.nodes[i] != b.nodes[i]) {
      static constexpr const char* kNames[] = {"load",
                                               "store",
                                               "store later",
                                               "put",
                                               "add",
                                               "add later",
                                               "exchange",
                                               "relaxed exchange",
                                               "compare-exchange",
                                               "choose",
                                               "wait while",
                                               "lock",
                                               "unlock",
                                               "checkpoint",
                                               "fail",
                                               "finish"};
      const Operation& next = paths_.next(a.nodes[i]);
      text += model_.threads_[i].name + ": " + kNames[static_cast<std::size_t>(next.step)] + " " +
              (next.step == Step::kChoose ? "" : model_.words_[next.word].name) + " " +
              std::to_string(next.a) + " " + std::to_string(next.b);
    } else if (a.buffers[i].size > b.buffers[i].size) {
      text += model_.threads_[i].name + ": late store becomes visible";
    }
  }
  for (std::size_t i = 0; i < model_.words_.size(); ++i) {
    if (a.words[i] == b.words[i]) continue;
    text += "   [" + model_.words_[i].name + " " + std::to_string(a.words[i]) + " -> " +
            std::to_string(b.words[i]) + "]";
  }
  return text.empty() ? "a thread goes round a loop" : text;
}

void Interleaving::Search::fail(const std::string& what, std::uint32_t id) {
  if (!report_.failure.empty()) return;
  std::vector<std::uint32_t> path;
  for (std::uint32_t at = id; at != kNone; at = parent_[at]) path.push_back(at);
  std::reverse(path.begin(), path.end());
  report_.failure = what + "; reached by\n";
  for (std::size_t i = 1; i < path.size(); ++i) {
    report_.failure += "  " + describe(path[i - 1], path[i]) + "\n";
  }
}

Interleaving::Report Interleaving::Search::run(std::uint64_t limit) {
  base::check(model_.when_quiet_ != nullptr, "a model needs a check of its quiet states");
  State start;
  base::check(model_.words_.size() <= kMaxWords && model_.threads_.size() <= kMaxThreads,
              "the model is larger than the checker's states");
  for (std::size_t i = 0; i < model_.words_.size(); ++i) start.words[i] = model_.words_[i].initial;
  for (std::size_t i = 0; i < model_.threads_.size(); ++i) {
    start.nodes[i] = paths_.start(static_cast<int>(i));
  }
  intern(start);
  parent_.push_back(kNone);
  std::uint32_t next = 0;
  for (; next + 1 < begin_.size() && next < limit && report_.failure.empty(); ++next) expand(next);
  report_.states = begin_.size() - 1;
  report_.complete = next + 1 == begin_.size();
  if (report_.complete && report_.failure.empty()) check_ends();
  return report_;
}

Value Interleaving::add_word(std::string name, Value initial, Promise promise) {
  words_.push_back({std::move(name), initial, promise});
  return base::narrow<Value>(words_.size() - 1);
}

void Interleaving::add_thread(std::string name, ModelBody body, bool forever) {
  threads_.push_back({std::move(name), std::move(body), forever});
}

Interleaving::Report Interleaving::explore(std::uint64_t limit) {
  Search search(*this);
  return search.run(limit);
}

}  // namespace ronde::test
