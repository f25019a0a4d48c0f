// SPDX-License-Identifier: Apache-2.0
// The GPU plug-in when something is missing, wrong, late or dead.
#include "test/device/cuda/cuda_fixture.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <csignal>

// The next thread that Ronde starts does not start.
static std::atomic<bool>& no_thread_to_spare() {
  static std::atomic<bool> none{false};
  return none;
}

// Ronde's threads begin with all signals blocked, those of the fakes do not.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) noexcept {
  static const auto real =
      reinterpret_cast<decltype(&::pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  if (::sigismember(&blocked, SIGTERM) == 1 && no_thread_to_spare().exchange(false)) return EAGAIN;
  return real(thread, attributes, body, argument);
}

namespace ronde::device_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

class CudaFailure : public CudaTest {};

ronde_plugin_status try_execute(DeviceRank& rank, Batch& batch, Text& text) {
  ronde_plugin_work* work = nullptr;
  return rank.plugin().execute(rank.engine(), &batch.get(), &work, text.data(), text.size());
}

TEST_F(CudaFailure, SaysWhyItStaysOut) {
  fakes().set("no_driver", 1);
  DeviceJob(2).run([](DeviceRank& rank) {
    EXPECT_EQ(rank.opened(), RONDE_PLUGIN_UNAVAILABLE);
    EXPECT_EQ(rank.engine(), nullptr);
    EXPECT_EQ(rank.text(), "there is no fake driver");
  });
}

// Copies work, batches do not, and the log says why.
void expect_staged(const std::string& why) {
  DeviceJob(2).run([&why](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    EXPECT_EQ(rank.info().has_collectives, 0);
    EXPECT_THAT(rank.log(), HasSubstr(rank.rank() == 0 ? why : ""));
    EXPECT_EQ(rank.log().empty(), rank.rank() != 0) << "said once";
    const DeviceMemory memory(floats(10, 3));
    Batch batch;
    batch.add(memory, 10);
    Text text{};
    EXPECT_EQ(try_execute(rank, batch, text), RONDE_PLUGIN_INVALID);
    void* host = nullptr;
    ASSERT_EQ(rank.plugin().allocate_host(rank.engine(), 40, &host, text.data(), text.size()),
              RONDE_PLUGIN_OK);
    const ronde_plugin_copy copy{sizeof copy, batch.tensors.data(), 0, 10, kF32, 0, host};
    ronde_plugin_work* work = nullptr;
    ASSERT_EQ(rank.plugin().copy_out(rank.engine(), &copy, &work, text.data(), text.size()),
              RONDE_PLUGIN_OK);
    EXPECT_EQ(rank.finish(work), RONDE_PLUGIN_OK);
    EXPECT_EQ(static_cast<float*>(host)[9], 3);
    rank.plugin().free_host(rank.engine(), host);
  });
  EXPECT_EQ(fakes().get("streams"), 0);
  EXPECT_EQ(fakes().get("outside"), 0);
}

TEST_F(CudaFailure, StagesWhenRanksShareAGpu) {
  fakes().set("share_gpu", 1);
  expect_staged("ranks 0 and 1 share the GPU 0000:00:00.0");
}

TEST_F(CudaFailure, StagesWithoutNccl) {
  fakes().set("no_nccl", 1);
  expect_staged("rank 0 cannot use NCCL: there is no fake NCCL");
}

TEST_F(CudaFailure, StagesWhenTheRanksHaveDifferentNccls) {
  fakes().set("nccl_version", 1);
  expect_staged("rank 1 has NCCL 2.28.");
}

TEST_F(CudaFailure, StagesWhenACommunicatorDoesNotStartInTime) {
  set_environment("RONDE_START_TIMEOUT_SECONDS", "0.3");
  fakes().set("start_never", 1);
  expect_staged("the other ranks did not join in time");
  EXPECT_EQ(fakes().get("aborted"), 2);
}

// The others hear of it before they would wait for that rank in NCCL.
TEST_F(CudaFailure, StagesWhenARankHasNoThreadForNccl) {
  set_environment("RONDE_START_TIMEOUT_SECONDS", "3000");
  no_thread_to_spare() = true;
  expect_staged(" cannot use NCCL: could not start the thread that starts batches");
  EXPECT_EQ(fakes().get("aborted"), 0) << "no communicator was begun";
}

TEST_F(CudaFailure, RefusesWhatNcclCannotDo) {
  DeviceJob(1).run([](DeviceRank& rank) {
    const DeviceMemory memory(floats(10, 3));
    const auto expect_refused = [&](auto change, const std::string& why) {
      Batch batch;
      batch.add(memory, 10);
      change(batch);
      Text text{};
      EXPECT_EQ(try_execute(rank, batch, text), RONDE_PLUGIN_INVALID) << why;
      EXPECT_THAT(text.data(), HasSubstr(why));
    };
    expect_refused([](Batch& b) { b.batch.dtype = kI16; }, "i16 cannot be reduced");
    expect_refused([](Batch& b) { b.batch.dtype = kBool; }, "bool cannot be reduced");
    expect_refused([](Batch& b) { b.batch.dtype = 5, b.batch.op = kBitXor; }, "'bxor'");
    expect_refused([](Batch& b) { b.batch.dtype = 5, b.batch.prescale = 2; }, "i32 cannot be sca");
    expect_refused([](Batch& b) { b.batch.dtype = kF16, b.batch.compression = 1; }, "compressed");
    expect_refused([](Batch& b) { b.tensors[0].elements = -1; }, "-1 elements");
    expect_refused([](Batch& b) { b.batch.operation = 99; }, "no operation 99");
    // The engine lives on.
    Batch batch;
    batch.add(memory, 10);
    EXPECT_EQ(rank.finish(rank.execute(batch.get())), RONDE_PLUGIN_OK);
  });
}

TEST_F(CudaFailure, RefusesAStreamOfAnotherDevice) {
  DeviceJob(1).run([](DeviceRank& rank) {
    const DeviceStream stream;
    fakes().set("stream_device", 7);
    Text text{};
    EXPECT_EQ(rank.plugin().check_stream(rank.engine(), stream.get(), text.data(), text.size()),
              RONDE_PLUGIN_INVALID);
    EXPECT_THAT(text.data(), HasSubstr("one of device 7, and this rank uses device 0"));
  });
}

// Rank 0 never comes; the others are told to do something about it.
void expect_end(DeviceJob& job, const std::string& why,
                const std::function<void(DeviceRank&)>& meanwhile) {
  job.run([&](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    if (rank.rank() == 0) job.meet();
    if (rank.rank() != 0) {
      const DeviceMemory memory(floats(10, 1));
      Batch batch;
      batch.add(memory, 10);
      ronde_plugin_work* const work = rank.execute(batch.get());
      const int rings = rank.rings();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      EXPECT_EQ(rank.poll(work), RONDE_PLUGIN_PENDING);
      job.meet();  // the fakes are those of all ranks, and so is what befalls them
      const auto begin = steady_clock::now();
      meanwhile(rank);
      EXPECT_LT(steady_clock::now() - begin, seconds(30));
      EXPECT_EQ(rank.finish(work), RONDE_PLUGIN_FAILED);
      EXPECT_LT(steady_clock::now() - begin, seconds(30));
      EXPECT_THAT(rank.text(), HasSubstr(why));
      EXPECT_GT(rank.rings(), rings) << "somebody must be told to poll";
      Text text{};
      EXPECT_EQ(try_execute(rank, batch, text), RONDE_PLUGIN_FAILED) << "for ever";
      EXPECT_THAT(text.data(), HasSubstr(why));
      rank.close();
    }
    job.meet();
    if (rank.rank() == 0) fakes().reset();
  });
}

TEST_F(CudaFailure, ABatchHasADeadline) {
  set_environment("RONDE_STALL_WARNING_SECONDS", "2");
  set_environment("RONDE_STALL_FAILURE_SECONDS", "2");
  DeviceJob job(2);
  expect_end(job, "has not ended on the device in time", [](DeviceRank&) {});
}

TEST_F(CudaFailure, AnErrorOfTheCommunicatorEndsWhatIsUnderWay) {
  DeviceJob job(3);
  expect_end(job, "a peer has failed", [](DeviceRank&) { fakes().set("async_error", 1); });
}

TEST_F(CudaFailure, AbortEndsABatchThatNcclIsStillPuttingIntoItsStream) {
  DeviceJob job(2);
  job.run([&job](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    job.meet();
    fakes().set("steps", 1'000'000);
    const DeviceMemory memory(floats(10, 1));
    Batch batch;
    batch.add(memory, 10);
    ronde_plugin_work* const work = rank.execute(batch.get());
    const DeviceStream stream;
    Text text{};
    const auto wait_on = [&] {
      return rank.plugin().wait_on(rank.engine(), work, stream.get(), text.data(), text.size());
    };
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    const auto begin = steady_clock::now();
    EXPECT_EQ(wait_on(), RONDE_PLUGIN_PENDING) << "it blocks nobody";
    rank.plugin().abort(rank.engine(), "enough");
    EXPECT_EQ(wait_on(), RONDE_PLUGIN_FAILED);
    EXPECT_THAT(text.data(), HasSubstr("enough"));
    EXPECT_EQ(rank.finish(work), RONDE_PLUGIN_FAILED);
    EXPECT_LT(steady_clock::now() - begin, seconds(30));
    job.meet();
  });
  EXPECT_EQ(fakes().get("aborted"), 2);
}

TEST_F(CudaFailure, NobodyWaitsForAnAbortThatHangs) {
  set_environment("RONDE_SHUTDOWN_TIMEOUT_SECONDS", "1.1");
  DeviceJob(1).run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    fakes().set("steps", 1'000'000);
    fakes().set("abort_delay", 5000);
    const DeviceMemory memory(floats(10, 1));
    Batch batch;
    batch.add(memory, 10);
    ronde_plugin_work* const work = rank.execute(batch.get());
    const auto begin = steady_clock::now();
    rank.plugin().abort(rank.engine(), "enough");
    EXPECT_LT(steady_clock::now() - begin, milliseconds(3900));
    EXPECT_EQ(rank.finish(work), RONDE_PLUGIN_FAILED);
    EXPECT_LT(steady_clock::now() - begin, milliseconds(4900));
  });
}

TEST_F(CudaFailure, AbortReturnsWhileTheTensorsAreNotReady) {
  DeviceJob(1).run([](DeviceRank& rank) {
    const DeviceStream stream;
    const DeviceMemory memory(floats(10, 1));
    stream.delay(4000);
    const MarkOwner ready(rank, stream.get());
    Batch batch;
    batch.add(memory, 10, ready.get());
    ronde_plugin_work* const work = rank.execute(batch.get());
    const auto begin = steady_clock::now();
    rank.plugin().abort(rank.engine(), "enough");
    EXPECT_LT(steady_clock::now() - begin, milliseconds(3900));
    EXPECT_EQ(rank.finish(work), RONDE_PLUGIN_FAILED);
  });
  EXPECT_EQ(fakes().get("blocks"), 0);
}

TEST_F(CudaFailure, NoMemoryEndsTheJob) {
  DeviceJob(1).run([](DeviceRank& rank) {
    const DeviceMemory one(floats(200'000, 1));
    const DeviceMemory two(floats(200'000, 1));
    fakes().set("no_memory", 1);
    Batch batch;
    batch.add(one, 200'000);
    batch.add(two, 200'000);
    Text text{};
    EXPECT_EQ(try_execute(rank, batch, text), RONDE_PLUGIN_FAILED)
        << "the other ranks would wait for this one";
    EXPECT_THAT(text.data(), HasSubstr("1600000 bytes on device 0 (no device memory is left)"));
    void* memory = nullptr;
    std::int32_t device = 0;
    EXPECT_EQ(rank.plugin().allocate(rank.engine(), 77, &memory, &device, text.data(), text.size()),
              RONDE_PLUGIN_FAILED);
    EXPECT_THAT(text.data(), HasSubstr("no device memory for a result: 77 bytes on device 0"));
  });
}

TEST_F(CudaFailure, MemoryThatDoesNotComeIsGivenUp) {
  set_environment("RONDE_STALL_WARNING_SECONDS", "0.05");
  set_environment("RONDE_STALL_FAILURE_SECONDS", "0.05");
  DeviceJob(1).run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    fakes().set("memory_delay", 300);
    void* memory = nullptr;
    std::int32_t device = 0;
    Text text{};
    EXPECT_EQ(rank.plugin().allocate(rank.engine(), 77, &memory, &device, text.data(), text.size()),
              RONDE_PLUGIN_FAILED);
    EXPECT_THAT(text.data(),
                HasSubstr("77 bytes on device 0 (the device did not provide it in time)"));
  });
  EXPECT_EQ(fakes().get("results"), 0);
}

// A copy cannot be stopped: its memory is not another's before it is over.
TEST_F(CudaFailure, AbortLetsCopiesEndBeforeTheirMemoryGoes) {
  fakes().set("no_nccl", 1);
  DeviceJob(1).run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    const DeviceStream stream;
    const DeviceMemory memory(floats(10, 3));
    Text text{};
    void* host = nullptr;
    ASSERT_EQ(rank.plugin().allocate_host(rank.engine(), 40, &host, text.data(), text.size()),
              RONDE_PLUGIN_OK);
    std::memset(host, 0, 40);
    stream.delay(200);
    const MarkOwner ready(rank, stream.get());
    const ronde_plugin_tensor tensor{memory.get(), nullptr, 10, ready.get()};
    const ronde_plugin_copy copy{sizeof copy, &tensor, 0, 10, kF32, 0, host};
    ronde_plugin_work* work = nullptr;
    ASSERT_EQ(rank.plugin().copy_out(rank.engine(), &copy, &work, text.data(), text.size()),
              RONDE_PLUGIN_OK);
    std::thread aborter([&rank] { rank.plugin().abort(rank.engine(), "enough"); });
    EXPECT_EQ(rank.finish(work), RONDE_PLUGIN_FAILED);
    EXPECT_EQ(static_cast<float*>(host)[9], 3) << "it was still under way";
    aborter.join();
    rank.plugin().free_host(rank.engine(), host);
    EXPECT_EQ(fakes().get("host_blocks"), 1) << "freeing waits for the device";
  });
  EXPECT_EQ(fakes().get("host_blocks"), 0);
}

TEST_F(CudaFailure, ClosingGivesUpWhatWaitsForOthers) {
  DeviceJob job(2);
  job.run([&job](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    if (rank.rank() == 0) {
      const DeviceMemory memory(floats(10, 1));
      Batch batch;
      batch.add(memory, 10);
      ronde_plugin_work* const work = rank.execute(batch.get());
      rank.plugin().release(rank.engine(), work);
      const auto begin = steady_clock::now();
      rank.close();
      EXPECT_LT(steady_clock::now() - begin, seconds(15));
    }
    job.meet();
  });
  EXPECT_EQ(fakes().get("aborted"), 1);
  EXPECT_EQ(fakes().get("destroyed"), 1);
  EXPECT_EQ(fakes().get("streams"), 0);
}

TEST_F(CudaFailure, TearsDownAfterItsDriver) {
  DeviceJob(2).run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    fakes().set("driver_gone", 1);
    rank.close();
  });
  EXPECT_EQ(fakes().get("destroyed") + fakes().get("aborted"), 0) << "NCCL needs the driver";
  EXPECT_EQ(fakes().get("outside"), 0);
  EXPECT_GT(fakes().get("streams"), 0) << "nobody can free them any more";
}

// Longer than abort may take: poll says so then, and what the copy writes into stays.
TEST_F(CudaFailure, MemoryOfACopyThatDoesNotEndIsNotFreed) {
  fakes().set("no_nccl", 1);
  DeviceJob(1).run([](DeviceRank& rank) {
    ASSERT_EQ(rank.opened(), RONDE_PLUGIN_OK) << rank.text();
    const DeviceStream stream;
    const DeviceMemory memory(floats(10, 3));
    Text text{};
    void* host = nullptr;
    ASSERT_EQ(rank.plugin().allocate_host(rank.engine(), 40, &host, text.data(), text.size()),
              RONDE_PLUGIN_OK);
    stream.delay(4000);
    ronde_plugin_mark* const ready = rank.mark(stream.get());
    const ronde_plugin_tensor tensor{memory.get(), nullptr, 10, ready};
    const ronde_plugin_copy copy{sizeof copy, &tensor, 0, 10, kF32, 0, host};
    ronde_plugin_work* work = nullptr;
    ASSERT_EQ(rank.plugin().copy_out(rank.engine(), &copy, &work, text.data(), text.size()),
              RONDE_PLUGIN_OK);
    const auto begin = steady_clock::now();
    rank.plugin().abort(rank.engine(), "enough");
    EXPECT_LT(steady_clock::now() - begin, milliseconds(3900));
    EXPECT_EQ(rank.finish(work), RONDE_PLUGIN_FAILED);
    EXPECT_LT(steady_clock::now() - begin, milliseconds(3900));
    EXPECT_THAT(rank.log(), HasSubstr("copies are still under way"));
    rank.plugin().free_host(rank.engine(), host);
    rank.plugin().unmark(rank.engine(), ready);
    rank.close();
    EXPECT_EQ(fakes().get("host_blocks"), 1);
    // The copy still reads the tensor.
    Device::instance().kit->synchronize(stream.get());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
}

}  // namespace
}  // namespace ronde::device_test
