// SPDX-License-Identifier: Apache-2.0
// A rank that ends its process with an engine that is open.
//
// usage: exit_worker global | never | failed | exit
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <ronde/ronde.hpp>
#include <span>
#include <string>
#include <vector>

namespace {

// Made in main(), after MPI's end has been registered, and destroyed after it.
std::unique_ptr<ronde::Engine> global_engine;  // NOLINT(*-avoid-non-const-global-variables)

// An engine of the C ABI that nobody closes. Static objects of a program may still use it.
struct NeverClosed {
  ronde_engine* engine = nullptr;

  NeverClosed() = default;
  NeverClosed(const NeverClosed&) = delete;
  NeverClosed& operator=(const NeverClosed&) = delete;
  ~NeverClosed() {
    if (engine != nullptr && sums) sum("in a destructor");
  }

  ronde_request request_of(const char* name, float* value) const {
    ronde_request request;
    ronde_request_init(&request);
    request.name = name;
    request.op = RONDE_SUM;
    request.output = value;
    return request;
  }
  void sum(const char* name) const {
    float value = 1.0F;
    const ronde_request request = request_of(name, &value);
    const ronde_status status = ronde_allreduce(engine, &request, nullptr);
    std::printf("%s: %s %g\n", name, ronde_status_name(status), static_cast<double>(value));
    std::fflush(stdout);
  }

  bool sums = false;
};
NeverClosed never_closed;  // NOLINT(*-avoid-non-const-global-variables)

float value_in_flight = 1.0F;  // NOLINT(*-avoid-non-const-global-variables)

ronde_work* submit(const char* name) {
  const ronde_request request = never_closed.request_of(name, &value_in_flight);
  ronde_work* work = nullptr;
  ronde_allreduce_async(never_closed.engine, &request, &work, nullptr);
  return work;
}

int run(const std::string& how) {
  if (how == "global") {
    global_engine = std::make_unique<ronde::Engine>();
    std::vector<float> data(10, 1.0F);
    global_engine->allreduce_blocking("x", std::span(data), ronde::sum);
    std::printf("x: %g\n", static_cast<double>(data[9]));
    return 0;
  }
  if (ronde_engine_open(nullptr, &never_closed.engine, nullptr) != RONDE_OK) return 1;
  never_closed.sum("x");
  if (how == "never") {
    never_closed.sums = true;
    return 0;
  }
  const bool second = ronde_rank(never_closed.engine) == 1;
  if (how == "failed") {
    if (second) ronde_work_settle(submit("of rank 1 alone"), 0);
    if (!second) ronde_work_wait(submit("of rank 0 alone"), nullptr);
    return 0;
  }
  ronde_work* const work = submit(second ? "of rank 1 alone" : "of rank 0 alone");
  if (second) std::exit(3);
  ronde_error* error = nullptr;
  ronde_work_wait(work, &error);
  std::fprintf(stderr, "rank 0 was told: %s\n", ronde_error_message(error));
  return 4;
}

}  // namespace

int main(int argc, char** argv) { return argc == 2 ? run(argv[1]) : 2; }
