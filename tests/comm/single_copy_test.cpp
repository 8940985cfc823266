// Large tensors of processes that share a host are copied once, by the kernel, where it allows that, and twice where it
// does not: the same bytes and the same bits, and the same errors when a rank is lost.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <thread>

#include "tests/comm/support/forked_ranks.h"
#include "tutti/comm/shm/shm_transport.h"
#include "tutti/comm/symmetric_buffer.h"
#include "tutti/comm/transport_backend.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"
#include "tutti/symm/allocation.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kPulled = 512 << 10, kStaged = 20 << 10, kInLine = 5;  // floats

using RankMain = std::function<void(ProcessGroup&, const ShmTransport&)>;

// Ranks that can ask their transport. `may_pull` is asked on each rank.
std::vector<ForkedResult> run_processes(
    int ranks, const RankMain& fn, const std::function<bool(int)>& may_pull = [](int) { return true; },
    const ForkOptions& options = {.slot_bytes = 256 << 10}) {
  const auto segment = Segment::create(ranks, options.slot_bytes);
  const auto rank_main = [&](int rank) {
    std::vector<int> everyone;
    for (int q = 0; q < ranks; ++q) everyone.push_back(q);
    ProcessGroup group("0", "forked", rank, everyone, nullptr);
    auto transport = std::make_unique<ShmTransport>(segment, rank, ShmOptions{.may_pull = may_pull(rank)});
    const ShmTransport& asked = *transport;
    group.set_backend(DeviceKind::cpu,
                      std::make_shared<TransportBackend>(std::move(transport), GroupLabel{"0"}, options.timeout));
    fn(group, asked);
  };
  return fork_processes(ranks, rank_main, options, [&](int rank, pid_t pid) { segment->area(rank).pid.store(pid); });
}

void expect_success(const std::vector<ForkedResult>& results) {
  for (const ForkedResult& result : results) EXPECT_TRUE(result.succeeded()) << result.error;
}

// The rounds in which the ranks find out whether the kernel copies for them.
void settle(ProcessGroup& group) {
  group.barrier();
  group.barrier();
}

float value(int from, int to, int64_t i) { return static_cast<float>((from * 31 + to * 7 + i) % 4093); }

Tensor filled(int from, int to, int64_t count) {
  const Tensor t = Tensor::empty({count});
  for (int64_t i = 0; i < count; ++i) t.data<float>()[i] = value(from, to, i);
  return t;
}

void check_filled(const char* what, const Tensor& t, int from, int to, int64_t step = 1) {
  const float* data = static_cast<const float*>(t.raw_data());
  for (int64_t i = 0; i < t.numel(); ++i) {
    TUTTI_CHECK(data[i * step] == value(from, to, i), "{}: element {} of {} from rank {} for rank {} is {}, not {}",
                what, i, t.numel(), from, to, data[i * step], value(from, to, i));
  }
}

Tensor zeros(int64_t count) {
  const Tensor t = Tensor::empty({count});
  std::fill_n(t.data<float>(), count, 0.0f);
  return t;
}

// What rank `from` sends `to`: nothing, a few bytes, some that are staged, some that are pulled, of uneven lengths.
int64_t uneven(int from, int to, int turn) {
  constexpr int64_t lengths[] = {kPulled + 3, 0, kInLine, kStaged + 1, 2 * kPulled + 17};
  return lengths[(from * 3 + to + turn) % 5];
}

std::vector<float> values_of(const Tensor& t) { return {t.data<float>(), t.data<float>() + t.numel()}; }

class SingleCopy : public testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  void run(const std::function<void(ProcessGroup&)>& fn) const {
    const auto [ranks, pulls] = GetParam();
    const auto rank_main = [&, pulls = pulls](ProcessGroup& group, const ShmTransport& transport) {
      settle(group);
      TUTTI_CHECK(transport.pulls() == pulls, "pulls() is {}", transport.pulls());
      fn(group);
    };
    expect_success(run_processes(ranks, rank_main, [pulls = pulls](int) { return pulls; }));
  }
};

// Ranks pull where the kernel lets them read each other's memory; elsewhere these tests are not there, and `tutti env`
// says why.
bool can_pull() {
  static const bool can = why_no_peer_memory().empty();
  return can;
}
std::vector<bool> ways() { return can_pull() ? std::vector<bool>{false, true} : std::vector<bool>{false}; }
INSTANTIATE_TEST_SUITE_P(Ranks, SingleCopy, testing::Combine(testing::Values(2, 3, 4, 5), testing::ValuesIn(ways())),
                         [](const auto& info) {
                           return fmt::format("{}_{}", std::get<0>(info.param),
                                              std::get<1>(info.param) ? "pulled" : "staged");
                         });

TEST_P(SingleCopy, UnevenSizesArrive) {
  run([](ProcessGroup& group) {
    const int me = group.rank(), ranks = group.size();
    for (int turn = 0; turn < 5; ++turn) {
      std::vector<Tensor> inputs, outputs, gathered;
      for (int p = 0; p < ranks; ++p) {
        inputs.push_back(filled(me, p, uneven(me, p, turn)));
        outputs.push_back(Tensor::empty({uneven(p, me, turn)}));
        gathered.push_back(Tensor::empty({uneven(p, 0, turn)}));
      }
      group.all_to_all(outputs, inputs);
      group.all_gather_v(gathered, inputs[0]);
      for (int p = 0; p < ranks; ++p) {
        check_filled("all_to_all", outputs[static_cast<size_t>(p)], p, me);
        check_filled("all_gather_v", gathered[static_cast<size_t>(p)], p, 0);
      }
    }
  });
}

// The bits are those of the tree over ranks, added one after another, whatever way the bytes went.
TEST_P(SingleCopy, ReductionsKeepTheirBits) {
  run([](ProcessGroup& group) {
    const int me = group.rank(), ranks = group.size();
    const int64_t n = 3 * kPulled + 21, count = n * ranks;  // shares are pulled
    const std::vector<float> mine = rank_values(me, count), sums = serial_tree(ranks, count);
    const Tensor all = Tensor::empty({count}), part = Tensor::empty({n}), at_root = Tensor::empty({count});
    const Tensor input = Tensor::empty({count});
    for (const Tensor& t : {all, at_root, input})
      std::memcpy(t.data<float>(), mine.data(), mine.size() * sizeof(float));
    group.all_reduce(all);
    TUTTI_CHECK(same_bits(values_of(all), sums), "all_reduce");
    group.reduce_scatter_single(part, input);
    TUTTI_CHECK(same_bits(values_of(part), {sums.begin() + me * n, sums.begin() + (me + 1) * n}),
                "reduce_scatter_single");
    TUTTI_CHECK(same_bits(values_of(input), mine), "reduce_scatter_single has written its input");
    group.reduce(at_root, ranks - 1);
    TUTTI_CHECK(same_bits(values_of(at_root), me == ranks - 1 ? sums : mine), "reduce");
  });
}

TEST_P(SingleCopy, ViewsAndOverlapsArrive) {
  run([](ProcessGroup& group) {
    const int me = group.rank(), ranks = group.size();
    const int64_t n = kPulled + 64;
    // Every other element of a tensor, given and taken.
    const Tensor wide = Tensor::empty({n, 2}), strided = wide.view_as({n}, {2}, 1);
    for (int64_t i = 0; i < n; ++i) wide.data<float>()[2 * i + 1] = value(me, 0, i);
    std::vector<Tensor> strided_outputs;
    for (int p = 0; p < ranks; ++p) strided_outputs.push_back(Tensor::empty({n, 2}).view_as({n}, {2}, 0));
    group.all_gather(strided_outputs, strided);
    for (int p = 0; p < ranks; ++p)
      check_filled("all_gather of views", strided_outputs[static_cast<size_t>(p)], p, 0, 2);
    // The own slice of the output as the input, and a tensor that is exchanged with itself.
    const Tensor slices = Tensor::empty({ranks * n}), own = slices.view_as({n}, {1}, me * n);
    std::memcpy(own.data<float>(), filled(me, 1, n).data<float>(), static_cast<size_t>(own.nbytes()));
    group.all_gather_single(slices, own);
    for (int p = 0; p < ranks; ++p) check_filled("all_gather_single in place", slices.view_as({n}, {1}, p * n), p, 1);
    for (int p = 0; p < ranks; ++p)
      std::memcpy(slices.data<float>() + p * n, filled(me, p, n).data<float>(), static_cast<size_t>(n) * sizeof(float));
    group.all_to_all_single(slices, slices);
    for (int p = 0; p < ranks; ++p) check_filled("all_to_all_single in place", slices.view_as({n}, {1}, p * n), p, me);
  });
}

// Whoever gets its tensor back may write to it at once, even if its peers were late.
TEST_P(SingleCopy, AnOfferIsTheCallersAgainWhenTheCallReturns) {
  run([](ProcessGroup& group) {
    const int ranks = group.size();
    const int64_t n = 2 * kPulled;
    const Tensor t = Tensor::empty({n});
    for (int turn = 0; turn < 12; ++turn) {
      const int root = turn % ranks;
      if (group.rank() == (root + 1) % ranks) std::this_thread::sleep_for(2ms);
      std::fill_n(t.data<float>(), n, group.rank() == root ? static_cast<float>(turn) : -1.0f);
      group.broadcast(t, root);
      for (int64_t i = 0; i < n; ++i)
        TUTTI_CHECK(t.data<float>()[i] == static_cast<float>(turn), "turn {}: element {} is {}", turn, i,
                    t.data<float>()[i]);
      std::fill_n(t.data<float>(), n, -2.0f);
    }
  });
}

// Memory that other processes have mapped too, and a mapped file.
TEST_P(SingleCopy, MappedMemoryArrives) {
  run([](ProcessGroup& group) {
    const int64_t n = 4 * kPulled, bytes = n * 4;
    const int fd = memfd_create("tutti-test", MFD_CLOEXEC);
    TUTTI_CHECK_ENV(fd >= 0 && ftruncate(fd, bytes) == 0, "no file");
    for (const int file : {-1, fd}) {
      void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                          MAP_SHARED | (file < 0 ? MAP_ANONYMOUS : 0), file, 0);
      TUTTI_CHECK_ENV(memory != MAP_FAILED, "no memory");
      {
        const Tensor t = Tensor::from_memory(memory, {n}, DType::f32, {});
        if (group.rank() == 0) std::memcpy(memory, filled(0, 0, n).data<float>(), static_cast<size_t>(bytes));
        group.broadcast(t, 0);
        check_filled("broadcast of mapped memory", t, 0, 0);
      }
      munmap(memory, static_cast<size_t>(bytes));
    }
    close(fd);
  });
}

// Some ranks have their tensors in symmetric memory, which is read in place, and some in memory of their own.
TEST(SingleCopyMixed, WithSymmetricMemoryTheBitsAreTheSame) {
  constexpr int kRanks = 3;
  expect_success(run_world(kRanks, [](ProcessGroup& group) {
    settle(group);
    const int me = group.rank();
    const int64_t n = 3 * kPulled + 5, count = n * kRanks;
    const Tensor symmetric = symm::empty_strided_p2p({count}, {1}, DType::f32, kCpu, {.group = symm_group(group)});
    const SymmetricBuffer buffer(group, symmetric);
    const Tensor t = me == 1 ? symmetric : Tensor::empty({count}), part = Tensor::empty({n});
    const std::vector<float> mine = rank_values(me, count), sums = serial_tree(kRanks, count);
    std::memcpy(t.data<float>(), mine.data(), mine.size() * sizeof(float));
    group.reduce_scatter_single(part, t);
    TUTTI_CHECK(same_bits(values_of(part), {sums.begin() + me * n, sums.begin() + (me + 1) * n}),
                "reduce_scatter_single");
    group.all_reduce(t);
    TUTTI_CHECK(same_bits(values_of(t), sums), "all_reduce");
    group.broadcast(t, 1);
    group.all_gather_single(t, part);
    TUTTI_CHECK(same_bits(values_of(t), sums), "all_gather_single");
    group.barrier();
  }));
}

// ---- where the kernel says no ---------------------------------------------------------------------------------------

// Makes process_vm_readv fail in this process, as sandboxes do.
void forbid_peer_memory() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{.len = 4, .filter = program};
  TUTTI_CHECK_ENV(
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0,
      "no filter: {}", detail::errno_text(errno));
}

void check_staged(ProcessGroup& group, const ShmTransport& transport) {
  settle(group);
  TUTTI_CHECK(!transport.pulls(), "rank {} thinks that it may pull", group.rank());
  const Tensor sum = filled(0, 0, 8 * kPulled),
               big = group.rank() == 0 ? filled(3, 3, 4 * kPulled) : Tensor::empty({4 * kPulled});
  group.all_reduce(sum);
  for (int64_t i = 0; i < sum.numel(); ++i)
    TUTTI_CHECK(sum.data<float>()[i] == 3 * value(0, 0, i), "element {} is {}", i, sum.data<float>()[i]);
  group.broadcast(big, 0);
  check_filled("broadcast", big, 3, 3);
}

TEST(SingleCopyRefused, ByASandboxOfOneRankMakesAllCopyTwice) {
  expect_success(run_processes(3, check_staged, [](int rank) {
    if (rank == 1) forbid_peer_memory();
    return true;
  }));
}

TEST(SingleCopyRefused, ByAnOptionOfOneRankMakesAllCopyTwice) {
  expect_success(run_processes(3, check_staged, [](int rank) { return rank != 2; }));
}

TEST(SingleCopyRefused, TheVariableIsZeroOrOne) {
  setenv("TUTTI_SINGLE_COPY", "no", 1);
  const auto results = run_world(2, [](ProcessGroup& group) { group.barrier(); });
  unsetenv("TUTTI_SINGLE_COPY");
  for (const ForkedResult& result : results) {
    EXPECT_NE(result.error.find("TUTTI_SINGLE_COPY is 'no'; expected 0 (never) or 1 (where the kernel allows it)"),
              std::string::npos)
        << result.error;
  }
}

// `tutti env` prints it.
TEST(SingleCopyRefused, TheNoteOnTheTransportSaysWhy) {
  const std::string why = why_no_peer_memory();
  EXPECT_EQ(note_on_transport("shm"),
            why.empty() ? "large tensors: one copy, by the kernel" : "large tensors: two copies, because " + why);
  setenv("TUTTI_SINGLE_COPY", "0", 1);
  EXPECT_EQ(note_on_transport("shm"), "large tensors: two copies (TUTTI_SINGLE_COPY=0)");
  unsetenv("TUTTI_SINGLE_COPY");
  EXPECT_EQ(note_on_transport("threads"), "");
  // In a process of its own, which keeps the filter.
  const auto results = fork_processes(1, [](int) {
    forbid_peer_memory();
    const std::string note = note_on_transport("shm");
    TUTTI_CHECK(note == "large tensors: two copies, because process_vm_readv: Operation not permitted", "{}", note);
  });
  expect_success(results);
}

// ---- ranks that are lost --------------------------------------------------------------------------------------------

class SingleCopyFaults : public testing::TestWithParam<const char*> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SingleCopyFaults);
INSTANTIATE_TEST_SUITE_P(Of, SingleCopyFaults,
                         testing::ValuesIn(can_pull() ? std::vector<const char*>{"pulled"}
                                                      : std::vector<const char*>{}),
                         [](const auto& info) { return info.param; });

std::string error_of(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const PeerError& error) {
    return error.what();
  }
}

// The owner has said where its tensor is, and is gone when its peers come for it.
TEST_P(SingleCopyFaults, AnOwnerThatDiedBeforeTheCopyIsNamed) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  const auto results = run_processes(3, [&](ProcessGroup& group, const ShmTransport& transport) {
    settle(group);
    TUTTI_CHECK(transport.pulls(), "not pulled");
    const Tensor t = zeros(4 * kPulled);
    if (group.rank() == 0) {
      const pid_t self = getpid();
      TUTTI_CHECK_ENV(write(pipes[1], &self, sizeof self) == sizeof self, "no pipe");
      group.broadcast(t, 0);  // ends in the middle of it
    }
    if (group.rank() == 1) {
      pid_t owner = 0;
      TUTTI_CHECK_ENV(read(pipes[0], &owner, sizeof owner) == sizeof owner, "no pipe");
      std::this_thread::sleep_for(300ms);  // it waits for its peers
      kill(owner, SIGKILL);
      std::this_thread::sleep_for(100ms);
    } else {
      std::this_thread::sleep_for(400ms);
    }
    const std::string error = error_of([&] { group.broadcast(t, 0); });
    TUTTI_CHECK(error.find("rank 0 (pid ") != std::string::npos &&
                    error.find("died (its process is gone) while rank ") != std::string::npos &&
                    error.find(" waited for it in broadcast #") != std::string::npos,
                "the error is '{}'", error);
  });
  EXPECT_EQ(results[0].wait_status, SIGKILL);
  for (size_t r = 1; r < results.size(); ++r) EXPECT_TRUE(results[r].succeeded()) << results[r].error;
  close(pipes[0]);
  close(pipes[1]);
}

// Killed at any moment of a series of copies, as a reader or as an owner.
TEST_P(SingleCopyFaults, ARankThatDiesDuringTheCopiesIsNamed) {
  for (int turn = 0; turn < 8; ++turn) {
    pid_t victim = 0;
    const auto rank_main = [&](ProcessGroup& group, const ShmTransport&) {
      const int64_t n = 8 * kPulled;
      const Tensor out = zeros(n * group.size()), in = zeros(n), sum = zeros(n);
      const std::string error = error_of([&] {
        settle(group);  // on a busy machine the rank may die by then
        for (;;) {
          group.all_gather_single(out, in);
          group.all_reduce(sum);
        }
      });
      TUTTI_CHECK(error.find("rank 1 (pid ") != std::string::npos &&
                      error.find("died (its process is gone)") != std::string::npos,
                  "the error is '{}'", error);
    };
    const auto results =
        run_processes(3, rank_main, [](int) { return true; },
                      {.slot_bytes = 256 << 10, .limit = 60s, .meanwhile = [&](const std::vector<pid_t>& pids) {
                         victim = pids[1];
                         std::this_thread::sleep_for(200ms + turn * 1700us);
                         kill(victim, SIGKILL);
                       }});
    EXPECT_EQ(results[1].wait_status, SIGKILL);
    for (const size_t r : {size_t{0}, size_t{2}})
      EXPECT_TRUE(results[r].succeeded()) << "turn " << turn << ": " << results[r].error;
  }
}

// Memory that nobody can read is the error of all, with the address and what the kernel said.
TEST_P(SingleCopyFaults, MemoryThatCannotBeReadIsAnErrorOfAll) {
  const auto results = run_processes(2, [](ProcessGroup& group, const ShmTransport& transport) {
    settle(group);
    TUTTI_CHECK(transport.pulls(), "not pulled");
    const int64_t n = 4 * kPulled;
    void* memory = mmap(nullptr, static_cast<size_t>(n * 4), group.rank() == 0 ? PROT_NONE : PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TUTTI_CHECK_ENV(memory != MAP_FAILED, "no memory");
    const Tensor t = Tensor::from_memory(memory, {n}, DType::f32, {});
    const std::string error = error_of([&] { group.broadcast(t, 0); });
    const std::string expected = fmt::format("{} bytes at 0x", n * 4);
    TUTTI_CHECK(error.find(expected) != std::string::npos && error.find("of rank 0 (pid ") != std::string::npos &&
                    error.find("cannot be read (process_vm_readv: ") != std::string::npos &&
                    error.find(") by rank 1 in broadcast #") != std::string::npos,
                "the error is '{}'", error);
  });
  expect_success(results);
}

}  // namespace
}  // namespace tutti::comm
