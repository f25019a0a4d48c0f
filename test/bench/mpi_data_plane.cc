// SPDX-License-Identifier: Apache-2.0
// The data plane alone, of a host or of several, without negotiation, batches and works, beside
// MPI_Allreduce as it comes: an allreduce on boards that were handed over and tuned as in
// production, stepped until it is done. With --floor also the floor, memcpy, and OpenMPI's best
// forced algorithm.
#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/numbers.h"
#include "base/process/environment.h"
#include "base/tensor.h"
#include "collectives/plane/plane.h"
#include "collectives/transport/collective.h"
#include "collectives/transport/transport.h"
#include "collectives/transport/workspace.h"
#include "runtime/job/job.h"
#include "test/bench/support/contender.h"
#include "test/bench/support/floor_protocol.h"
#include "test/bench/support/meeting.h"
#include "test/bench/support/options.h"
#include "test/bench/support/report.h"
#include "test/bench/support/sampling.h"

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace {

using namespace ronde::bench;  // NOLINT(google-build-using-namespace): this is its program
using ronde::base::Status;

void require(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.to_string());
}

void require_mpi(int error, const char* doing) {
  if (error != MPI_SUCCESS) throw std::runtime_error(std::string(doing) + " failed");
}

// ---- the contenders ----

class DataPlane final : public Contender {
 public:
  DataPlane(ronde::runtime::Job& job, const ronde::base::Config& config, bool oversubscribed)
      : Contender("ronde"),
        workspace_(std::make_unique<ronde::collectives::Workspace>()),
        transport_(job.take_transport()),
        plane_(job.shape().hosts() == 1
                   ? ronde::collectives::make_in_host_plane(job.board(), job.probes())
                   : ronde::collectives::make_two_level_plane(
                         job.board(), job.probes(), job.shape(), *transport_, *workspace_, config)),
        oversubscribed_(oversubscribed) {
    require(plane_->tune(config, [this]() -> Status {
      relax(oversubscribed_);
      return {};
    }));
    exchange_.operation = ronde::base::Operation::kAllreduce;
    exchange_.tensors.resize(1);
    exchange_.how = {.dtype = ronde::base::DType::kF32, .op = ronde::base::ReduceOp::kSum};
  }

  [[nodiscard]] std::string description() const { return plane_->description(); }

  void run(float* buffer, std::int64_t elements) override {
    auto* const memory = reinterpret_cast<std::byte*>(buffer);
    exchange_.tensors.front() = {memory, memory, ronde::base::Elements(elements),
                                 exchange_.how.dtype};
    ++exchange_.sequence;
    auto made = plane_->make(exchange_);
    require(made.status());
    const auto collective = std::move(*made);
    // So many pauses mean that something else has the core of the rank that is waited for.
    constexpr int kPatience = 20'000;
    for (int idle = 0;;) {
      const auto result = collective->step();
      if (!result.ok()) require(result.status());
      if (*result == ronde::collectives::StepResult::kDone) return;
      if (*result == ronde::collectives::StepResult::kIdle) {
        // While messages are under way MPI has just given the core away itself, if it was told to.
        if (transport_ != nullptr && transport_->outstanding() > 0) continue;
        relax(oversubscribed_ || ++idle > kPatience);
      }
    }
  }

 private:
  std::unique_ptr<ronde::collectives::Workspace> workspace_;  // outlives the transport
  std::unique_ptr<ronde::collectives::Transport> transport_;
  std::unique_ptr<ronde::collectives::DataPlane> plane_;
  const bool oversubscribed_;
  ronde::collectives::Exchange exchange_;
};

class MpiAllreduce final : public Contender {
 public:
  MpiAllreduce(std::string name, MPI_Comm communicator)
      : Contender(std::move(name)), communicator_(communicator) {}

  void run(float* buffer, std::int64_t elements) override {
    require_mpi(MPI_Allreduce(MPI_IN_PLACE, buffer, ronde::base::narrow<int>(elements), MPI_FLOAT,
                              MPI_SUM, communicator_),
                "MPI_Allreduce");
  }

 private:
  MPI_Comm communicator_;
};

void set_variable(const char* name, int value) {
  int index = 0;
  int count = 0;
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS ||
      MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS) {
    throw std::runtime_error(std::string("--best needs OpenMPI: this MPI has no ") + name);
  }
  require_mpi(MPI_T_cvar_write(handle, &value), "MPI_T_cvar_write");
  MPI_T_cvar_handle_free(&handle);
}

// A communicator takes its algorithms when it is made: this one gets the segmented ring with
// segments of 256 KiB, the others stay as they come.
MPI_Comm make_best_communicator() {
  constexpr int kSegmentedRing = 5;
  constexpr int kSegmentBytes = 256 << 10;
  int provided = 0;
  MPI_Comm communicator = MPI_COMM_NULL;
  require_mpi(MPI_T_init_thread(MPI_THREAD_SERIALIZED, &provided), "MPI_T_init_thread");
  set_variable("coll_tuned_allreduce_algorithm", kSegmentedRing);
  set_variable("coll_tuned_allreduce_algorithm_segmentsize", kSegmentBytes);
  require_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &communicator), "MPI_Comm_dup");
  set_variable("coll_tuned_allreduce_algorithm", 0);
  set_variable("coll_tuned_allreduce_algorithm_segmentsize", 0);
  return communicator;
}

// ---- the program ----

constexpr std::size_t kPage = 4096;

std::size_t round_up(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Memory that all ranks map, for the meeting: rank 0 makes it, the others find it under its
// process, which they see as long as all hosts are this machine (test/hosts/run).
std::byte* share(int rank, std::size_t bytes) {
  std::array<int, 2> owner{::getpid(), -1};
  if (rank == 0) {
    owner[1] = ::memfd_create("ronde-bench", MFD_CLOEXEC);
    if (owner[1] < 0 || ::ftruncate(owner[1], static_cast<off_t>(bytes)) != 0) owner[1] = -1;
  }
  require_mpi(MPI_Bcast(owner.data(), 2, MPI_INT, 0, MPI_COMM_WORLD), "MPI_Bcast");
  const std::string path = "/proc/" + std::to_string(owner[0]) + "/fd/" + std::to_string(owner[1]);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("the ranks could not share memory: " + path);
  ::close(descriptor);
  (void)::madvise(memory, bytes, MADV_HUGEPAGE);  // where the kernel has them
  MPI_Barrier(MPI_COMM_WORLD);                    // everybody has found it
  if (rank == 0) ::close(owner[1]);
  return static_cast<std::byte*>(memory);
}

// Returns the program's exit code.
int run(const Options& options, int rank, int ranks) {
  const std::size_t words = round_up(Meeting::bytes_for(ranks));
  std::byte* const memory = share(rank, words + round_up(floor_bytes(ranks)));
  Meeting meeting(memory, rank, ranks);

  const ronde::base::SteadyClock clock;
  const auto config = ronde::base::Config::from_environment(ronde::base::process_environment());
  require(config.status());
  auto job = ronde::runtime::open_process_job(nullptr, "", *config, clock);
  require(job.status());

  Contenders contenders;
  auto plane = std::make_unique<DataPlane>(**job, *config, meeting.oversubscribed());
  if (rank == 0) std::fprintf(stderr, "data plane: %s\n", plane->description().c_str());
  contenders.push_back(std::move(plane));
  contenders.push_back(std::make_unique<MpiAllreduce>("mpi", MPI_COMM_WORLD));
  if (options.best) {
    contenders.push_back(std::make_unique<MpiAllreduce>("mpi-best", make_best_communicator()));
  }
  if (options.floor) {
    add_floor(contenders, meeting, memory + words);
    add_memcpy(contenders, *std::max_element(options.sizes.begin(), options.sizes.end()));
  }
  std::vector<Sample> all;
  for (const std::int64_t bytes : options.sizes) {
    const auto samples = (options.cold ? measure_cold : measure)(
        meeting, contenders, bytes, options.repetitions, options.quick);
    all.insert(all.end(), samples.begin(), samples.end());
  }
  if (rank == 0) print(all, ranks, options.json);
  contenders.clear();
  require((*job)->close());
  return any_wrong(all) ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = read_options(
      argc, argv, "The data plane alone, beside MPI_Allreduce. Start it with mpirun.", false);
  // Without it OpenMPI does not read the variables of make_best_communicator at all.
  if (options.best) ::setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 0);
  int provided = 0;
  int rank = 0;
  int ranks = 1;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int code = 1;
  try {
    code = run(options, rank, ranks);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "data_plane: rank %d: %s\n", rank, error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return code;
}
// NOLINTEND(bugprone-casting-through-void)
