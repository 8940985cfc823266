#include "tutti/tensor/lent_memory.h"

namespace tutti {
namespace {

const ExtensionKind kLent{"lent memory"};

struct Lent final : TensorExtension {
  MemoryLender* lender = nullptr;
};

}  // namespace

MemoryLender* lender_of(const Tensor& t) {
  const Lent* lent = t.extensions().find<Lent>(kLent);
  return lent == nullptr ? nullptr : lent->lender;
}

void set_lender(const Tensor& t, MemoryLender* lender) {
  auto lent = std::make_unique<Lent>();
  lent->lender = lender;
  t.extensions().put(kLent, std::move(lent));
}

}  // namespace tutti
