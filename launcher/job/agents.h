// SPDX-License-Identifier: Apache-2.0
// The agents of a job: their lines, what they say, and whether they are heard.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "launcher/job/agent_line.h"
#include "launcher/job/job_plan.h"
#include "launcher/output.h"

namespace ronde::launcher {

// By the number of their host in the plan, which outlives this object.
//
// Thread safety: none; for programs of one thread.
class Agents {
 public:
  Agents(const JobPlan& plan, const base::Clock& clock) : plan_(plan), clock_(clock) {}

  // Starts them all; they answer with a hello.
  base::Status start(const Signals& signals);
  // Sends each its part of the job.
  void start_ranks();

  void add_to(std::vector<pollfd>& entries) const;
  // What has been said by an agent; nothing more will be by one that is `lost`, and `why` says it
  // as far as it is known.
  struct Event {
    std::size_t host = 0;
    std::optional<AgentMessage> message{};
    bool lost = false;
    std::string why{};
  };
  // Reads and writes. Connections between hosts are passed on here.
  std::vector<Event> serve(Output& output);
  // Tells all that this process is there, and finds those that have not been heard for too long.
  std::vector<Event> beat();

  void tell_all(const AgentMessage& message);
  void tell(std::size_t host, const AgentMessage& message);
  // Lets them go on printing what has been read of them.
  void give_credit();

  [[nodiscard]] std::size_t size() const { return hosts_.size(); }
  // What a host calls itself; empty: it has said nothing yet.
  [[nodiscard]] const std::string& name(std::size_t host) const { return hosts_[host].name; }
  [[nodiscard]] bool all_there() const;
  // Nothing of the job is left there.
  [[nodiscard]] bool is_empty(std::size_t host) const { return hosts_[host].empty; }
  [[nodiscard]] const std::string& last_words(std::size_t host) const;
  // What ranks that have ended have left behind.
  [[nodiscard]] Leftovers rest() const;
  // No agent will say anything more.
  [[nodiscard]] bool all_over() const;
  void give_up();
  // Ends the processes behind the lines.
  void close();

 private:
  struct HostState {
    std::optional<AgentLine> line;
    std::string name;
    std::string identity;
    bool over = false;   // nothing more will come
    bool empty = false;  // nothing of the job is left there
    Leftovers rest;
    std::int64_t owed = 0;  // of credit
    base::Instant heard{};
  };

  void hear(std::size_t index, Output& output, std::vector<Event>& said);
  // What concerns this object alone. False: the job has to know.
  bool take(std::size_t index, AgentMessage& message);
  void pass(std::size_t index, Relay relay);

  const JobPlan& plan_;
  const base::Clock& clock_;
  std::vector<HostState> hosts_;
};

}  // namespace ronde::launcher
