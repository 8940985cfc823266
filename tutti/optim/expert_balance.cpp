#include "tutti/optim/expert_balance.h"

#include <numeric>
#include <vector>

#include "tutti/core/error.h"

namespace tutti::optim {

void balance_experts(const Tensor& bias, std::span<const int64_t> tokens, double coefficient) {
  const auto experts = static_cast<int64_t>(tokens.size());
  TUTTI_CHECK(bias.dtype() == DType::f32 && bias.ndim() == 1 && bias.is_contiguous() && bias.numel() == experts,
              "balance_experts: the bias is {}; expected a dense f32 tensor of {} elements, one for each count",
              describe(bias), experts);
  if (coefficient == 0 || experts == 0) return;
  const int64_t all = std::accumulate(tokens.begin(), tokens.end(), int64_t{0});
  std::vector<int64_t> signs;
  for (const int64_t n : tokens)
    signs.push_back(n * experts < all ? 1 : n * experts > all ? -1 : 0);  // of the mean less n, exactly
  // As f32 computes it: d is rounded, and so is its mean.
  const auto step = static_cast<float>(coefficient);
  const auto sum = static_cast<double>(std::accumulate(signs.begin(), signs.end(), int64_t{0}));
  const auto mean = static_cast<float>(sum * static_cast<double>(step) / static_cast<double>(experts));
  float* const values = bias.data<float>();
  for (size_t e = 0; e < signs.size(); ++e) {
    const float change = static_cast<float>(signs[e]) * step - mean;
    values[e] += change;
  }
}

}  // namespace tutti::optim
