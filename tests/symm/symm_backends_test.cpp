// Choosing a backend, and the three whose libraries are opened at run time, against stand-ins (tests/symm/fakes).
//
// A library is opened once in a process, so every case that needs one runs in a process of its own.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>

#include "tests/symm/support/ranks.h"
#include "tutti/job/store/hash_store.h"
#include "tutti/symm/allocation.h"
#include "tutti/symm/backend.h"
#include "tutti/symm/ops/one_shot_all_reduce.h"
#include "tutti/symm/rendezvous.h"
#include "tutti/symm/symmetric_tensor.h"

namespace tutti::comm::symm {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};

std::string fake(const std::string& name) {
  return std::string(TUTTI_BINARY_DIR) + "/symm_fakes/libfake_" + name + ".so";
}

// Runs fn in a child with these variables; its expectations count.
void in_process(const std::map<std::string, std::string>& variables, const std::function<void()>& fn) {
  const auto outcomes = run_processes(1, "native", [&](const World&) {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    fn();
  });
  EXPECT_TRUE(outcomes[0].succeeded()) << outcomes[0].error << " status " << outcomes[0].wait_status;
}

SymmGroup single(const std::string& backend, const std::string& name = "single") {
  SymmGroup group(make_group_key(name, std::vector<int>{0}, 0), 0, 1, std::make_shared<HashStore>());
  group.select_backend(backend);
  return group;
}

template <class E>
std::string text_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another kind: ") + error.what();
  }
  return "nothing was thrown";
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

TEST(SymmBackends, AllAreListedWhetherInstalledOrNot) {
  EXPECT_EQ(backend_names(), (std::vector<std::string>{"cuda", "native", "nccl", "nvshmem", "threads"}));
}

TEST(SymmBackends, UnknownNamesListTheLegalOnes) {
  const SymmGroup group(make_group_key("g", std::vector<int>{0}, 0), 0, 1, std::make_shared<HashStore>());
  expect_parts(text_of<UsageError>([&] { group.select_backend("cudda"); }),
               {"cudda", "did you mean 'cuda'", "native, nccl, nvshmem, threads"});
  EXPECT_EQ(group.backend(), "native");  // the failure bound nothing
  in_process({{"TUTTI_SYMM_BACKEND", "natife"}}, [&] {
    const SymmGroup other(make_group_key("g", std::vector<int>{0}, 0), 0, 1, std::make_shared<HashStore>());
    expect_parts(text_of<UsageError>([&] { other.backend(); }), {"TUTTI_SYMM_BACKEND", "did you mean 'native'"});
  });
}

TEST(SymmBackends, NativeIsTheDefaultAndTheVariableChanges) {
  const SymmGroup group(make_group_key("g", std::vector<int>{0}, 0), 0, 1, std::make_shared<HashStore>());
  EXPECT_EQ(group.backend(), "native");
  in_process({{"TUTTI_SYMM_BACKEND", "threads"}}, [&] {
    const SymmGroup other(make_group_key("g", std::vector<int>{0}, 0), 0, 1, std::make_shared<HashStore>());
    EXPECT_EQ(other.backend(), "threads");
    EXPECT_EQ(rendezvous(empty_symm({4}, DType::f32), other)->backend(), "threads");
  });
}

TEST(SymmBackends, AGroupIsBoundOnceAndTheSameRequestIsNoNews) {
  const SymmGroup group = single("threads");
  group.select_backend("threads");
  expect_parts(text_of<UsageError>([&] { group.select_backend("native"); }),
               {"uses backend threads", "cannot change to native"});
  EXPECT_EQ(single("native").backend(), "native");  // another group has its own
}

TEST(SymmBackends, ATensorRemembersWhoMadeIt) {
  const SymmGroup threads = single("threads"), native = single("native");
  const Tensor t = empty_symm({4}, DType::f32, kCpu, {.backend = "threads"});
  expect_parts(text_of<UsageError>([&] { rendezvous(t, native); }),
               {"uses backend native", "cannot change to threads"});
  EXPECT_EQ(rendezvous(t, threads)->backend(), "threads");
}

TEST(SymmBackends, MulticastIsFalseOnTheCpuAndNeverThrows) {
  EXPECT_FALSE(has_multicast_support(kCpu));
  EXPECT_FALSE(has_multicast_support(Device{DeviceKind::cuda, 99}));
  EXPECT_FALSE(has_multicast_support(Device{DeviceKind::mock, 0}));
}

TEST(SymmBackends, OtherBackendsAreNotTouchedByOnesThatAreMissing) {
  in_process({{"TUTTI_SYMM_CUDA_LIB", "/nowhere.so"},
              {"TUTTI_SYMM_NCCL_LIB", "/nowhere.so"},
              {"TUTTI_SYMM_NVSHMEM_LIB", "/nowhere.so"}},
             [] { rendezvous(empty_symm({4}, DType::f32), single("native"))->barrier(); });
}

TEST(SymmBackends, MissingLibrariesNameBackendFileAndVariable) {
  for (const std::string name : {"cuda", "nccl", "nvshmem"}) {
    std::string variable = "TUTTI_SYMM_" + name + "_LIB";
    for (char& c : variable) c = static_cast<char>(std::toupper(c));
    in_process({{variable, "/nowhere/lib.so"}}, [&] {
      const SymmGroup group = single(name);
      expect_parts(text_of<LibraryError>([&] { empty_symm({4}, DType::f32, kGpu, {.group = group}); }),
                   {"backend " + name, "/nowhere/lib.so", variable});
    });
    in_process({{variable, fake("incomplete")}}, [&] {
      const SymmGroup group = single(name);
      expect_parts(text_of<LibraryError>([&] { empty_symm({4}, DType::f32, kGpu, {.group = group}); }),
                   {"backend " + name, fake("incomplete"), "has no function"});
    });
  }
}

TEST(SymmBackends, OldLibrariesNameFoundAndRequiredVersions) {
  in_process({{"TUTTI_SYMM_NCCL_LIB", fake("nccl")}, {"FAKE_NCCL_VERSION", "22605"}}, [] {
    expect_parts(text_of<LibraryError>([] { find_backend("nccl").open(); }), {"2.26.5", "2.27.0 or newer is required"});
  });
  in_process({{"TUTTI_SYMM_CUDA_LIB", fake("cuda")}, {"FAKE_CUDA_VERSION", "10020"}}, [] {
    expect_parts(text_of<LibraryError>([] { find_backend("cuda").open(); }), {"10.2", "11.0 or newer is required"});
  });
  in_process({{"TUTTI_SYMM_NVSHMEM_LIB", fake("nvshmem")}, {"FAKE_NVSHMEM_MAJOR", "2"}}, [] {
    expect_parts(text_of<LibraryError>([] { find_backend("nvshmem").open(); }),
                 {"2.2.5", "3.0.0 or newer is required"});
  });
}

TEST(SymmBackends, AFailedStepCanBeTriedAgain) {
  in_process({{"TUTTI_SYMM_CUDA_LIB", fake("cuda")}, {"FAKE_CUDA_INIT_RESULT", "100"}}, [] {
    const SymmGroup group = single("cuda");
    expect_parts(text_of<EnvironmentError>([&] { find_backend("cuda").open(); }),
                 {"cuInit", "no CUDA-capable device", "100"});
    setenv("FAKE_CUDA_INIT_RESULT", "0", 1);
    find_backend("cuda").open();
    find_backend("cuda").open();
    rendezvous(empty_symm({4}, DType::f32, kGpu, {.group = group}), group)->barrier();
  });
  in_process({{"TUTTI_SYMM_NVSHMEM_LIB", fake("nvshmem")}, {"FAKE_NVSHMEM_INIT_FAILS", "1"}}, [] {
    const SymmGroup group = single("nvshmem");
    expect_parts(text_of<EnvironmentError>([&] { connect_group(group); }), {"nvshmemx_hostlib_init_attr failed"});
    unsetenv("FAKE_NVSHMEM_INIT_FAILS");
    connect_group(group);
    connect_group(group);
  });
}

TEST(SymmBackends, CudaMemoryIsWrittenSetUpAndReadByEveryPeer) {
  for (const int size : {1, 2, 3}) {
    setenv("TUTTI_SYMM_CUDA_LIB", fake("cuda").c_str(), 1);
    const auto outcomes = run_processes(size, "cuda", [](const World& world) {
      const int before = open_descriptors();
      {
        const SymmGroup group = world.group();
        // The device of remote views is this process's device, whatever the rank.
        const Device device{DeviceKind::cuda, static_cast<int16_t>(world.rank % 2)};
        SymmetricTensor t(SymmetricTensor::allocate({4}, DType::f32, device, {.group = group}), group);
        auto* own = static_cast<float*>(t.local_tensor().raw_data());
        own[0] = static_cast<float>(world.rank);
        t.setup_remote_handles();
        t.handle().barrier(3);
        for (int r = 0; r < world.size; ++r) {
          const Tensor peer = t.remote_tensor(r);
          EXPECT_EQ(peer.device(), device);
          EXPECT_EQ(*static_cast<float*>(peer.raw_data()), static_cast<float>(r));
        }
        t.handle().barrier(3);
        const int next = (world.rank + 1) % world.size;
        t.handle().put(t.local_tensor().view_as({1}, {1}, 0), next, 2);
        t.handle().put_signal(next);
        t.handle().wait_signal((world.rank + world.size - 1) % world.size);
        EXPECT_EQ(own[2], static_cast<float>((world.rank + world.size - 1) % world.size));
        t.handle().signal_add(next, 2, 1);
        EXPECT_EQ(t.handle().wait_until((world.rank + world.size - 1) % world.size, 2, 1), 2u);
        expect_parts(text_of<UsageError>([&] { t.setup_contiguous_view(); }), {"backend cuda", "native and threads"});
        expect_parts(text_of<UsageError>([&] { one_shot_all_reduce(t.local_tensor(), group); }),
                     {"backend cuda", "native and threads"});
        t.handle().barrier();
      }
      EXPECT_EQ(open_descriptors(), before);
    });
    unsetenv("TUTTI_SYMM_CUDA_LIB");
    for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.succeeded()) << outcome.error;
  }
}

TEST(SymmBackends, NcclWindowsMeetAndSignalsNeed229) {
  in_process({{"TUTTI_SYMM_NCCL_LIB", fake("nccl")}}, [] {
    const auto outcomes = run_threads(3, "nccl", [](const World& world) {
      const SymmGroup group = world.group();
      const Tensor t = empty_symm({8}, DType::f32, kGpu, {.group = group});
      const auto handle = rendezvous(t, group);
      EXPECT_FALSE(handle->world_within_direct_access());
      EXPECT_EQ(handle->get_remote_tensor(world.rank, {8}, DType::f32).raw_data(), t.raw_data());
      expect_parts(text_of<UsageError>([&] { handle->get_remote_tensor((world.rank + 1) % 3, {8}, DType::f32); }),
                   {"cannot be reached by load and store with backend nccl"});
      for (int i = 0; i < 10; ++i) handle->barrier();
      handle->put_signal((world.rank + 1) % 3);
      handle->wait_signal((world.rank + 2) % 3);
      expect_parts(text_of<UsageError>([&] { handle->barrier(1); }), {"largest legal channel is 0"});
      expect_parts(text_of<UsageError>([&] { handle->signal_add(0); }), {"backend nccl has no counting signals"});
      // A second allocation uses the communicator that is there.
      rendezvous(empty_symm({8}, DType::f32, kGpu, {.group = group}), group)->barrier();
    });
    for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.error, "");
  });
  in_process({{"TUTTI_SYMM_NCCL_LIB", fake("nccl")}, {"FAKE_NCCL_VERSION", "22703"}}, [] {
    const SymmGroup group = single("nccl");
    const auto handle = rendezvous(empty_symm({8}, DType::f32, kGpu, {.group = group}), group);
    expect_parts(text_of<LibraryError>([&] { handle->barrier(); }), {"barrier", "2.27.3", "signals need 2.29.0"});
  });
}

TEST(SymmBackends, ARendezvousWithoutAHandleIsReportedAtOnce) {
  in_process({{"TUTTI_SYMM_NCCL_LIB", fake("nccl")}, {"FAKE_NCCL_NO_WINDOW", "1"}}, [] {
    const SymmGroup group = single("nccl");
    const Tensor t = empty_symm({8}, DType::f32, kGpu, {.group = group});
    expect_parts(text_of<EnvironmentError>([&] { rendezvous(t, group); }), {"ncclCommWindowRegister gave no window"});
    unsetenv("FAKE_NCCL_NO_WINDOW");
    EXPECT_NE(rendezvous(t, group), nullptr);
  });
}

TEST(SymmBackends, NvshmemNeedsItsWorldFirst) {
  in_process({{"TUTTI_SYMM_NVSHMEM_LIB", fake("nvshmem")}}, [] {
    const SymmGroup group = single("nvshmem");
    expect_parts(text_of<UsageError>([&] { empty_symm({4}, DType::f32, kGpu, {.group = group}); }),
                 {"backend nvshmem: no communicator", "connect_group()"});
    connect_group(group);
    const auto handle = rendezvous(empty_symm({4}, DType::f32, kGpu, {.group = group}), group);
    handle->barrier();
    expect_parts(text_of<UsageError>([&] { handle->put_signal(0); }),
                 {"backend nvshmem has no signals", "native and threads have"});
    expect_parts(text_of<EnvironmentError>([&] { empty_symm({int64_t{1} << 30}, DType::f32, kGpu, {.group = group}); }),
                 {"NVSHMEM_SYMMETRIC_SIZE"});
  });
}

TEST(SymmBackends, ThreadsRefuseRanksOfOtherProcesses) {
  const auto outcomes = run_processes(2, "threads", [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor t = empty_symm({4}, DType::f32, kCpu, {.group = group});
    expect_parts(text_of<EnvironmentError>([&] { rendezvous(t, group); }), {"backend threads", "use backend native"});
  });
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.error, "");
}

TEST(SymmBackends, DevicesOfOtherKindsAreRefused) {
  expect_parts(text_of<UsageError>([] { empty_symm({4}, DType::f32, kGpu, {.group = single("native")}); }),
               {"backend native", "cpu", "cuda:0"});
}

}  // namespace
}  // namespace tutti::comm::symm
