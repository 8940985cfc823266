// Calls write their outputs and nothing else, also where an output overlaps an input.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/comm/support/forked_ranks.h"
#include "tests/comm/support/sample_calls.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/symmetric_buffer.h"
#include "tutti/core/error.h"
#include "tutti/symm/allocation.h"

namespace tutti::comm {
namespace {

// Below a line, staged in parts, in several pieces.
constexpr int64_t kCounts[] = {1, 11, 3000, 530'000};

void run_all(int ranks, const std::function<void(ProcessGroup&)>& fn) {
  run_ranks(ranks, fn);
  const auto results = run_forked(ranks, fn);
  for (size_t r = 0; r < results.size(); ++r)
    EXPECT_TRUE(results[r].succeeded()) << "rank " << r << ": " << results[r].error;
}

class Inputs : public ::testing::TestWithParam<CollectiveKind> {};
INSTANTIATE_TEST_SUITE_P(Of, Inputs, ::testing::ValuesIn(all_kinds()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(Inputs, AreUntouchedOnEveryRank) {
  run_all(3, [](ProcessGroup& group) {
    for (const int64_t count : kCounts) {
      for (const int root : {0, 2}) {
        if (count > 100'000 && root == 0) continue;  // takes its time
        const SampleCall call = sample_call(group, GetParam(), {.count = count, .root = root});
        const uint64_t before = checksum(call.inputs);
        call.make();
        TUTTI_CHECK(checksum(call.inputs) == before, "rank {}: {} of {} values with root {} wrote an input",
                    group.rank(), name_of(GetParam()), count, root);
      }
    }
  });
}

// Calls in which an output is part of an input or the other way round, against the same calls with memory apart. All
// memory comes from `memory`, which may be symmetric.
using Memory = std::function<Tensor(int64_t count)>;

void fill(const Tensor& t, int rank) {
  std::memcpy(t.raw_data(), filled(rank, t.extents(), t.dtype()).raw_data(), static_cast<size_t>(t.nbytes()));
}

void expect_equal(const char* what, ProcessGroup& group, const Tensor& a, const Tensor& b) {
  TUTTI_CHECK(std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0,
              "rank {}: {} of {} values differs from the call with memory apart", group.rank(), what, a.numel());
}

void check_aliases(ProcessGroup& group, const Memory& memory, int64_t count) {
  const int n = group.size(), me = group.rank();
  const Tensor apart_in = Tensor::empty({n * count}, DType::i32), apart_out = Tensor::empty({n * count}, DType::i32);
  const Tensor whole = memory(n * count), mine = whole.view_as({count}, {1}, me * count);

  // all_gather into a tensor that holds the own input.
  fill(mine, me);
  fill(apart_in.view_as({count}, {1}, 0), me);
  group.all_gather_single(apart_out, apart_in.view_as({count}, {1}, 0));
  group.all_gather_single(whole, mine);
  expect_equal("all_gather_single", group, whole, apart_out);

  // The same with lists.
  std::vector<Tensor> parts;
  for (int p = 0; p < n; ++p) parts.push_back(whole.view_as({count}, {1}, p * count));
  fill(whole, 90);
  fill(mine, me);
  group.all_gather(parts, mine);
  expect_equal("all_gather", group, whole, apart_out);

  // A list whose input is the place of another rank's values, and one that lies across two places.
  for (const int64_t begin : {(me + 1) % n * count, std::min(me, n - 2) * count + count / 2}) {
    const Tensor elsewhere = whole.view_as({count}, {1}, begin);
    fill(elsewhere, me);
    group.all_gather(parts, elsewhere);
    expect_equal("all_gather from another place", group, whole, apart_out);
  }

  // reduce_scatter into the own part of the input; the other parts stay.
  fill(whole, me);
  fill(apart_in, me);
  const Tensor sum = Tensor::empty({count}, DType::i32);
  group.reduce_scatter_single(sum, apart_in);
  group.reduce_scatter_single(mine, whole);
  expect_equal("reduce_scatter_single", group, mine, sum);
  for (int p = 0; p < n; ++p) {
    if (p != me)
      expect_equal("an input of reduce_scatter_single", group, parts[static_cast<size_t>(p)],
                   apart_in.view_as({count}, {1}, p * count));
  }
  fill(whole, me);
  group.reduce_scatter(mine, parts);
  expect_equal("reduce_scatter", group, mine, sum);

  // reduce_scatter into the part of another rank, and all_to_all in place: everything is read before it is overwritten.
  const Tensor next = parts[static_cast<size_t>((me + 1) % n)];
  fill(whole, me);
  group.reduce_scatter_single(next, whole);
  expect_equal("reduce_scatter_single over another part", group, next, sum);
  fill(apart_in, me);
  const Tensor exchanged = Tensor::empty({n * count}, DType::i32);
  group.all_to_all_single(exchanged, apart_in);
  fill(whole, me);
  group.all_to_all_single(whole, whole);
  expect_equal("all_to_all_single", group, whole, exchanged);

  // gather and scatter where the root's own part is already in its place.
  fill(whole, 90);
  fill(mine, me);
  group.gather(me == 1 ? parts : std::vector<Tensor>(), mine, 1);
  if (me == 1) expect_equal("gather", group, whole, apart_out);
  group.scatter(mine, me == 1 ? parts : std::vector<Tensor>(), 1);
  expect_equal("scatter", group, mine, apart_out.view_as({count}, {1}, me * count));

  // all_reduce is in place by nature; reduce writes the root only.
  fill(whole, me);
  fill(apart_in, me);
  group.reduce(whole, 0);
  if (me != 0) expect_equal("reduce on another rank", group, whole, apart_in);
  fill(whole, me);
  group.all_reduce(whole);
  group.all_reduce(apart_in);
  expect_equal("all_reduce", group, whole, apart_in);
}

TEST(Aliases, GiveWhatMemoryApartGives) {
  run_all(3, [](ProcessGroup& group) {
    for (const int64_t count : kCounts)
      check_aliases(group, [](int64_t c) { return Tensor::empty({c}, DType::i32); }, count);
  });
}

TEST(Aliases, AllGatherSingleRefusesTheSliceOfAnotherRank) {
  run_all(3, [](ProcessGroup& group) {
    const int me = group.rank(), other = (me + 1) % 3;
    const Tensor whole = Tensor::empty({3, 4}, DType::i32), theirs = whole.view_as({4}, {1}, other * 4);
    const std::string expected = fmt::format(
        "the input [4] i32 cpu of rank {} is slice {} of the output [3, 4] i32 cpu, where the values of rank {} go; "
        "legal is slice {} (elements {} to {} of the output) "
        "or memory apart",
        me, other, other, me, me * 4, me * 4 + 4);
    const auto expect_refused = [&](const std::string& op, const std::function<void()>& call) {
      std::string text = "nothing was thrown";
      try {
        call();
      } catch (const UsageError& error) {
        text = error.what();
      }
      TUTTI_CHECK(text == op + ": " + expected, "{}", text);
    };
    expect_refused("all_gather_single", [&] { group.all_gather_single(whole, theirs); });
    expect_refused("all_gather_single_coalesced",
                   [&] { group.all_gather_single_coalesced({&whole, 1}, {&theirs, 1}); });
    // Across two slices it is no slice: copied first.
    const Tensor across = whole.view_as({4}, {1}, 2), apart = Tensor::empty({3, 4}, DType::i32);
    fill(across, me);
    group.all_gather_single(apart, across);
    group.all_gather_single(whole, across);
    expect_equal("all_gather_single across slices", group, whole, apart);
  });
}

void check_symmetric(ProcessGroup& group) {
  for (const int64_t count : kCounts) {
    const Tensor block = symm::empty_symm({group.size() * count}, DType::i32, kCpu, {.group = symm_group(group)});
    const SymmetricBuffer buffer(group, block);
    TUTTI_CHECK(buffer.is_direct(), "peers do not read symmetric memory in place");
    for (int i = 0; i < 3; ++i) check_aliases(group, [&](int64_t) { return block; }, count);
    group.barrier();
  }
}

TEST(Aliases, GiveTheSameInSymmetricMemoryOfThreads) { run_ranks(3, check_symmetric); }

TEST(Aliases, GiveTheSameInSymmetricMemoryOfProcesses) {
  const auto results = run_world(3, check_symmetric, {.limit = std::chrono::seconds(60)});
  for (size_t r = 0; r < results.size(); ++r)
    EXPECT_TRUE(results[r].succeeded()) << "rank " << r << ": " << results[r].error;
}

}  // namespace
}  // namespace tutti::comm
