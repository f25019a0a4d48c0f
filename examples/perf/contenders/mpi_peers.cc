// SPDX-License-Identifier: Apache-2.0
// MPI's collectives as contenders; the only file of this program that calls MPI.
#include "examples/perf/contenders/mpi_peers.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "examples/perf/options/options.h"

// MPI's constants are casts through void.
// NOLINTBEGIN(bugprone-casting-through-void)
namespace ronde::perf {

namespace {

constexpr const char* kBest = "mpi-best";

void check(int error, const char* action) {
  if (error == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(error, text.data(), &length);
  throw std::runtime_error(std::string(action) + ": " + text.data());
}

MPI_Datatype type_of(const DType& dtype) {
  switch (dtype.code) {
    case RONDE_U8:
      return MPI_UINT8_T;
    case RONDE_I8:
      return MPI_INT8_T;
    case RONDE_U16:
      return MPI_UINT16_T;
    case RONDE_I16:
      return MPI_INT16_T;
    case RONDE_U32:
      return MPI_UINT32_T;
    case RONDE_I32:
      return MPI_INT32_T;
    case RONDE_U64:
      return MPI_UINT64_T;
    case RONDE_I64:
      return MPI_INT64_T;
    case RONDE_F32:
      return MPI_FLOAT;
    case RONDE_F64:
      return MPI_DOUBLE;
    default:
      return MPI_DATATYPE_NULL;
  }
}

MPI_Op op_of(const Op& op) {
  switch (op.reduction) {
    case Reduction::kSum:
      return MPI_SUM;
    case Reduction::kProduct:
      return MPI_PROD;
    case Reduction::kMin:
      return MPI_MIN;
    case Reduction::kMax:
      return MPI_MAX;
    case Reduction::kBitAnd:
      return MPI_BAND;
    case Reduction::kBitOr:
      return MPI_BOR;
    case Reduction::kBitXor:
      return MPI_BXOR;
    default:
      return MPI_OP_NULL;
  }
}

class MpiContender final : public Contender {
 public:
  MpiContender(std::string name, MPI_Comm communicator)
      : name_(std::move(name)), communicator_(communicator) {}

  [[nodiscard]] std::string name() const override { return name_; }

  [[nodiscard]] std::string lacks(const Case& shape) const override {
    const bool reduced = shape.row().reduces != 0;
    std::string operation(name_of(shape.operation));
    if (shape.output_elements() > INT_MAX || shape.input_elements() > INT_MAX) {
      return "vectors of more than " + std::to_string(INT_MAX) + " elements";
    }
    // mpi-best has a better allreduce; the other operations of its communicator are MPI's defaults.
    if (name_ == kBest && !reduced) return operation;
    if (shape.moves_nothing()) return "";
    if (type_of(*shape.dtype) == MPI_DATATYPE_NULL) return std::string(shape.dtype->name);
    if (reduced && op_of(*shape.op) == MPI_OP_NULL) return std::string(shape.op->name);
    if (shape.row().has_root != 0) {
      return shape.in_place ? "" : operation + " out of place";
    }
    // MPI expects a vector in place at another address than Ronde.
    return shape.is_whole() || !shape.in_place ? "" : operation + " in place";
  }

  void prepare(const Task& task) override {
    task_ = task;
    count_ = static_cast<int>(task.shape.count);
    type_ = type_of(*task.shape.dtype);
    op_ = op_of(*task.shape.op);
    input_ = task.shape.in_place ? MPI_IN_PLACE : task.input;
  }

  void run() override { check(start(), "a collective of MPI"); }
  [[nodiscard]] std::byte* result() override { return task_.output; }

 private:
  int start() {
    switch (task_.shape.operation) {
      case Operation::kAllreduce:
      case Operation::kModel:
        return MPI_Allreduce(input_, task_.output, count_, type_, op_, communicator_);
      case Operation::kBroadcast:
        return MPI_Bcast(task_.output, count_, type_, task_.shape.root, communicator_);
      case Operation::kAllgather:
        return MPI_Allgather(input_, count_, type_, task_.output, count_, type_, communicator_);
      case Operation::kReduceScatter:
        return MPI_Reduce_scatter_block(input_, task_.output, count_, type_, op_, communicator_);
      case Operation::kAllToAll:
        return MPI_Alltoall(input_, count_, type_, task_.output, count_, type_, communicator_);
      case Operation::kBarrier:
        return MPI_Barrier(communicator_);
    }
    return MPI_ERR_OTHER;
  }

  std::string name_;
  MPI_Comm communicator_;
  Task task_;
  int count_ = 0;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  MPI_Op op_ = MPI_OP_NULL;
  const void* input_ = nullptr;
};

// Sets a control variable of MPI for as long as this lives.
class Setting {
 public:
  Setting(const char* name, int value) {
    int index = 0;
    int count = 0;
    if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS || !find_names(index) ||
        MPI_T_cvar_handle_alloc(index, nullptr, &handle_, &count) != MPI_SUCCESS || count != 1 ||
        MPI_T_cvar_read(handle_, &before_) != MPI_SUCCESS ||
        MPI_T_cvar_write(handle_, &value) != MPI_SUCCESS) {
      throw UsageError(std::string("--against mpi-best needs OpenMPI with its component 'tuned': "
                                   "this MPI refuses ") +
                       name);
    }
  }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;
  ~Setting() {
    if (handle_ == MPI_T_CVAR_HANDLE_NULL) return;
    MPI_T_cvar_write(handle_, &before_);
    MPI_T_cvar_handle_free(&handle_);
  }

  // Returns the value that MPI has now, by name where its values have names.
  [[nodiscard]] std::string in_words() const {
    int value = 0;
    check(MPI_T_cvar_read(handle_, &value), "reading a variable of MPI");
    int items = 0;
    if (names_ != MPI_T_ENUM_NULL) {
      check(MPI_T_enum_get_info(names_, &items, nullptr, nullptr), "reading an enumeration of MPI");
    }
    for (int item = 0; item < items; ++item) {
      std::array<char, 128> name{};
      int number = 0;
      int length = static_cast<int>(name.size());
      check(MPI_T_enum_get_item(names_, item, &number, name.data(), &length),
            "reading an enumeration of MPI");
      if (number == value) return name.data();
    }
    return std::to_string(value);
  }

 private:
  bool find_names(int index) {
    int verbosity = 0;
    int binding = 0;
    int scope = 0;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    return MPI_T_cvar_get_info(index, nullptr, nullptr, &verbosity, &type, &names_, nullptr,
                               nullptr, &binding, &scope) == MPI_SUCCESS &&
           type == MPI_INT;
  }

  MPI_T_enum names_ = MPI_T_ENUM_NULL;
  MPI_T_cvar_handle handle_ = MPI_T_CVAR_HANDLE_NULL;
  int before_ = 0;
};

struct Best {
  MPI_Comm communicator = MPI_COMM_NULL;
  std::string algorithm;  // in MPI's words
};

// A communicator takes its algorithms when it is made: this one gets the segmented ring, and then
// the variables are restored, so that MPI_COMM_WORLD keeps its defaults.
Best duplicate_with_segmented_ring() {
  constexpr int kSegmentedRing = 5;
  constexpr int kSegmentBytes = 256 << 10;
  int provided = 0;
  check(MPI_T_init_thread(MPI_THREAD_SERIALIZED, &provided), "starting MPI's tool interface");
  Best best;
  {
    const Setting algorithm("coll_tuned_allreduce_algorithm", kSegmentedRing);
    const Setting segment("coll_tuned_allreduce_algorithm_segmentsize", kSegmentBytes);
    check(MPI_Comm_dup(MPI_COMM_WORLD, &best.communicator), "duplicating a communicator");
    best.algorithm = algorithm.in_words() + ", segments of " + segment.in_words() + " bytes";
  }
  check(MPI_T_finalize(), "ending MPI's tool interface");
  return best;
}

class Peers final : public MpiPeers {
 public:
  explicit Peers(bool with_best) {
    if (with_best) best_ = duplicate_with_segmented_ring();
  }

  [[nodiscard]] std::unique_ptr<Contender> make(const std::string& name) override {
    return std::make_unique<MpiContender>(name,
                                          name == kBest ? best_.communicator : MPI_COMM_WORLD);
  }

  [[nodiscard]] std::string version() const override {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
    int length = 0;
    MPI_Get_library_version(text.data(), &length);
    const std::string all = text.data();
    return all.substr(0, all.find(','));
  }

  [[nodiscard]] std::string best() const override { return best_.algorithm; }

  void close() override {
    if (best_.communicator != MPI_COMM_NULL) {
      check(MPI_Comm_free(&best_.communicator), "freeing a communicator");
    }
    check(MPI_Finalize(), "ending MPI");
  }

 private:
  Best best_;
};

}  // namespace

std::unique_ptr<MpiPeers> start_mpi_peers(const std::vector<std::string>& names) {
  const bool best = std::find(names.begin(), names.end(), kBest) != names.end();
  // Without this the component does not read its variables. A user's own value is kept.
  if (best) setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 0);
  int provided = MPI_THREAD_SINGLE;
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "starting MPI");
  return std::make_unique<Peers>(best);
}

}  // namespace ronde::perf
// NOLINTEND(bugprone-casting-through-void)
