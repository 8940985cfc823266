// Ops on symmetric memory whose calls differ between ranks: an error on every rank that names two ranks, the field and
// both values, before any data is used, and a group that goes on. For every op, on both live backends.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/symm/support/ranks.h"
#include "tutti/job/errors.h"
#include "tutti/ops/creation.h"
#include "tutti/symm/allocation.h"
#include "tutti/symm/op_record.h"
#include "tutti/symm/ops/all_gather.h"
#include "tutti/symm/ops/all_gather_matmul.h"
#include "tutti/symm/ops/all_to_all_v.h"
#include "tutti/symm/ops/matmul_reduce_scatter.h"
#include "tutti/symm/ops/one_shot_all_reduce.h"
#include "tutti/symm/ops/reduce_scatter.h"
#include "tutti/symm/ops/two_shot_all_reduce.h"
#include "tutti/symm/rendezvous.h"
#include "tutti/symm/tuning.h"
#include "tutti/symm/workspace.h"

namespace tutti::comm::symm {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr int kRanks = 3;
constexpr int kOdd = 1;  // the rank that calls differently

// One call of an op, as a rank makes it.
struct Sample {
  SymmOp op;
  DType dtype = DType::f32;
  int64_t rows = 6, columns = 4;
  ReduceKind reduce = ReduceKind::sum;
  bool symmetric = false;  // the input lies in symmetric memory
};

Tensor input_of(const Sample& s, const SymmGroup& group) {
  const Extents sizes{s.rows, s.columns};
  const Tensor t = s.symmetric ? empty_symm(sizes, s.dtype, kCpu, {.group = group}) : Tensor::empty(sizes, s.dtype);
  std::fill_n(static_cast<char*>(t.raw_data()), t.nbytes(), char{0});
  return t;
}

// Without a default: the compiler asks for a sample of a new op.
void make(const Sample& s, const Tensor& input, const SymmGroup& group) {
  const int ranks = group.size();
  switch (s.op) {
    case SymmOp::all_gather:
      all_gather(input, group);
      return;
    case SymmOp::reduce_scatter:
      reduce_scatter(input, group, s.reduce);
      return;
    case SymmOp::one_shot_all_reduce:
      one_shot_all_reduce(input, group, s.reduce);
      return;
    case SymmOp::two_shot_all_reduce:
      two_shot_all_reduce(input, group, s.reduce);
      return;
    case SymmOp::all_reduce:
      all_reduce(input, group, s.reduce);
      return;
    case SymmOp::all_gather_matmul: {
      const Tensor b = Tensor::empty({s.columns, 2}, s.dtype);
      all_gather_matmul(input, {&b, 1}, group);
      return;
    }
    case SymmOp::matmul_reduce_scatter:
      matmul_reduce_scatter(Tensor::empty({s.rows, 3}, s.dtype), Tensor::empty({3, s.columns}, s.dtype), group,
                            s.reduce);
      return;
    case SymmOp::all_to_all_v:
      all_to_all_v(input, std::vector<int64_t>(static_cast<size_t>(ranks), s.rows / ranks), group);
      return;
  }
}

bool multiplies(SymmOp op) { return op == SymmOp::all_gather_matmul || op == SymmOp::matmul_reduce_scatter; }

// How the odd rank's call differs, and what the message must say.
struct Variation {
  const char* field;
  Sample right, odd;
  std::vector<std::string> says;
};

std::vector<Variation> variations(SymmOp op) {
  const Sample plain{.op = op}, symmetric{.op = op, .symmetric = true};
  const auto with = [](Sample s, auto change) {
    change(s);
    return s;
  };
  const SymmOp other = static_cast<SymmOp>((static_cast<int>(op) + 1) % kNumSymmOps);
  const DType dtype = multiplies(op) ? DType::f64 : DType::i32;
  std::vector<Variation> list = {
      {"operations", plain, {.op = other}, {std::string(name_of(op)), std::string(name_of(other))}},
      {"operations",
       symmetric,
       {.op = other, .symmetric = true},
       {std::string(name_of(op)), std::string(name_of(other))}},
      {"shapes", plain, with(plain, [](Sample& s) { s.columns = 5; }), {"4]", "5]"}},
      {"shapes", plain, with(plain, [](Sample& s) { s.columns = 0; }), {"4]", "0]"}},
      // More than the workspace has: this rank would have to meet the others for another piece.
      {"shapes", plain, with(plain, [](Sample& s) { s.columns = 200'000; }), {"4]", "200000]"}},
      {"dtypes", plain, with(plain, [&](Sample& s) { s.dtype = dtype; }), {"f32", std::string(name_of(dtype))}},
  };
  if (op != SymmOp::all_to_all_v)
    list.push_back({"shapes", plain, with(plain, [](Sample& s) { s.rows = 12; }), {"[6, 4]", "[12, 4]"}});
  if (reduces(op))
    list.push_back({"reduce ops", plain, with(plain, [](Sample& s) { s.reduce = ReduceKind::avg; }), {"sum", "avg"}});
  if (op != SymmOp::matmul_reduce_scatter) {
    list.push_back({"places of the tensors", plain, symmetric, {"the workspace (piece", "symmetric memory"}});
    list.push_back({"shapes", symmetric, with(symmetric, [](Sample& s) { s.columns = 5; }), {"4]", "5]"}});
  }
  return list;
}

// fn() throws a UsageError with all of `says`, soon.
template <class Fn>
void expect_refused(const std::vector<std::string>& says, const Fn& fn) {
  const auto begin = steady_clock::now();
  try {
    fn();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const UsageError& error) {
    const std::string text = error.what();
    for (const std::string& part : says)
      EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
  }
  EXPECT_LT(steady_clock::now() - begin, 5s);
}

void expect_working(const SymmGroup& group) {
  const Tensor one = Tensor::of<float>({1, 2});
  EXPECT_EQ(one_shot_all_reduce(one, group).data<float>()[1], 2.0f * static_cast<float>(group.size()));
}

class SymmAgreement : public testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  std::string backend() const { return std::get<0>(GetParam()); }
  SymmOp op() const { return static_cast<SymmOp>(std::get<1>(GetParam())); }
};
INSTANTIATE_TEST_SUITE_P(Symm, SymmAgreement,
                         testing::Combine(testing::ValuesIn(live_backends()), testing::Range(0, kNumSymmOps)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" +
                                  std::string(name_of(static_cast<SymmOp>(std::get<1>(info.param))));
                         });

TEST_P(SymmAgreement, EveryFieldThatDiffersIsAnErrorOnAllRanksAndTheGroupGoesOn) {
  run_on(backend(), kRanks, [this](const World& world) {
    const SymmGroup group = world.group();
    for (int round = 0; round < 2; ++round) {  // first before the group has any workspace
      for (const Variation& v : variations(op())) {
        const Sample& own = world.rank == kOdd ? v.odd : v.right;
        const Tensor input = input_of(own, group);
        std::vector<std::string> says = v.says;
        says.insert(says.end(), {fmt::format("the {} differ", v.field), "of group 'symm/", "on rank 0", "on rank 1",
                                 "rank 1 called"});
        if (round == 0 && std::string_view(v.field) == "places of the tensors") says.erase(says.begin());
        SCOPED_TRACE(fmt::format("{} round {}", v.field, round));
        expect_refused(says, [&] { make(own, input, group); });
        if (round == 1) expect_working(group);
      }
    }
    make({.op = op()}, input_of({.op = op()}, group), group);
    expect_working(group);
  });
}

// What one rank's arguments cannot be is found by that rank alone: the others hear of it instead of waiting.
TEST_P(SymmAgreement, ACallThatOneRankRefusesIsAnErrorOnAllRanks) {
  run_on(backend(), kRanks, [this](const World& world) {
    const SymmGroup group = world.group();
    for (int round = 0; round < 4; ++round) {
      const Sample s{.op = op()};
      const Tensor input = input_of(s, group);
      const auto refused = [&] {
        switch (op()) {
          case SymmOp::matmul_reduce_scatter:
            matmul_reduce_scatter(Tensor::empty({7, 3}), Tensor::empty({3, 4}), group);
            return;
          default:
            make(s, input.view_as({4, 6}, {1, 4}, 0), group);
        }
      };
      if (world.rank == kOdd)
        expect_refused({op() == SymmOp::matmul_reduce_scatter ? "7 rows do not divide" : "must be contiguous"},
                       refused);
      else expect_refused({"rank 1 refused its call", std::string(name_of(op()))}, [&] { make(s, input, group); });
      if (round % 2 == 1) expect_working(group);
    }
  });
}

class SymmAgreementOn : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Symm, SymmAgreementOn, testing::ValuesIn(live_backends()),
                         [](const auto& info) { return info.param; });

TEST_P(SymmAgreementOn, TablesOfAlgorithmsMustBeTheSame) {
  run_on(GetParam(), 2, [](const World& world) {
    const SymmGroup group = world.group();
    const auto table = [&](const char* op, const char* first, const char* second) {
      return TuningTable({{op, 0, int64_t{1} << 40, world.rank == 0 ? first : second}});
    };
    use_tuning_table(table("all_reduce", "one_shot", "two_shot"));
    expect_refused({"the algorithms differ: one_shot on rank 0, two_shot on rank 1"},
                   [&] { all_reduce(zeros({4}), group); });
    use_tuning_table(table("all_gather_matmul", "chunked", "gather_first"));
    const Tensor b = zeros({4, 2});
    expect_refused({"the algorithms differ: chunked on rank 0, gather_first on rank 1"},
                   [&] { all_gather_matmul(zeros({2, 4}), {&b, 1}, group); });
    expect_working(group);
  });
}

// Two tensors that have met both: without the place, each rank would read the others' tensor of the same name.
TEST_P(SymmAgreementOn, OtherTensorsOfTheSameShapeAreNamed) {
  run_on(GetParam(), 2, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor a = empty_symm({64}, DType::f32, kCpu, {.group = group}),
                 b = empty_symm({64}, DType::f32, kCpu, {.group = group});
    rendezvous(a, group);
    rendezvous(b, group);
    expect_refused({"the places of the tensors differ", "rendezvous 1, byte 0", "rendezvous 2, byte 0"},
                   [&] { one_shot_all_reduce(world.rank == 0 ? a : b, group); });
    const Tensor half = a.view_as({32}, {1}, world.rank == 0 ? 0 : 32);
    rendezvous(a.view_as({32}, {1}, 32), group);
    expect_refused({"rendezvous 1, byte 0", "rendezvous 1, byte 128"}, [&] { all_gather(half, group); });
    expect_working(group);
  });
}

TEST_P(SymmAgreementOn, ALeaseThatOneRankAloneHoldsIsNamed) {
  run_on(GetParam(), 2, [](const World& world) {
    const SymmGroup group = world.group();
    expect_working(group);
    {
      std::optional<WorkspaceLease> held;
      if (world.rank == 1) held.emplace(get_symm_mem_workspace(group, 64));
      expect_refused({"the places of the tensors differ", "byte 0)", "byte 64)"},
                     [&] { all_reduce(zeros({4}), group); });
    }
    expect_working(group);
  });
}

TEST_P(SymmAgreementOn, GroupsOfOtherSizesDoNotBegin) {
  run_on(GetParam(), 3, [](const World& world) {
    const std::string key = make_group_key("sizes", std::vector<int>{0, 1, 2}, 0);
    const SymmGroup group(key, world.rank, world.rank == 2 ? 4 : 3, world.store, {}, 20s);
    group.select_backend(world.backend);
    // Who meets rank 2 before all have come names it and itself only.
    expect_refused({"the group sizes differ", "rank 2: 4", ": 3"}, [&] { all_reduce(zeros({4}), group); });
  });
}

TEST_P(SymmAgreementOn, AnOpAndARendezvousDoNotMeet) {
  run_on(GetParam(), 2, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor t = empty_symm({4}, DType::f32, kCpu, {.group = group});
    const std::string text = complaint_of([&] {
      if (world.rank == 0) all_reduce(zeros({4}), group);
      else rendezvous(t, group);
    });
    EXPECT_NE(text.find("the ranks meet for different things: rank 1: a tensor; rank 0: the first op"),
              std::string::npos)
        << text;
    expect_working(group);
  });
}

// The others count on its part of the work, so there is no going on.
TEST_P(SymmAgreementOn, ARankThatFailsInTheMiddleEndsTheOpsOfTheGroup) {
  run_on(GetParam(), 3, [](const World& world) {
    const SymmGroup group = world.group();
    const Tensor a = zeros({2, 4}), b = zeros({4, 2}), wrong = zeros({4, 2}, DType::i32);
    use_tuning_table(TuningTable({{"all_gather_matmul", 0, 0, "chunked"}}));
    const auto begin = steady_clock::now();
    const std::string own = complaint_of([&] { all_gather_matmul(a, {world.rank == kOdd ? &wrong : &b, 1}, group); });
    EXPECT_NE(own.find(world.rank == kOdd ? "i32" : "rank 1 failed in all_gather_matmul(f32 [2, 4], chunked)"),
              std::string::npos)
        << own;
    const std::string later = complaint_of([&] { all_reduce(a, group); });
    EXPECT_NE(later.find("rank 1 failed in all_gather_matmul"), std::string::npos) << later;
    EXPECT_LT(steady_clock::now() - begin, 10s);
    expect_working(world.group("another"));
  });
}

TEST_P(SymmAgreementOn, ALateRankEndsTheOpsOfTheGroup) {
  run_on(GetParam(), 2, [](const World& world) {
    const SymmGroup group = world.group("hurried", 300ms);
    expect_working(group);
    if (world.rank == 0) {
      EXPECT_THROW(all_reduce(zeros({4}), group), TimeoutError);
      world.store->set("given up", "1");
    } else {
      world.store->wait({"given up"}, 20s);
    }
    const std::string text = complaint_of([&] { all_reduce(zeros({4}), group); });
    EXPECT_NE(text.find("op #2, all_reduce(f32 [4], sum"), std::string::npos) << text;
    EXPECT_NE(text.find("in vain for ranks 1"), std::string::npos) << text;
    if (world.rank == 1) world.store->set("heard", "1");
    else world.store->wait({"heard"}, 20s);
  });
}

}  // namespace
}  // namespace tutti::comm::symm
