#include "tutti/tensor/extensions.h"

#include <utility>

#include "tutti/core/error.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

Tensor TensorExtension::whole(const Tensor&) const { return {}; }
Tensor TensorExtension::beside(const Tensor&) const { return {}; }
Tensor TensorExtension::arriving(const Tensor&) const { return {}; }

TensorExtension& TensorExtensions::put(const ExtensionKind& kind, std::unique_ptr<TensorExtension> extension) {
  TUTTI_CHECK(extension != nullptr, "extension '{}': there is nothing to attach; take() removes one", kind.name());
  take(kind);
  extension->kind_ = &kind;
  extension->next_ = std::move(first_);
  first_ = std::move(extension);
  return *first_;
}

std::unique_ptr<TensorExtension> TensorExtensions::take(const ExtensionKind& kind) {
  for (std::unique_ptr<TensorExtension>* at = &first_; *at != nullptr; at = &(*at)->next_) {
    if ((*at)->kind_ != &kind) continue;
    std::unique_ptr<TensorExtension> taken = std::move(*at);
    *at = std::move(taken->next_);
    taken->kind_ = nullptr;
    return taken;
  }
  return nullptr;
}

const ExtensionKind& TensorExtensions::newest() const {
  TUTTI_ASSERT(first_ != nullptr, "a tensor without extensions was asked for the newest");
  return *first_->kind_;
}

void TensorExtensions::copy_to(TensorExtensions& alias) const {
  for (const TensorExtension* e = first_.get(); e != nullptr; e = e->next_.get()) {
    if (std::unique_ptr<TensorExtension> copy = e->for_alias()) alias.put(*e->kind_, std::move(copy));
  }
}

}  // namespace tutti
