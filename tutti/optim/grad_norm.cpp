#include "tutti/optim/grad_norm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>

#include "tutti/autograd/tape.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::optim {

ExactSum square_sum(std::span<const Tensor> grads) {
  ExactSum total(ExactTerm::square);
  std::mutex mutex;
  for (const Tensor& g : grads) {
    TUTTI_CHECK(g.dtype() == DType::f32, "square_sum: gradients are f32 from the product to the optimizer, got {}",
                describe(g));
    const Tensor dense = to_contiguous(g);
    ThreadPool::current().parallel_for(g.numel(), int64_t{1} << 16, [&](int64_t begin, int64_t end) {
      ExactSum part(ExactTerm::square);
      part.add({dense.data<float>() + begin, static_cast<size_t>(end - begin)});
      std::lock_guard lock(mutex);
      total.add(part);
    });
  }
  return total;
}

float norm_of(const ExactSum& squares) { return static_cast<float>(std::sqrt(squares.value())); }

namespace {

double checked_type(double norm_type) {
  TUTTI_CHECK(norm_type > 0, "a gradient norm of type {}; expected a number above 0, or infinity", norm_type);
  return norm_type;
}

}  // namespace

GradNorm::GradNorm(double norm_type)
    : norm_type_(checked_type(norm_type)), sum_(norm_type == 2.0 ? ExactTerm::square : ExactTerm::value) {}

bool GradNorm::is_largest() const { return std::isinf(norm_type_); }

void GradNorm::add(std::span<const Tensor> grads) {
  if (norm_type_ == 2.0) {
    sum_.add(square_sum(grads));
    return;
  }
  const NoGradScope no_grad;
  for (const Tensor& g : grads) {
    TUTTI_CHECK(g.dtype() == DType::f32, "GradNorm: gradients are f32, got {}", describe(g));
    Tensor terms = tutti::abs(g);
    if (!is_largest() && norm_type_ != 1.0) terms = pow(terms, norm_type_);
    const Tensor dense = to_contiguous(terms);
    const std::span<const float> values(dense.data<float>(), static_cast<size_t>(dense.numel()));
    if (!is_largest()) sum_.add(values);
    // The bits of magnitudes are ordered as they are, with infinity above the finite ones and NaN above all.
    else
      for (const float value : values) largest_ = std::max<int64_t>(largest_, std::bit_cast<int32_t>(value));
  }
}

void GradNorm::add(const GradNorm& other) {
  sum_.add(other.sum_);
  largest_ = std::max(largest_, other.largest_);
}

float GradNorm::value() const {
  if (is_largest()) return std::bit_cast<float>(static_cast<int32_t>(largest_));
  if (norm_type_ == 2.0) return norm_of(sum_);
  return static_cast<float>(std::pow(sum_.value(), 1.0 / norm_type_));
}

double clip_scale(float norm, double max_norm) {
  if (max_norm <= 0) return 1.0;
  return std::min(1.0, max_norm / (static_cast<double>(norm) + 1e-6));
}

}  // namespace tutti::optim
