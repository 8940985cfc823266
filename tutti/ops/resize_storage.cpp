#include "tutti/ops/resize_storage.h"

#include "tutti/ops/engine/dispatch.h"

namespace tutti {
namespace {

struct ResizeAttrs {
  int64_t restores;
  static constexpr auto fields() { return field_list(field::number<&ResizeAttrs::restores>("restores")); }
};

// Not in the table of ops: there are no elements that a reference could define.
const OpDef kResizeStorage{
    .name = "resize_storage_",
    .num_inputs = 1,
    .writes = {0, -1, -1, -1},
    .infer = [](const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); },
    .gradient = {.none = "memory is no function of elements"},
    .resizes = true,
    .kernel =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          if (call.attrs.as<ResizeAttrs>().restores != 0) outputs[0].storage()->restore_memory();
          else outputs[0].storage()->release_memory();
        },
};

}  // namespace

Tensor resize_storage_(const Tensor& t, int64_t nbytes) {
  TUTTI_CHECK(nbytes == 0 || nbytes == t.storage()->nbytes(),
              "resize_storage_: {} bytes for the storage of {}, which has {}; expected 0 or {}", nbytes, describe(t),
              t.storage()->nbytes(), t.storage()->nbytes());
  return call_op(kResizeStorage, Attrs::of(ResizeAttrs{nbytes != 0}), t);
}

}  // namespace tutti
