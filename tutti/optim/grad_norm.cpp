#include "tutti/optim/grad_norm.h"

#include <algorithm>
#include <cmath>
#include <mutex>

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

double clip_scale(float norm, double max_norm) {
  if (max_norm <= 0) return 1.0;
  return std::min(1.0, max_norm / (static_cast<double>(norm) + 1e-6));
}

}  // namespace tutti::optim
