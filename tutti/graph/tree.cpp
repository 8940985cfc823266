#include "tutti/graph/tree.h"

#include <algorithm>

#include "tutti/tensor/wrapper.h"

namespace tutti::graph {

std::vector<Tensor> without_wrappers(const std::vector<Tensor>& tensors) {
  if (std::none_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return wrapper_of(t) != nullptr; })) return {};
  std::vector<Tensor> kept = tensors;
  for (Tensor& t : kept) {
    if (wrapper_of(t) != nullptr) t = Tensor::empty({0}, DType::f32);
  }
  return kept;
}

}  // namespace tutti::graph
