// Callers may use the present name of a collective or an older one; a backend has one method for all of them.
#include <gtest/gtest.h>

#include <map>

#include "tutti/comm/backend.h"
#include "tutti/comm/collective_def.h"
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
  std::chrono::milliseconds timeout() const override { return std::chrono::milliseconds(1); }
};

class Counting : public Nothing {
 public:
  Work run(const CollectiveCall& call) override { return kinds.push_back(call.kind), Work(); }
  std::vector<CollectiveKind> kinds;
};

// Hands its calls to another backend.
class Wrapper : public Nothing {
 public:
  explicit Wrapper(Backend& inner) : inner_(inner) {}
  Work run(const CollectiveCall& call) override { return inner_.run(call); }

 private:
  Backend& inner_;
};

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

TEST(BackendNames, EveryNameReachesTheOneMethod) {
  Counting backend;
  const Tensor t = Tensor::of<float>({1});
  backend.all_gather_single(t, t);
  backend._allgather_base(t, t, {});
  backend.reduce_scatter_single(t, t);
  backend._reduce_scatter_base(t, t, {}, {});
  backend.alltoall_base(t, t, {}, {}, {});
  backend.allgather_into_tensor_coalesced({}, {}, {});
  backend.reduce_scatter_tensor_coalesced({}, {}, {}, {});
  using Kind = CollectiveKind;
  EXPECT_EQ(backend.kinds, (std::vector{Kind::all_gather_single, Kind::all_gather_single, Kind::reduce_scatter_single,
                                        Kind::reduce_scatter_single, Kind::all_to_all_single,
                                        Kind::all_gather_single_coalesced, Kind::reduce_scatter_single_coalesced}));
}

TEST(BackendNames, WhatABackendCannotDoIsOneErrorByItsPresentName) {
  Nothing nothing;
  for (int i = 0; i < 2; ++i) {
    try {
      i == 0 ? nothing.all_gather_single({}, {}, {}) : nothing._allgather_base({}, {}, {});
      FAIL() << "nothing was thrown";
    } catch (const UsageError& error) {
      EXPECT_STREQ(error.what(), "backend nothing does not support all_gather_single");
    }
  }
}

TEST(BackendNames, ABackendMayWrapAnother) {
  Counting inner;
  Wrapper wrapper(inner);
  wrapper._allgather_base({}, {}, {});
  EXPECT_EQ(inner.kinds.size(), 1u);
}

TEST(BackendNames, FormerNamesBelongToOneCollective) {
  std::map<std::string, std::string> owners;
  for (const CollectiveDef* def : collective_table()) {
    EXPECT_TRUE(owners.insert({def->name, def->name}).second) << def->name;
    for (const char* former : def->former_names) {
      if (former == nullptr) continue;
      EXPECT_TRUE(owners.insert({former, def->name}).second) << former;
    }
  }
}

TEST(BackendNames, OlderNamesOfAGroupDoWhatThePresentOnesDo) {
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
    for (const auto call :
         {&ProcessGroup::_allgather_base, &ProcessGroup::_all_gather_base, &ProcessGroup::all_gather_into_tensor}) {
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
