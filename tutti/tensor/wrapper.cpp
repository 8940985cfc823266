#include "tutti/tensor/wrapper.h"

namespace tutti {

const WrapperExtension* wrapper_of(const Tensor& t) {
  // A wrapper has no memory of its own, which is quickly seen.
  if (!t.defined() || t.storage()->has_memory()) [[likely]]
    return nullptr;
  const WrapperExtension* found = nullptr;
  t.extensions().any(
      [&](const TensorExtension& e) { return (found = dynamic_cast<const WrapperExtension*>(&e)) != nullptr; });
  return found;
}

}  // namespace tutti
