#include "tutti/nn/own_part.h"

#include "tutti/dist/dtensor.h"

namespace tutti::nn {

Tensor own_part(const Tensor& t, std::optional<Placement> gradient) {
  if (!dist::is_dtensor(t)) return t;
  return gradient ? dist::to_local(t, dist::Placements{*gradient}) : dist::to_local(t);
}

}  // namespace tutti::nn
