#include "tutti/parallel/merged_metric.h"

#include <gtest/gtest.h>

#include <bit>
#include <mutex>
#include <set>

#include "tutti/comm/run_ranks.h"
#include "tutti/core/philox.h"
#include "tutti/nn/click_metrics.h"

namespace tutti::parallel {
namespace {

struct Metrics {
  nn::RocAuc auc;
  nn::Calibration calibration;
};

// The examples i of [0, 500) that are of rank `rank`: unequal numbers for several ranks, with ties and weights.
Metrics metrics_of(int rank, int ranks) {
  Metrics m;
  for (uint32_t i = 0; i < 500; ++i) {
    if (static_cast<int>(i / 7 % 5) % ranks != rank) continue;
    const auto words = philox4x32({i, 0, 0, 0}, {1, 2});
    const Tensor score = Tensor::scalar(static_cast<float>(words[0] % 90) / 89);
    const Tensor label = Tensor::scalar(static_cast<float>(words[1] % 4 == 0));
    const Tensor weight = Tensor::scalar(static_cast<float>(words[2] % 50) / 7);
    m.auc.add(score, label, weight);
    m.calibration.add(score, label, weight);
  }
  return m;
}

TEST(MergedMetric, HasTheBitsOfOneRank) {
  const Metrics one = metrics_of(0, 1);
  EXPECT_EQ(merged(one.auc, nullptr).value(), one.auc.value());
  const std::pair expected{std::bit_cast<uint64_t>(one.auc.value()), std::bit_cast<uint64_t>(one.calibration.value())};
  for (const int ranks : {1, 2, 3, 4, 8}) {  // of 8, three have no example
    std::mutex mutex;
    std::set<std::pair<uint64_t, uint64_t>> found;
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      const Metrics own = metrics_of(group.rank(), group.size());
      const std::pair values{std::bit_cast<uint64_t>(merged(own.auc, &group).value()),
                             std::bit_cast<uint64_t>(merged(own.calibration, &group).value())};
      const std::lock_guard lock(mutex);
      found.insert(values);
    });
    EXPECT_EQ(found, std::set{expected}) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace tutti::parallel
