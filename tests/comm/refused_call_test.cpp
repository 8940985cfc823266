// A call whose arguments are wrong on one rank must not leave the ranks one call apart.
#include <gtest/gtest.h>

#include "tests/comm/support/refused_calls.h"
#include "tests/comm/support/sample_calls.h"
#include "tests/comm/support/transport_worlds.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/graph/compile.h"

namespace tutti::comm {
namespace {

std::string message(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

class RefusedCall : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Over, RefusedCall, testing::ValuesIn(world_transports()),
                         [](const auto& info) { return info.param; });

TEST_P(RefusedCall, IsAnErrorOnAllRanksAndTheNextCallsMeet) { run_over(GetParam(), 3, check_refused_calls); }

// Equal shapes: without the refusal the barrier of rank 1 would meet that of the others, and its sum their first.
TEST_P(RefusedCall, IsNotReplacedByTheNextCall) {
  run_over(GetParam(), 2, [](ProcessGroup& group) {
    const Tensor first = Tensor::of<float>({1}), second = Tensor::of<float>({10});
    const std::string text = message([&] { group.all_reduce(group.rank() == 1 ? Tensor() : first); });
    TUTTI_CHECK(
        text ==
            (group.rank() == 1
                 ? "all_reduce: a tensor is undefined"
                 : "collective #1 of group '0': rank 1 refused its call, where rank 0 called all_reduce(f32 [1], sum): "
                   "all_reduce: a tensor is undefined"),
        "{}", text);
    group.all_reduce(second);
    TUTTI_CHECK(first.item() == 1 && second.item() == 20, "{} and {}", first.item(), second.item());
  });
}

// The functions of functional.h check arguments of their own, eager and while they are traced.
TEST_P(RefusedCall, OfAFunctionalCollectiveIsAnErrorOnAllRanks) {
  using Function = std::function<Tensor(const Tensor& x, bool odd, ProcessGroup& group)>;
  const std::vector<Function> functions = {
      [](const Tensor& x, bool odd, ProcessGroup& g) { return functional::all_reduce(odd ? Tensor() : x, "sum", g); },
      [](const Tensor& x, bool odd, ProcessGroup& g) { return functional::all_gather_single(x, odd ? 3 : 0, g); },
      [](const Tensor& x, bool odd, ProcessGroup& g) {
        return functional::reduce_scatter_single(odd ? Tensor::empty({5, 2}) : x, "sum", 0, g);
      },
      [](const Tensor& x, bool odd, ProcessGroup& g) { return functional::all_to_all_single(odd ? Tensor() : x, g); },
      [](const Tensor& x, bool odd, ProcessGroup& g) {
        const std::vector<int64_t> splits(2, odd ? 2 : 3);
        return functional::all_to_all_single(x, splits, splits, g);
      },
      [](const Tensor& x, bool odd, ProcessGroup& g) { return functional::broadcast(odd ? Tensor() : x, 0, g); },
      [](const Tensor& x, bool odd, ProcessGroup& g) {
        return functional::permute_tensor(x, std::vector<int64_t>{1, odd ? 1 : 0}, g);
      },
      [](const Tensor& x, bool odd, ProcessGroup& g) {
        return functional::all_reduce_coalesced(std::vector{x, odd ? Tensor() : x}, "sum", g)[1];
      },
      [](const Tensor& x, bool odd, ProcessGroup& g) {
        return functional::all_gather_single_coalesced(std::vector{x, odd ? Tensor() : x}, g)[1];
      },
      [](const Tensor& x, bool odd, ProcessGroup& g) {
        return functional::reduce_scatter_single_coalesced(std::vector{x, odd ? Tensor::empty({5}) : x}, "sum", g)[1];
      },
  };
  run_over(GetParam(), 2, [&](ProcessGroup& group) {
    const bool odd = group.rank() == 1;
    const Tensor x = filled(0, {6, 2}, DType::f32);
    for (size_t i = 0; i < functions.size(); ++i) {
      for (const bool compiled : {false, true}) {
        const auto fn = [&](const Tensor& t) { return functions[i](t, odd, group); };
        const std::string text = message([&] { functional::wait_tensor(compiled ? compile(fn)(x) : fn(x)); });
        TUTTI_CHECK(text != "nothing was thrown" && (text.find("rank 1 refused its call") != std::string::npos) != odd,
                    "function {}{}: {}", i, compiled ? ", compiled" : "", text);
        const Tensor one = Tensor::of<float>({1});
        group.all_reduce(one);
        TUTTI_CHECK(one.item() == 2, "function {}{}: the sum afterwards is {}", i, compiled ? ", compiled" : "",
                    one.item());
      }
    }
  });
}

TEST(RefusedCalls, OfAllRanksAreEachRanksOwnError) {
  run_ranks(3, [](ProcessGroup& group) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(message([&] { group.broadcast(Tensor::of<float>({1}), 5); }),
                "broadcast: root 5 is not a rank of the group; legal: 0 to 2");
    }
    if (group.rank() == 0) {
      EXPECT_EQ(message([&] { group.all_reduce(Tensor()); }), "all_reduce: a tensor is undefined");
    }
    if (group.rank() == 1) {
      EXPECT_NE(message([&] { group.broadcast(Tensor(), 0); }).find("undefined"), std::string::npos);
    }
    if (group.rank() == 2) {
      EXPECT_NE(message([&] { group.barrier(); }).find("rank 0 refused its call, where rank 2 called barrier()"),
                std::string::npos);
    }
    const Tensor one = Tensor::of<float>({1});
    group.all_reduce(one);
    EXPECT_EQ(one.item(), 3.0);
  });
}

// An asynchronous call of the others gets the error at its wait.
TEST(RefusedCalls, ReachAsynchronousCalls) {
  run_ranks(2, [](ProcessGroup& group) {
    const Tensor t = Tensor::of<float>({1}), u = Tensor::of<float>({2});
    if (group.rank() == 1) {
      EXPECT_NE(message([&] { group.all_reduce(Tensor(), {}, {.async = true}); }), "");
      group.all_reduce(u);
    } else {
      const Work first = group.all_reduce(t, {}, {.async = true}), second = group.all_reduce(u, {}, {.async = true});
      second.wait();
      EXPECT_NE(message([&] { first.wait(); }).find("rank 1 refused its call"), std::string::npos);
    }
    EXPECT_EQ(u.item(), 4.0);
  });
}

}  // namespace
}  // namespace tutti::comm
