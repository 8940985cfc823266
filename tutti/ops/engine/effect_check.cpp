#include "tutti/ops/engine/effect_check.h"

#include <cstdlib>
#include <cstring>

#include "tutti/core/hash.h"
#include "tutti/tensor/rebind.h"

namespace tutti {
namespace {

uint64_t hash_of(const Tensor& t) {
  const Tensor dense = to_contiguous(t);
  return dense.nbytes() == 0 ? 1 : hash64(dense.raw_data(), static_cast<size_t>(dense.nbytes()), 0) | 1;
}

}  // namespace

bool EffectCheck::is_on() {
  static const bool on = [] {
    const char* text = std::getenv("TUTTI_CHECK_EFFECTS");
    return text != nullptr && std::strcmp(text, "0") != 0 && *text != '\0';
  }();
  return on;
}

bool EffectCheck::is_written(size_t input) const {
  for (const int8_t written : call_.op.writes) {
    if (written >= 0 &&
        call_.inputs[static_cast<size_t>(written)].storage().get() == call_.inputs[input].storage().get())
      return true;
  }
  return false;
}

void EffectCheck::look() {
  for (size_t i = 0; i < call_.inputs.size(); ++i) {
    const Tensor& t = call_.inputs[i];
    before_.push_back({t.view_as(t.extents(), t.strides(), t.offset()),
                       is_written(i) || !t.storage()->has_memory() ? 0 : hash_of(t), t.storage()->has_memory()});
  }
}

void EffectCheck::compare() const {
  for (size_t i = 0; i < before_.size(); ++i) {
    const State& state = before_[i];
    TUTTI_CHECK(is_same_view(state.view, call_.inputs[i]),
                "{}: its kernel made input {} another tensor ({}, was {}) and does not declare it; give the new tensor "
                "as an output and name "
                "the input in OpDef::becomes",
                call_.op.name, i, describe(call_.inputs[i]), describe(state.view));
    TUTTI_CHECK(call_.op.resizes || state.view.storage()->has_memory() == state.has_memory,
                "{}: its kernel gave the memory of input {} ({}) back, or took it again, and does not declare it; set "
                "OpDef::resizes",
                call_.op.name, i, describe(state.view));
    TUTTI_CHECK(
        state.bytes == 0 || state.bytes == hash_of(state.view),
        "{}: its kernel wrote the elements of input {} ({}) and does not declare it; name the input in OpDef::writes",
        call_.op.name, i, describe(state.view));
  }
}

}  // namespace tutti
