#include "tutti/nn/packed_operand.h"

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/nn/linear.h"
#include "tutti/ops/packed_linear.h"

namespace tutti::nn {
namespace {

Tensor packed_matrix(const LinearOperand& operand) {
  const NoGradScope no_grad;
  const Tensor matrix = operand.matrix();
  TUTTI_CHECK(matrix.defined(), "PackedOperand: the {} operand has no matrix to pack", operand.kind());
  return pack_weight(matrix);
}

}  // namespace

PackedOperand::PackedOperand(std::shared_ptr<const LinearOperand> from)
    : from_(std::move(from)), packed_(packed_matrix(*from_)) {}

Tensor PackedOperand::product(const Tensor& x, std::optional<DType> out_dtype) const {
  if (out_dtype && *out_dtype != promote(x.dtype(), packed_.dtype())) return from_->product(x, out_dtype);
  return packed_linear(x, packed_, out_features());
}

PackedLinears::PackedLinears(Module& module) {
  std::vector<std::shared_ptr<const LinearOperand>> packed;
  for (const NamedModule& named : module.named_modules()) {
    auto* layer = dynamic_cast<Linear*>(named.module);
    if (layer == nullptr || layer->operand().kind() != "dense" || !layer->operand().matrix().defined()) continue;
    before_.emplace_back(layer, layer->operand_ptr());
    packed.push_back(std::make_shared<PackedOperand>(layer->operand_ptr()));
  }
  // Nothing has been changed where there was no memory for one of them.
  for (size_t i = 0; i < packed.size(); ++i) before_[i].first->set_operand(packed[i]);
}

PackedLinears::~PackedLinears() {
  for (const auto& [layer, before] : before_) layer->set_operand(before);
}

}  // namespace tutti::nn
