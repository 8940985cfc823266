#include "tutti/dist/conversion_ops.h"

#include <utility>

#include <fmt/format.h>

#include "tutti/autograd/tape.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/dist/redistribute.h"
#include "tutti/dist/replicas.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"

namespace tutti::dist {
namespace {

thread_local bool checks_gradients = false;

struct ConversionAttrs {
  SpecRef spec, cotangent;
  bool is_async = false;
  bool is_checked = false;  // to_local: cotangents that are said to be replicas are compared
  static constexpr auto fields() {
    return field_list(
        field::rule<&ConversionAttrs::spec>("spec"), field::rule<&ConversionAttrs::cotangent>("cotangent"),
        field::number<&ConversionAttrs::is_async>("async"), field::number<&ConversionAttrs::is_checked>("checked"));
  }
};
const ConversionAttrs& attrs_of(const Attrs& attrs) { return attrs.as<ConversionAttrs>(); }

// The layout for a cotangent, whose dtype may be a wider one (numerics contract, N4).
const DTensorSpec& for_dtype(const DTensorSpec& spec, DType dtype) {
  SpecFields fields = spec.fields();
  fields.dtype = dtype;
  return DTensorSpec::of(std::move(fields), "backward");
}

// Dims that no mesh dim shards are those of the input, which may be symbols of a trace.
void infer_whole(const OpCall& call, OutputMetas& out) {
  const DTensorSpec& spec = *attrs_of(call.attrs).spec.spec;
  Shape sizes = to_shape(spec.sizes());
  for (int d = 0; d < sizes.ndim() && call[0].ndim() == sizes.ndim(); ++d) {
    if (spec.axes_of(d).empty() && call[0].impl()->traced >= 0)
      sizes[static_cast<size_t>(d)] = call[0].sizes()[static_cast<size_t>(d)];
  }
  out.add(spec.dtype(), sizes);
}

const OpDef kFromLocal{.name = "from_local",
                       .num_inputs = 1,
                       .infer = infer_whole,
                       .gradient = {.vjp = [](const VjpCall& c, std::span<Tensor> grads) {
                         const DTensorSpec &spec = *attrs_of(c.attrs).spec.spec,
                                           &wanted = for_dtype(*attrs_of(c.attrs).cotangent.spec, c.grads[0].dtype());
                         grads[0] = convert_to_local(convert_layout(c.grads[0], wanted), cotangent_spec(wanted));
                         // Each of n terms has an n-th of the average.
                         int64_t terms = 1;
                         for (size_t axis = 0; axis < spec.placements().size(); ++axis) {
                           if (spec.placements()[axis].is_partial() && spec.placements()[axis].op() == PartialOp::avg)
                             terms *= spec.mesh_shape()[axis];
                         }
                         if (terms > 1) grads[0] = truediv(grads[0], static_cast<double>(terms));
                       }}};

const OpDef kToLocal{
    .name = "to_local",
    .num_inputs = 1,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          const Tensor& local = part_of(call[0], "to_local").local;
          out.add(local.dtype(), local.sizes());
        },
    .gradient = {.vjp = [](const VjpCall& c, std::span<Tensor> grads) {
      const ConversionAttrs& a = attrs_of(c.attrs);
      const DTensorSpec& layout = for_dtype(*a.cotangent.spec, c.grads[0].dtype());
      const Mesh mesh = mesh_of_id(layout.mesh_id());
      if (a.is_checked && mesh->has_coordinate()) {
        require_replicas(
            c.grads[0], layout, *mesh,
            fmt::format("backward of to_local: the cotangent of the part of {}", a.spec.spec->to_string()),
            "; where the code on the parts differs between ranks, to_local() takes grad_placements with P(sum)");
      }
      // Terms of a narrow float are f32 from here on (numerics contract, N4).
      const Tensor terms =
          c.grads[0].dtype() == layout.local_dtype() ? c.grads[0] : cast(c.grads[0], layout.local_dtype());
      grads[0] = convert_from_local(terms, layout, cotangent_spec(layout));
    }}};

const OpDef kRedistribute{.name = "redistribute",
                          .num_inputs = 1,
                          .infer = infer_whole,
                          .gradient = {.vjp = [](const VjpCall& c, std::span<Tensor> grads) {
                            const ConversionAttrs& a = attrs_of(c.attrs);
                            grads[0] = convert_layout(c.grads[0], for_dtype(*a.cotangent.spec, c.grads[0].dtype()),
                                                      a.is_async);
                          }}};

}  // namespace

CheckGradientsScope::CheckGradientsScope() : before_(std::exchange(checks_gradients, true)) {}
CheckGradientsScope::~CheckGradientsScope() { checks_gradients = before_; }

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
  return call_op(kToLocal,
                 Attrs::of(ConversionAttrs{{part_of(t, "to_local").spec}, {&cotangent}, false, checks_gradients}), t);
}

Tensor convert_layout(const Tensor& t, const DTensorSpec& wanted, bool is_async) {
  const DTensorSpec& spec = *part_of(t, "redistribute").spec;
  if (&spec == &wanted) return t;
  return call_op(kRedistribute, Attrs::of(ConversionAttrs{{&wanted}, {&cotangent_spec(spec)}, is_async}), t);
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
    Tensor moved = attrs_of(call.attrs).is_async ? redistributed_later(part.local, *part.spec, wanted, part.mesh)
                                                 : comm::functional::wait_tensor(redistributed_part(call[0], wanted));
    // A part of the same memory would change with that of the tensor.
    if (moved.storage().get() == part.local.storage().get()) moved = clone(moved);
    outputs[0] = wrap(std::move(moved), wanted, part.mesh);
  } else {
    return false;
  }
  return true;
}

}  // namespace tutti::dist
