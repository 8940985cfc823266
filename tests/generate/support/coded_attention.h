// Attention of a whole sequence over what its keys and values become as codes: what an engine with a cache of codes is
// held to.
#pragma once

#include <map>

#include "tests/support/row_code.h"
#include "tutti/models/attention_cache.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/reshape.h"

namespace tutti::generate {

// For one forward of one sequence from position 0 on.
class CodedAttention final : public models::AttentionCache {
 public:
  explicit CodedAttention(DType code) : code_(code) {}
  Tensor attend(int64_t layer, const Tensor& q_THE, const Tensor& k_TKE, const Tensor& v_TKE,
                const SdpaOptions& options) override {
    const auto as_row = [](const Tensor& t) { return reshape(t, {1, t.size(0), t.size(1), t.size(2)}); };
    if (k_TKE.defined()) kept_[layer] = {as_row(through_codes(k_TKE, code_)), as_row(through_codes(v_TKE, code_))};
    const auto& [k, v] = kept_.at(layer);
    SdpaOptions whole = options;
    whole.causal = true;
    return cast(reshape(sdpa(as_row(cast(q_THE, DType::f32)), k, v, whole), q_THE.sizes()), q_THE.dtype());
  }

 private:
  const DType code_;
  std::map<int64_t, std::pair<Tensor, Tensor>> kept_;
};

}  // namespace tutti::generate
