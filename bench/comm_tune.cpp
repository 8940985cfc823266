#include "bench/comm_tune.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <limits>

#include "bench/collective_time.h"
#include "tutti/comm/symmetric_buffer.h"
#include "tutti/symm/allocation.h"
#include "tutti/symm/ops/all_gather_matmul.h"
#include "tutti/symm/ops/two_shot_all_reduce.h"

namespace tutti::bench {
namespace {

using comm::symm::TuningRow;
using comm::symm::TuningTable;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
constexpr int64_t kColumns = 64;  // of the matrix whose rows are gathered, and of the weight

// The time of `op` with `nbytes` per rank; the table in use decides how.
double time_op(comm::ProcessGroup& group, const std::string& op, int64_t nbytes) {
  const comm::symm::SymmGroup symm = comm::symm_group(group);
  const int64_t count = nbytes / 4;
  if (op == "all_reduce") {
    const Tensor t = comm::symm::empty_symm({count}, DType::f32, kCpu, {.group = symm});
    // Somebody computes new values between two calls; without that each rank would find its share in its own cache.
    return time_us(group, [&] {
      std::fill_n(t.data<float>(), count, 1.0f);
      comm::symm::all_reduce(t, symm);
    });
  }
  const Tensor a = comm::symm::empty_symm({count / kColumns, kColumns}, DType::f32, kCpu, {.group = symm});
  const Tensor b = Tensor::empty({kColumns, kColumns});
  std::fill_n(b.data<float>(), b.numel(), 0.5f);
  return time_us(group, [&] { comm::symm::all_gather_matmul(a, {&b, 1}, symm); });
}

}  // namespace

TuningTable tune_comm(comm::ProcessGroup& group, bool talk) {
  std::vector<TuningRow> rows;
  for (const std::string op : {"all_reduce", "all_gather_matmul"}) {
    const std::vector<std::string> algorithms = comm::symm::algorithms_of(op);
    // The first algorithm is that of small sizes; it holds up to the largest size at which it wins.
    int64_t holds_to = 0;
    for (int64_t nbytes = 1 << 10; nbytes <= 4 << 20; nbytes *= 4) {
      std::vector<double> times;
      for (const std::string& algorithm : algorithms) {
        comm::symm::use_tuning_table(TuningTable({{op, 0, kNoLimit, algorithm}}));
        times.push_back(time_op(group, op, nbytes));
      }
      if (times[0] <= times[1]) holds_to = nbytes;
      if (talk && group.rank() == 0) {
        std::fprintf(stderr, "%s %lld bytes: %s %.2f us, %s %.2f us\n", op.c_str(), static_cast<long long>(nbytes),
                     algorithms[0].c_str(), times[0], algorithms[1].c_str(), times[1]);
      }
    }
    rows.push_back({op, group.size(), holds_to, algorithms[0]});
    rows.push_back({op, group.size(), kNoLimit, algorithms[1]});
  }
  const TuningTable& defaults = TuningTable::defaults();
  rows.insert(rows.end(), defaults.rows().begin(), defaults.rows().end());
  TuningTable table(std::move(rows));
  comm::symm::use_tuning_table(table);
  return table;
}

}  // namespace tutti::bench
