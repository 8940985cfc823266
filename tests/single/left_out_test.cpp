// What a build with TUTTI_DISTRIBUTED=OFF says where an engine is missing, and what it still does.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "tutti/comm/device_backends.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/symmetric_buffer.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"
#include "tutti/job/distributed.h"
#include "tutti/job/launch/launcher.h"
#include "tutti/job/rendezvous/rendezvous.h"
#include "tutti/job/store/hash_store.h"
#include "tutti/job/store/tcp_store.h"
#include "tutti/job/store/tcp_store_server.h"
#include "tutti/symm/allocation.h"
#include "tutti/symm/backend.h"

namespace tutti::comm {
namespace {

const std::string kAdvice = " is left out: this build has TUTTI_DISTRIBUTED=OFF; configure with -DTUTTI_DISTRIBUTED=ON";

std::string usage_error(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no UsageError";
}

struct LeftOut {
  const char* what;
  std::function<void()> use;
};

TEST(LeftOut, EveryMissingEngineSaysWhatAndWhatToDo) {
  const LeftOut all[] = {
      {"transport nccl", [] { make_device_backend("nccl", {}, {DeviceKind::cuda, 0}, std::chrono::seconds(1)); }},
      {"what starts 2 ranks as processes", [] { launch_local({.ranks = 2}); }},
      {"what starts 1 rank as a process", [] { launch_local({.ranks = 1}); }},
      {"the meeting of processes at 'tcp://host:1'", [] { rendezvous("tcp://host:1"); }},
      {"the store over TCP, which host:7 would name,", [] { connect_store({.host = "host", .port = 7}); }},
      {"the server of a store over TCP", [] { serve_store(); }},
  };
  for (const LeftOut& part : all) EXPECT_EQ(usage_error(part.use), part.what + kAdvice);
}

TEST(LeftOut, TransportsAreListedWithTheReason) {
  std::map<std::string, bool> available;
  for (const TransportInfo& info : known_transports()) {
    available[info.name] = info.available;
    EXPECT_EQ(info.why_not, info.available ? "" : std::string(why_not_distributed())) << info.name;
  }
  EXPECT_EQ(available,
            (std::map<std::string, bool>{
                {"fake", true}, {"gloo", false}, {"hier", false}, {"mpi", false}, {"shm", false}, {"threads", true}}));
  for (const std::string name : {"gloo", "hier", "mpi", "shm"}) {
    EXPECT_EQ(usage_error([&] { make_transport(name, {}); }),
              "transport " + name + " is not part of this build: " + std::string(why_not_distributed()));
  }
}

TEST(LeftOut, BackendsOfSymmetricMemoryKeepTheirNames) {
  EXPECT_EQ(symm::backend_names(), (std::vector<std::string>{"cuda", "native", "nccl", "nvshmem", "threads"}));
  EXPECT_EQ(symm::default_backend_name(), "threads");
  for (const char* name : {"cuda", "native", "nccl", "nvshmem"}) {
    EXPECT_EQ(usage_error([&] { symm::empty_symm({4}, DType::f32, kCpu, {.backend = name}); }),
              fmt::format("symmetric memory backend {}", name) + kAdvice);
  }
}

TEST(LeftOut, AWorldOfOneProcessNeedsAStoreAndThreads) {
  EXPECT_EQ(usage_error([] { init_process_group(); }), "the meeting of processes at 'env://'" + kAdvice);
  const auto group = init_process_group({.store = std::make_shared<HashStore>(),
                                         .rank = 0,
                                         .world_size = 1,
                                         .group = {.name = "0", .description = "", .transport = "threads"}});
  std::vector<float> values = {1, 2};
  group->all_reduce_values<float>(values);
  EXPECT_EQ(values, (std::vector<float>{1, 2}));
  destroy_process_group();
}

TEST(LeftOut, RanksAsThreadsReduceThroughSymmetricMemory) {
  run_ranks(4, [](ProcessGroup& group) {
    const Tensor t = symm::empty_symm({3}, DType::f32);
    for (int64_t i = 0; i < 3; ++i) t.data<float>()[i] = static_cast<float>(group.rank() + i);
    const SymmetricBuffer buffer(group, t);
    EXPECT_TRUE(buffer.is_direct());
    group.all_reduce(t);
    for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(t.data<float>()[i], static_cast<float>(6 + 4 * i));
    group.barrier();
  });
}

}  // namespace
}  // namespace tutti::comm
