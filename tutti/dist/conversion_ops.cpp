#include "tutti/dist/conversion_ops.h"

#include "tutti/autograd/tape.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/core/error.h"
#include "tutti/dist/redistribute.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"

namespace tutti::dist {
namespace {

struct ConversionAttrs {
  SpecRef spec, cotangent;
  static constexpr auto fields() {
    return field_list(field::rule<&ConversionAttrs::spec>("spec"), field::rule<&ConversionAttrs::cotangent>("cotangent"));
  }
};
const ConversionAttrs& attrs_of(const Attrs& attrs) { return attrs.as<ConversionAttrs>(); }

// The layout for a cotangent, whose dtype may be a wider one (numerics contract, N4).
const DTensorSpec& for_dtype(const DTensorSpec& spec, DType dtype) {
  SpecFields fields = spec.fields();
  fields.dtype = dtype;
  return DTensorSpec::of(std::move(fields), "backward");
}

void infer_whole(const OpCall& call, OutputMetas& out) {
  const DTensorSpec& spec = *attrs_of(call.attrs).spec.spec;
  out.add(spec.dtype(), to_shape(spec.sizes()));
}

const OpDef kFromLocal{.name = "from_local",
                       .num_inputs = 1,
                       .infer = infer_whole,
                       .gradient = {.vjp = [](const VjpCall& c, std::span<Tensor> grads) {
                         const DTensorSpec& wanted = for_dtype(*attrs_of(c.attrs).cotangent.spec, c.grads[0].dtype());
                         grads[0] = convert_to_local(convert_layout(c.grads[0], wanted), cotangent_spec(wanted));
                       }}};

const OpDef kToLocal{.name = "to_local",
                     .num_inputs = 1,
                     .infer =
                         [](const OpCall& call, OutputMetas& out) {
                           const Tensor& local = part_of(call[0], "to_local").local;
                           out.add(local.dtype(), local.sizes());
                         },
                     .gradient = {.vjp = [](const VjpCall& c, std::span<Tensor> grads) {
                       const DTensorSpec& layout = for_dtype(*attrs_of(c.attrs).cotangent.spec, c.grads[0].dtype());
                       // Terms of a narrow float are f32 from here on (numerics contract, N4).
                       const Tensor terms = c.grads[0].dtype() == layout.local_dtype() ? c.grads[0] : cast(c.grads[0], layout.local_dtype());
                       grads[0] = convert_from_local(terms, layout, cotangent_spec(layout));
                     }}};

const OpDef kRedistribute{.name = "redistribute",
                          .num_inputs = 1,
                          .infer = infer_whole,
                          .gradient = {.vjp = [](const VjpCall& c, std::span<Tensor> grads) {
                            grads[0] = convert_layout(c.grads[0], for_dtype(*attrs_of(c.attrs).cotangent.spec, c.grads[0].dtype()));
                          }}};

}  // namespace

const DTensorSpec& cotangent_spec(const DTensorSpec& spec) {
  Placements placements = spec.placements();
  for (Placement& p : placements) {
    if (p.is_partial()) p = Placement::replicate();
  }
  return spec.with(std::move(placements));
}

Tensor convert_from_local(const Tensor& local, const DTensorSpec& spec, const DTensorSpec& cotangent) {
  // A plain tensor does not carry the stage that this op runs in.
  const StageScope here(stage(), 0);
  const Tensor list[] = {local};
  return apply1(kFromLocal, list, Attrs::of(ConversionAttrs{{&spec}, {&cotangent}}));
}

Tensor convert_to_local(const Tensor& t, const DTensorSpec& cotangent) {
  return call_op(kToLocal, Attrs::of(ConversionAttrs{{part_of(t, "to_local").spec}, {&cotangent}}), t);
}

Tensor convert_layout(const Tensor& t, const DTensorSpec& wanted) {
  const DTensorSpec& spec = *part_of(t, "redistribute").spec;
  if (&spec == &wanted) return t;
  return call_op(kRedistribute, Attrs::of(ConversionAttrs{{&wanted}, {&cotangent_spec(spec)}}), t);
}

bool convert(const OpCall& call, std::span<Tensor> outputs) {
  if (&call.op == &kFromLocal) {
    const DTensorSpec& spec = *attrs_of(call.attrs).spec.spec;
    outputs[0] = wrap(autograd::detached(call[0]), spec, mesh_of_id(spec.mesh_id()));
  } else if (&call.op == &kToLocal) {
    // The part may be a gradient that is still on its way, and its memory can be read directly from here on.
    outputs[0] = comm::functional::wait_tensor(part_of(call[0], "to_local").local).alias();
  } else if (&call.op == &kRedistribute) {
    const DTensorSpec& wanted = *attrs_of(call.attrs).spec.spec;
    const Part& part = part_of(call[0], "redistribute");
    Tensor moved = redistributed_part(call[0], wanted);
    moved = comm::functional::wait_tensor(moved);
    // A part of the same memory would change with that of the tensor.
    if (moved.storage().get() == part.local.storage().get()) moved = clone(moved);
    outputs[0] = wrap(std::move(moved), wanted, part.mesh);
  } else {
    return false;
  }
  return true;
}

}  // namespace tutti::dist
