#include "tutti/autograd/use_sink.h"

#include "tutti/ops/engine/dispatch.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::autograd {
namespace {

struct DeliveryAttrs {
  UseSink* sink;
  int32_t leaf;
  int32_t position;
  static constexpr auto fields() {
    return field_list(field::handle<&DeliveryAttrs::sink>("sink"), field::number<&DeliveryAttrs::leaf>("leaf"),
                      field::number<&DeliveryAttrs::position>("position"));
  }
};

const DeliveryAttrs& attrs_of(const OpCall& call) { return call.attrs.as<DeliveryAttrs>(); }

// Ordered, so that a graph keeps them and their order, and no two ranks differ in what they bring first.
constexpr OpDef kDeliverUse{
    .name = "deliver_use",
    .num_inputs = 1,
    .num_outputs = 0,
    .infer = [](const OpCall&, OutputMetas&) {},
    .gradient = {.none = "it hands a gradient to a sink"},
    .ordered = true,
    .keeps_inputs = true,
    .kernel =
        [](const OpCall& call, std::span<const Tensor>) {
          attrs_of(call).sink->use(attrs_of(call).leaf, attrs_of(call).position, call[0]);
        },
    .recompute = Recompute::never,
};

constexpr OpDef kDeliverFinished{
    .name = "deliver_finished",
    .num_inputs = 0,
    .num_outputs = 0,
    .infer = [](const OpCall&, OutputMetas&) {},
    .gradient = {.none = "it tells a sink that no further gradient comes"},
    .ordered = true,
    .kernel = [](const OpCall& call, std::span<const Tensor>) { attrs_of(call).sink->finished(attrs_of(call).leaf); },
    .recompute = Recompute::never,
};

}  // namespace

void deliver_use(UseSink& sink, int32_t leaf, int32_t position, const Tensor& grad) {
  apply(kDeliverUse, {&inside_of(grad), 1}, Attrs::of(DeliveryAttrs{&sink, leaf, position}), {});
}

void deliver_finished(UseSink& sink, int32_t leaf) {
  apply(kDeliverFinished, {}, Attrs::of(DeliveryAttrs{&sink, leaf, 0}), {});
}

}  // namespace tutti::autograd
