// A backend may know a method by its present name or by its older one; callers may use either.
#include <gtest/gtest.h>

#include "tutti/comm/backend.h"
#include "tutti/comm/process_group.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

class Nothing : public Backend {
 public:
  std::string name() const override { return "nothing"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Answer can(const CallQuery&) const override { return {}; }
  void abort(std::string_view) override {}
  std::string failure() const override { return ""; }
  void set_timeout(std::chrono::milliseconds) override {}
};

class Old : public Nothing {
 public:
  Work _allgather_base(const Tensor&, const Tensor&, const CallOptions&) override { return ++calls, Work(); }
  Work _reduce_scatter_base(const Tensor&, const Tensor&, const ReduceOp&, const CallOptions&) override { return ++calls, Work(); }
  Work alltoall_base(const Tensor&, const Tensor&, Splits, Splits, const CallOptions&) override { return ++calls, Work(); }
  Work allgather_into_tensor_coalesced(Tensors, Tensors, const CallOptions&) override { return ++calls, Work(); }
  Work reduce_scatter_tensor_coalesced(Tensors, Tensors, const ReduceOp&, const CallOptions&) override { return ++calls, Work(); }
  int calls = 0;
};

class New : public Nothing {
 public:
  Work all_gather_single(const Tensor&, const Tensor&, const CallOptions&) override { return ++calls, Work(); }
  int calls = 0;
};

// Hands its calls to another backend, by the present name.
class Wrapper : public Nothing {
 public:
  explicit Wrapper(Backend& inner) : inner_(inner) {}
  Work all_gather_single(const Tensor& output, const Tensor& input, const CallOptions& options) override {
    return inner_.all_gather_single(output, input, options);
  }

 private:
  Backend& inner_;
};

TEST(BackendNames, EitherNameReachesTheOneThatIsOverridden) {
  Old old;
  old.all_gather_single({}, {}, {});
  old.reduce_scatter_single({}, {}, {}, {});
  old.all_to_all_single({}, {}, {}, {}, {});
  old.all_gather_single_coalesced({}, {}, {});
  old.reduce_scatter_single_coalesced({}, {}, {}, {});
  EXPECT_EQ(old.calls, 5);
  New fresh;
  fresh._allgather_base({}, {}, {});
  EXPECT_EQ(fresh.calls, 1);
}

TEST(BackendNames, NeitherNameIsOneErrorAndLeavesNothingBehind) {
  Nothing nothing;
  for (int i = 0; i < 2; ++i) {
    try {
      i == 0 ? nothing.all_gather_single({}, {}, {}) : nothing._allgather_base({}, {}, {});
      FAIL() << "nothing was thrown";
    } catch (const UsageError& error) {
      EXPECT_STREQ(error.what(), "backend nothing does not support all_gather_single");
    }
  }
  Old old;
  old.all_gather_single({}, {}, {});
  EXPECT_EQ(old.calls, 1);
}

TEST(BackendNames, ABackendMayWrapAnotherThatKnowsTheOtherName) {
  Old old;
  Wrapper wrapper(old);
  wrapper._allgather_base({}, {}, {});
  EXPECT_EQ(old.calls, 1);
}

TEST(BackendNames, OlderNamesOfAGroupDoWhatThePresentOnesDo) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  run_ranks(2, [](ProcessGroup& group) {
    const auto mine = [&](std::vector<int64_t> values) {
      for (int64_t& v : values) v += 10 * group.rank();
      return Tensor::of(values);
    };
    const auto expect = [&](const char* what, const Tensor& t, const std::vector<int64_t>& values) {
      EXPECT_TRUE(std::equal(values.begin(), values.end(), t.data<int64_t>())) << what << " on rank " << group.rank();
    };
    const Tensor reduced = mine({1}), two = mine({0, 0}), three = mine({0, 0});
    group.allreduce(reduced);
    expect("allreduce", reduced, {12});
    for (const auto call : {&ProcessGroup::_allgather_base, &ProcessGroup::_all_gather_base, &ProcessGroup::all_gather_into_tensor}) {
      (group.*call)(two, mine({1}), {});
      expect("all_gather", two, {1, 11});
    }
    for (const auto call : {&ProcessGroup::_reduce_scatter_base, &ProcessGroup::reduce_scatter_tensor}) {
      (group.*call)(reduced, mine({1, 2}), {}, {});
      expect("reduce_scatter", reduced, {group.rank() == 0 ? 12 : 14});
    }
    group.alltoall_base(two, mine({1, 2}), {}, {});
    expect("alltoall_base", two, group.rank() == 0 ? std::vector<int64_t>{1, 11} : std::vector<int64_t>{2, 12});
    group.gather_into_tensor(three, mine({1}), 0);
    if (group.rank() == 0) expect("gather_into_tensor", three, {1, 11});
  });
#pragma GCC diagnostic pop
}

}  // namespace
}  // namespace tutti::comm
