// Functions with collectives that the tests of packages put into files, and what they compare.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/comm/support/compiled_support.h"
#include "tests/comm/support/forked_ranks.h"
#include "tests/comm/support/transport_worlds.h"
#include "tests/support/temporary_folder.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/comm/rank_group.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/deploy/package.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/unary.h"
#include "tutti/package/package.h"

namespace tutti::comm::packaged {

using deploy::Package;
using functional::compiled_test::expect_same;
using functional::compiled_test::values;

// Each rank has a part of the weights: x [batch, 6] -> [batch, 3].
struct ShardedMlp {
  explicit ShardedMlp(ProcessGroup& group)
      : group(group), w(part(group.rank(), {6, 5}, 11)), v(part(group.rank(), {5, 3}, 12)) {}
  static Tensor part(int rank, const Extents& sizes, uint64_t seed) { return values(sizes, rank, seed); }
  static Tensor of_rank(const Tensor& x, const Tensor& w, const Tensor& v) { return matmul(gelu(matmul(x, w)), v); }
  Tensor operator()(const Tensor& x) const { return tanh(functional::all_reduce(of_rank(x, w, v), "sum", group)); }
  ProcessGroup& group;
  Tensor w, v;
};

// All collectives of the C interface, without anything that only one rank has: x [2 W, 4].
struct Exchanges {
  ProcessGroup& group;
  std::vector<Tensor> operator()(const Tensor& x) const {
    using namespace functional;
    const Tensor y = exp(x);
    const Tensor most = all_reduce(y, "max", group), mean = all_reduce(mul(x, 3.0), "avg", group);
    const Tensor all = all_gather_single(sub(most, x), 0, group);
    const Tensor part = reduce_scatter_single(all, ReduceOp::premul_sum(0.75), 0, group);
    return {add(part, broadcast(tanh(x), 0, group)), add(mean, all_to_all_single(mul(y, 0.5), group))};
  }
};

// run_over() whose ranks are never threads of this process, which could not fork any more: packaging starts workers.
inline void run_apart(const std::string& transport, int ranks, const std::function<void(ProcessGroup&)>& fn) {
  if (transport != "threads") return run_over(transport, ranks, fn);
  const auto results = fork_processes(1, [&](int) { run_ranks(ranks, fn); });
  EXPECT_TRUE(results[0].succeeded()) << results[0].error;
}

inline PackageOptions options_for(ProcessGroup& group, const std::string& name, std::vector<PackagedSize> sizes = {}) {
  return {.name = name,
          .dynamic = std::move(sizes),
          .levels = {codegen::cpu_target()},
          .groups = {rank_group(group.shared_from_this())}};
}

// Opened and bound to the group.
inline std::shared_ptr<Package> open_in(ProcessGroup& group, const std::string& path) {
  auto package = Package::open(path);
  package->set_groups(std::vector{rank_group(group.shared_from_this())});
  return package;
}

inline std::string file_of(const std::string& folder, const std::string& name, const ProcessGroup& group) {
  return fmt::format("{}/{}.{}", folder, name, group.rank());
}

// The text of the error of this type that fn() throws; "no error" when it throws none.
template <class E, class Fn>
std::string error_of(Fn fn) {
  try {
    fn();
  } catch (const E& error) {
    return error.what();
  }
  return "no error";
}
inline void require_has(const std::string& text, const std::string& part) {
  TUTTI_CHECK(text.find(part) != std::string::npos, "'{}' lacks '{}'", text, part);
}

}  // namespace tutti::comm::packaged
