#include "tutti/tensor/rebind.h"

namespace tutti {

void rebind(const Tensor& target, const Tensor& source) {
  TUTTI_CHECK(target.dtype() == source.dtype() && target.device() == source.device(),
              "the tensor {} cannot become {}: dtype and device stay", describe(target), describe(source));
  TUTTI_CHECK(target.extensions().empty(),
              "the tensor {} takes part in {} and cannot become another one; detach() it first", describe(target),
              target.extensions().newest().name());
  TensorImpl& to = *target.impl();
  const TensorImpl& from = *source.impl();
  to.sizes = from.sizes;
  to.extents = from.extents;
  to.strides = from.strides;
  to.offset = from.offset;
  to.numel = from.numel;
  to.contiguous = from.contiguous;
  to.stages = from.stages;
  to.traced = from.traced;
  to.storage = from.storage;
}

bool is_same_view(const Tensor& a, const Tensor& b) {
  return a.storage().get() == b.storage().get() && a.offset() == b.offset() && a.extents() == b.extents() &&
         a.strides() == b.strides();
}

}  // namespace tutti
