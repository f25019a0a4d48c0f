// SPDX-License-Identifier: Apache-2.0
// The contenders that every build has: Ronde, as one tensor or one by one, and memcpy.
#include "examples/perf/contenders/contender.h"

#include <utility>

namespace ronde::perf {

namespace {

// Calls a function of the C ABI whose last argument receives the error. Throws Error. Dtypes are
// chosen at run time, so the requests are filled in here and not by the facade's templates.
template <typename Function, typename... Arguments>
void call(Function* function, Arguments... arguments) {
  ronde_error* error = nullptr;
  const ronde_status status = function(arguments..., &error);
  if (status == RONDE_OK) return;
  if (error == nullptr) throw Error(status, ronde_status_name(status), "", -1);
  const std::unique_ptr<ronde_error, void (*)(ronde_error*)> owner(error, ronde_error_release);
  throw Error(status, ronde_error_message(error), ronde_error_place(error),
              ronde_error_rank(error));
}

ronde_request request_for(const Task& task, const char* name, const std::int64_t* length) {
  const Case& shape = task.shape;
  ronde_request request;
  ronde_request_init(&request);
  request.name = name;
  request.shape = length;
  request.dimensions = 1;
  request.dtype = shape.dtype->code;
  request.op = shape.op->code;
  request.root = shape.root;
  request.device = task.device->number();
  request.stream = task.device->stream();
  return request;
}

bool is_on_device(const Task& task) { return task.device->number() != RONDE_DEVICE_CPU; }

class RondeContender final : public Contender {
 public:
  RondeContender(Engine& engine, std::string name, bool prepared)
      : engine_(engine.get()), name_(std::move(name)), is_prepared_(prepared) {}
  ~RondeContender() override {
    ronde_work_release(work_);
    ronde_prepared_release(prepared_);
  }

  [[nodiscard]] std::string name() const override { return name_; }

  [[nodiscard]] std::string lacks(const Case& shape) const override {
    const std::string name(name_of(shape.operation));
    // Its rows differ from call to call.
    if (is_prepared_ && shape.is_owned() && shape.row().input == RONDE_BLOCKS) {
      return name + ", prepared";
    }
    return shape.is_owned() && shape.in_place ? name + " in place" : "";
  }

  void prepare(const Task& task) override {
    task_ = task;
    const Case& shape = task.shape;
    // Each kind of call keeps its name: later calls use the plan, as in a trainer's loop.
    tensor_ = "perf/" + std::string(name_of(shape.operation)) + "/" +
              std::string(shape.dtype->name) + "/" + std::string(shape.op->name) + "/" +
              std::to_string(shape.count);
    length_ = static_cast<std::int64_t>(shape.input_elements());
    request_ = request_for(task, tensor_.c_str(), &length_);
    request_.input = shape.in_place ? nullptr : task.input;
    request_.output = task.output;
    if (shape.is_owned()) request_.output = nullptr;
    if (shape.row().output == RONDE_BLOCK) request_.input = task.input;
    ronde_prepared_release(std::exchange(prepared_, nullptr));
    if (!is_prepared_) return;
    std::int32_t kind = 0;
    while (ronde_operation_info(kind) != &shape.row()) ++kind;
    call(ronde_prepare, engine_, static_cast<ronde_operation_kind>(kind), &request_, &prepared_);
  }

  void run() override {
    if (is_prepared_) return call(ronde_prepared_run, prepared_);
    if (is_on_device(task_)) return run_on_device();
    const Calls& calls = calls_of(task_.shape.operation);
    if (calls.waiting != nullptr) return call(calls.waiting, engine_, &request_);
    call(calls.waiting_with_result, engine_, &request_, &work_);
  }

  [[nodiscard]] std::byte* result() override {
    if (!task_.shape.is_owned()) return task_.output;
    const void* data = nullptr;
    if (is_prepared_) {
      std::int64_t rows = 0;
      call(ronde_prepared_output, std::as_const(prepared_), &data, &rows);
      return const_cast<std::byte*>(static_cast<const std::byte*>(data));
    }
    const std::int64_t* shape = nullptr;
    std::int32_t dimensions = 0;
    std::int32_t dtype = 0;
    call(ronde_work_output, std::as_const(work_), &data, &shape, &dimensions, &dtype);
    // No other code uses the memory of this work, so --corrupt may write to it.
    return const_cast<std::byte*>(static_cast<const std::byte*>(data));
  }

  // On a device the host may not have seen the end of the work, and the name is in use until then.
  void finish() override {
    if (is_on_device(task_)) call(ronde_work_wait, work_);
    ronde_work_release(work_);
    work_ = nullptr;
  }

 private:
  void run_on_device() {
    call(calls_of(task_.shape.operation).asynchronous, engine_, &request_, &work_);
    call(ronde_work_wait_stream, work_, request_.stream);
  }

  ronde_engine* engine_;
  std::string name_;
  bool is_prepared_;
  ronde_prepared* prepared_ = nullptr;
  Task task_;
  std::string tensor_;
  std::int64_t length_ = 0;
  ronde_request request_{};
  ronde_work* work_ = nullptr;
};

class RondeOneByOne final : public Contender {
 public:
  explicit RondeOneByOne(Engine& engine) : engine_(engine.get()) {}
  ~RondeOneByOne() override { release(); }

  [[nodiscard]] std::string name() const override { return kName; }
  [[nodiscard]] std::string lacks(const Case& /*shape*/) const override { return ""; }

  void prepare(const Task& task) override {
    task_ = task;
    const std::size_t size = task.shape.dtype->size;
    lengths_.clear();
    lengths_.reserve(task_.tensors.size());  // the requests point into it
    requests_.clear();
    for (const Place& tensor : task_.tensors) {
      lengths_.push_back(static_cast<std::int64_t>(tensor.elements));
      requests_.push_back(request_for(task, tensor.name.c_str(), &lengths_.back()));
      requests_.back().input = task.shape.in_place ? nullptr : task.input + tensor.first * size;
      requests_.back().output = task.output + tensor.first * size;
    }
    works_.assign(requests_.size(), nullptr);
  }

  void run() override {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      call(calls_of(task_.shape.operation).asynchronous, engine_,
           std::as_const(requests_).data() + i, &works_[i]);
    }
    if (is_on_device(task_)) {
      for (ronde_work* work : works_) call(ronde_work_wait_stream, work, task_.device->stream());
      return;
    }
    for (ronde_work* work : works_) call(ronde_work_wait, work);
    release();
  }

  [[nodiscard]] std::byte* result() override { return task_.output; }

  void finish() override {
    for (ronde_work* work : works_) {
      if (work != nullptr) call(ronde_work_wait, work);
    }
    release();
  }

 private:
  static constexpr const char* kName = "ronde";

  void release() {
    for (ronde_work*& work : works_) {
      ronde_work_release(work);
      work = nullptr;
    }
  }

  ronde_engine* engine_;
  Task task_;
  std::vector<std::int64_t> lengths_;
  std::vector<ronde_request> requests_;
  std::vector<ronde_work*> works_;
};

class MemcpyContender final : public Contender {
 public:
  [[nodiscard]] std::string name() const override { return "memcpy"; }
  [[nodiscard]] std::string lacks(const Case& shape) const override {
    // A copy is comparable where a rank's input has the size of the row.
    const bool comparable = !shape.moves_nothing() && shape.row().input != RONDE_BLOCK;
    return comparable ? "" : std::string(name_of(shape.operation));
  }
  [[nodiscard]] bool copies() const override { return true; }
  void prepare(const Task& task) override {
    from_ = task.input;
    to_ = task.scratch;
    bytes_ = task.shape.input_elements() * task.shape.dtype->size;
    device_ = task.device;
  }
  void run() override { device_->copy(to_, from_, bytes_); }
  [[nodiscard]] std::byte* result() override { return to_; }

 private:
  const std::byte* from_ = nullptr;
  std::byte* to_ = nullptr;
  std::size_t bytes_ = 0;
  Device* device_ = nullptr;
};

}  // namespace

std::unique_ptr<Contender> make_ronde(Engine& engine, std::string name, bool prepared) {
  return std::make_unique<RondeContender>(engine, std::move(name), prepared);
}

std::unique_ptr<Contender> make_ronde_one_by_one(Engine& engine) {
  return std::make_unique<RondeOneByOne>(engine);
}

std::unique_ptr<Contender> make_memcpy() { return std::make_unique<MemcpyContender>(); }

}  // namespace ronde::perf
