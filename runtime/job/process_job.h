// SPDX-License-Identifier: Apache-2.0
// A job of processes whose ranks have met (opening.h makes it).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/job_shape.h"
#include "base/process/file_descriptor.h"
#include "collectives/board/board.h"
#include "collectives/transport/meeting.h"
#include "collectives/transport/transport.h"
#include "runtime/job/job.h"
#include "runtime/job/opening_engine.h"
#include "runtime/job/rank_table.h"
#include "runtime/links/tcp_links.h"

namespace ronde::runtime {

// What a rank has opened. Thread safety: a value.
struct ProcessJobParts {
  base::JobShape shape;
  collectives::Board board;
  // The sockets of the handover, by position on the host.
  std::vector<base::FileDescriptor> connections;
  std::unique_ptr<TcpLinks> links;                    // of a leader, in a job of several hosts
  std::unique_ptr<collectives::Transport> transport;  // where one is needed
  std::string transport_note;
  std::string table;
  RankTable ranks;
  std::int64_t cores = 1;
};

// `engine`: until the start is over.
std::unique_ptr<Job> make_process_job(std::unique_ptr<collectives::Meeting> meeting,
                                      std::unique_ptr<OpeningEngine> engine, ProcessJobParts parts);

}  // namespace ronde::runtime
