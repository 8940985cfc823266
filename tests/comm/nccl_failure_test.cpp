// What NcclBackend refuses, and how a group over NCCL ends when something fails.
#include <gtest/gtest.h>

#include <condition_variable>
#include <thread>

#include "tests/comm/fakes/fake_stream.h"
#include "tests/comm/support/nccl_ranks.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/job/store/hash_store.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;
using testing::on_gpu;
using testing::values_of;
using testing::with_nccl_ranks;

template <class Expected, class Fn>
std::string complaint(Fn&& fn) {
  try {
    fn();
  } catch (const Expected& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
  return "no error";
}

TEST(NcclRefusals, SayWhatToDo) {
  with_nccl_ranks(1, [](NcclBackend& b) {
    const Tensor t = on_gpu<float>(0, {1, 2, 3, 4}, {2, 2});
    EXPECT_EQ(complaint<UsageError>([&] { b.all_reduce(t.view_as({2, 2}, {1, 2}, 0), {}, {}); }),
              "all_reduce: the input tensor [2, 2] f32 cuda:0 has strides [1, 2]; NCCL moves dense tensors: give "
              "contiguous() of it");
    EXPECT_NE(complaint<UsageError>([&] { b.all_reduce(Tensor::of<float>({1}), {}, {}); }).find("cuda:0"),
              std::string::npos);
    EXPECT_NE(complaint<UsageError>([&] { b.recv(t, -1, 0, {}); }).find("named rank only"), std::string::npos);
    EXPECT_NE(complaint<UsageError>([&] { b.send(t, 0, 3, {}); }).find("have no tags"), std::string::npos);
    EXPECT_NE(complaint<UsageError>([&] { b.broadcast(t, 1, {}); }).find("root 1"), std::string::npos);
    EXPECT_NE(complaint<UsageError>([&] { b.all_reduce_coalesced({}, {}, {}); }).find("no tensors"), std::string::npos);
    EXPECT_EQ(b.failure(), "");
  });
}

TEST(NcclCan, AnswersWithTheReason) {
  with_nccl_ranks(1, [](NcclBackend& b) {
    const Device gpu{DeviceKind::cuda, 0};
    EXPECT_TRUE(
        b.can({.kind = CollectiveKind::all_to_all_v_single, .dtype = DType::i16, .device = gpu, .uneven = true}));
    EXPECT_EQ(b.can({.kind = CollectiveKind::all_reduce, .dtype = DType::i16, .device = gpu}).reason,
              "NCCL has no arithmetic on i16");
    EXPECT_EQ(
        b.can({.kind = CollectiveKind::all_reduce, .dtype = DType::i32, .reduce = ReduceKind::bxor, .device = gpu})
            .reason,
        "NCCL has no bxor");
    EXPECT_TRUE(b.can({.kind = CollectiveKind::all_reduce, .dtype = DType::f8e5m2, .device = gpu}));
    EXPECT_NE(b.can({.kind = CollectiveKind::all_reduce}).reason.find("not on cpu"), std::string::npos);
    EXPECT_FALSE(b.can({.kind = CollectiveKind::gather_bytes, .device = gpu}));
    const std::string no_scan = "NCCL has no call for scan; move the values with all_gather_single and reduce them";
    EXPECT_EQ(b.can({.kind = CollectiveKind::scan, .device = gpu}).reason, no_scan);
    EXPECT_EQ(message_of([&] { b.run({.kind = CollectiveKind::scan}); }), no_scan);
    EXPECT_EQ(b.can({.kind = CollectiveKind::all_to_all_v_padded_single, .device = gpu}).reason,
              "NCCL has no call for all_to_all_v_padded_single; exchange the splits and call all_to_all_v_single");
  });
}

TEST(NcclCan, Fp8IsAddedOnNewGpusOnly) {
  setenv("TUTTI_FAKE_ARCHITECTURE", "80", 1);
  with_nccl_ranks(1, [](NcclBackend& b) {
    EXPECT_EQ(
        b.can({.kind = CollectiveKind::all_reduce, .dtype = DType::f8e5m2, .device = {DeviceKind::cuda, 0}}).reason,
        "NCCL adds f8e5m2 on GPUs of compute capability 9.0 and newer; this one has 8.0");
    EXPECT_TRUE(b.can({.kind = CollectiveKind::broadcast, .dtype = DType::f8e5m2, .device = {DeviceKind::cuda, 0}}));
  });
  unsetenv("TUTTI_FAKE_ARCHITECTURE");
}

TEST(NcclCan, StrictNumericsLeavesWhatDoesNotDependOnOrder) {
  with_nccl_ranks(
      2,
      [](NcclBackend& b) {
        const auto can = [&](ReduceKind kind, DType dtype) {
          return static_cast<bool>(b.can({.kind = CollectiveKind::reduce_scatter_single,
                                          .dtype = dtype,
                                          .reduce = kind,
                                          .device = {DeviceKind::cuda, static_cast<int16_t>(b.rank())}}));
        };
        EXPECT_FALSE(can(ReduceKind::sum, DType::f32));
        EXPECT_FALSE(can(ReduceKind::avg, DType::bf16));
        EXPECT_TRUE(can(ReduceKind::max, DType::f32));
        EXPECT_TRUE(can(ReduceKind::sum, DType::i32));
        EXPECT_NE(
            complaint<UsageError>([&] { b.all_reduce(on_gpu<float>(b.rank(), {1}), {}, {}); }).find("strict numerics"),
            std::string::npos);
      },
      [](NcclOptions& o) { o.strict_numerics = true; });
}

TEST(NcclFailure, ACallThatNobodyJoinsEndsAtItsDeadlineOnAllRanks) {
  with_nccl_ranks(2, [](NcclBackend& b) {
    const Tensor t = on_gpu<float>(b.rank(), {1, 2});
    b.all_reduce(t, {}, {});
    if (b.rank() == 0) {
      const std::string text = complaint<TimeoutError>([&] { b.all_reduce(t, {}, {.timeout = milliseconds(50)}); });
      EXPECT_EQ(text.find("all_reduce(f32 [2], sum) #2 of group '"), 0u) << text;
      EXPECT_NE(text.find("on rank 0 did not end within 50 ms"), std::string::npos) << text;
      EXPECT_EQ(b.failure(), text);
      EXPECT_NE(complaint<PeerError>([&] { b.barrier({}); }).find("barrier() #3"), std::string::npos);
    } else {
      // A message that rank 0 never sends: the wait ends when rank 0's failure is known, long before its own deadline.
      const std::string text = complaint<PeerError>([&] { b.recv(t, 0, 0, {}); });
      EXPECT_NE(text.find("on rank 0 did not end within 50 ms"), std::string::npos) << text;
    }
  });
}

TEST(NcclFailure, AbortWakesWhoWaits) {
  with_nccl_ranks(2, [](NcclBackend& b) {
    const Work work = b.rank() == 0 ? b.recv(on_gpu<float>(0, {0}), 1, 0, {.async = true}) : Work();
    if (b.rank() != 0) return;
    std::thread killer([&] { b.abort("the test says so"); });
    const std::string text = complaint<PeerError>([&] { work.wait(); });
    killer.join();
    EXPECT_NE(text.find("the group has failed: the test says so"), std::string::npos) << text;
    EXPECT_EQ(work.status(), WorkStatus::failed);
  });
}

TEST(NcclFailure, AnErrorThatComesLaterIsTold) {
  with_nccl_ranks(2, [](NcclBackend& b) {
    if (b.rank() != 0) return;
    const Work work = b.recv(on_gpu<float>(0, {0}), 1, 0, {.async = true});
    testing::break_nccl_rank(0, NcclApi::kRemoteError);
    const std::string text = complaint<PeerError>([&] { work.wait(); });
    EXPECT_NE(text.find("recv(f32 [1], peer 1, tag 0) #1"), std::string::npos) << text;
    EXPECT_NE(text.find("remote error (result 6): said by the fake"), std::string::npos) << text;
  });
}

TEST(NcclFailure, EveryCallOfTheLibraryMayFail) {
  // All calls of NCCL that one joining, one premul_sum and one batch make, each failing once.
  int survived = 0;
  for (int n = 1; n <= 20 && survived == 0; ++n) {
    const std::string text = complaint<EnvironmentError>([&] {
      testing::fail_nccl_call(n, 3);
      with_nccl_ranks(1, [](NcclBackend& b) {
        b.all_reduce(on_gpu<float>(0, {1}), ReduceOp::premul_sum(2), {});
        b.all_to_all_single(on_gpu<float>(0, {1}), on_gpu<float>(0, {1}), {}, {}, {});
      });
    });
    if (text == "no error") survived = n;
    else EXPECT_NE(text.find("fake error (result 3)"), std::string::npos) << n << ": " << text;
  }
  EXPECT_EQ(survived, 11);
  testing::fail_nccl_call(0, 0);
}

TEST(NcclFailure, RanksThatDoNotComeAreWaitedForUntilTheDeadline) {
  const auto join = [](int rank) {
    NcclBackend backend({.group = "alone",
                         .store = std::make_shared<HashStore>(),
                         .rank = rank,
                         .size = 2,
                         .device = {DeviceKind::cuda, 0},
                         .timeout = milliseconds(50),
                         .nccl = testing::fake_nccl(),
                         .gpu = testing::fake_gpu()});
  };
  EXPECT_NE(complaint<TimeoutError>([&] { join(0); }).find("joining group 'alone' on rank 0 did not end within 50 ms"),
            std::string::npos);
  EXPECT_NE(complaint<TimeoutError>([&] { join(1); }).find("waited 50 ms for rank 0 to open the group"),
            std::string::npos);
}

TEST(NcclWork, KeepsItsTensorsAndCallsBackOnce) {
  with_nccl_ranks(2, [](NcclBackend& b) {
    int ended = 0;
    Work work = b.all_reduce(on_gpu<float>(b.rank(), {3}), {}, {.async = true});  // the handle is gone, the call is not
    work.then([&] { ++ended; });
    EXPECT_TRUE(work.wait_for(milliseconds(10'000)));
    work.then([&] { ++ended; });
    EXPECT_EQ(ended, 2);
    EXPECT_EQ(values_of<float>(work.result()[0])[0], 6.0f);
  });
}

TEST(NcclWork, WaitsForWhatTheCallersStreamHolds) {
  CudaStream streams[2];
  with_nccl_ranks(
      2,
      [&](NcclBackend& b) {
        const Tensor t = on_gpu<float>(b.rank(), {0});
        std::mutex mutex;
        std::condition_variable changed;
        bool go = false;
        streams[b.rank()].submit([&] {
          std::unique_lock lock(mutex);
          changed.wait(lock, [&] { return go; });
          t.data<float>()[0] = 2;
        });
        const Work work = b.all_reduce(t, {}, {.async = true});
        EXPECT_FALSE(work.is_done());
        {
          std::lock_guard lock(mutex);
          go = true;
        }
        changed.notify_all();
        work.wait();
        EXPECT_EQ(values_of<float>(t)[0], 4.0f);
      },
      [&](NcclOptions& o) { o.current_stream = [stream = &streams[o.rank]] { return stream; }; });
}

TEST(NcclWork, IsRecordedAndDumpedOnFailure) {
  tutti::testing::TemporaryFolder folder;
  FlightRecorder recorder({.rank = 0, .world_size = 1, .prefix = folder / "d"});
  FlightGroup& group = recorder.add_group("g", "", {0});
  with_nccl_ranks(
      1,
      [&](NcclBackend& b) {
        b.all_reduce(on_gpu<float>(0, {3}), {}, {});
        b.abort("enough");
        EXPECT_THROW(b.barrier({}), PeerError);
      },
      [&](NcclOptions& o) {
        o.recorder = &recorder;
        o.flight_group = &group;
      });
  const FlightDump dump = read_flight_dump_file(folder / "d0");
  EXPECT_EQ(dump.reason, "enough");
  EXPECT_EQ(dump.entries.at(0).call, "all_reduce(f32 [1], sum)");
  EXPECT_EQ(dump.entries.at(0).state, FlightState::completed);
}

}  // namespace
}  // namespace tutti::comm
