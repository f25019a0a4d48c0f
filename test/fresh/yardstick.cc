// SPDX-License-Identifier: Apache-2.0
// What ./dev fresh compiles beside the demo to tell how fast this machine is: nothing of Ronde, and
// never changed.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <regex>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

namespace {

template <int Level>
struct Node {
  using Value = std::variant<int, double, std::string, std::vector<std::string>>;
  std::map<std::string, Value> values;
  std::unordered_map<std::string, std::unique_ptr<Node<Level - 1>>> children;
  std::function<bool(const Value&)> keep;

  std::size_t count() const {
    std::size_t sum = 0;
    for (const auto& [name, value] : values) {
      if (keep && keep(value)) sum += name.size() + static_cast<std::size_t>(Level);
    }
    for (const auto& [name, child] : children) {
      if (child) sum += child->count();
    }
    return sum;
  }

  void fill(std::mt19937& random) {
    std::vector<std::string> names{"a", "b", "c"};
    std::shuffle(names.begin(), names.end(), random);
    std::sort(names.begin(), names.end(),
              [](const auto& a, const auto& b) { return a.size() + Level < b.size(); });
    for (const std::string& name : names) {
      if (!std::regex_match(name, std::regex("[a-z]+"))) continue;
      values[name] = static_cast<double>(Level);
      auto child = std::make_unique<Node<Level - 1>>();
      child->fill(random);
      children.emplace(name, std::move(child));
    }
  }
};

template <>
struct Node<0> {
  static std::size_t count() { return 1; }
  static void fill(std::mt19937& random) { random.discard(1); }
};

}  // namespace

int main() {
  std::mt19937 random(1);
  Node<12> root;
  root.fill(random);
  return root.count() == 0 ? 1 : 0;
}
