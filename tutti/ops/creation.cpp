#include "tutti/ops/creation.h"

#include "tutti/ops/engine/attr_enums.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/expand.h"
#include "tutti/tensor/device_copy.h"

namespace tutti {
namespace {

constexpr const char* kNoInputs = "it has no input";

// ---- full -----------------------------------------------------------------------------------------------------------

struct FullAttrs {
  Shape sizes;
  double value;
  DType dtype;
  static constexpr auto fields() {
    return field_list(field::size<&FullAttrs::sizes>("sizes"), field::number<&FullAttrs::value>("value"),
                      field::output_dtype<&FullAttrs::dtype>("dtype"));
  }
};

void infer_full(const OpCall& call, OutputMetas& out) {
  const FullAttrs& a = call.attrs.as<FullAttrs>();
  out.add(a.dtype, a.sizes);
}

std::string all_dims_sharding(const OpCall& call) {
  OutputMetas metas;
  call.op.infer(call, metas);
  return fmt::format("-> y[{}]", facets::dim_letters(metas.meta[0].sizes.ndim()));
}

int full_params(const OpCall& call, codegen::ParamValue* params) {
  const FullAttrs& a = call.attrs.as<FullAttrs>();
  if (is_floating(a.dtype)) params[0].f = a.value;
  else if (a.dtype == DType::boolean) params[0].i = a.value != 0.0;
  else params[0].i = static_cast<int64_t>(a.value);
  return 1;
}

std::vector<Sample> full_samples() {
  std::vector<Sample> samples;
  const auto add = [&](const char* name, const Extents& sizes, double value, DType dtype) {
    samples.push_back({name, {}, Attrs::of(FullAttrs{to_shape(sizes), value, dtype})});
  };
  add("f32", {3, 17}, 0.1, DType::f32);
  add("negative_zero", {5}, -0.0, DType::f32);
  add("bf16", {33}, 1.0 / 3.0, DType::bf16);
  add("f64", {2, 3}, 1e-300, DType::f64);
  add("i64", {4}, -7, DType::i64);
  add("u8", {19}, 200, DType::u8);
  add("bool", {9}, 1, DType::boolean);
  add("scalar", {}, 2.5, DType::f32);
  add("empty", {0, 4}, 1, DType::f32);
  return samples;
}

const OpDef kFull{
    .name = "full",
    .num_inputs = 0,
    .infer = infer_full,
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          facets::fill_elements(outputs[0], call.attrs.as<FullAttrs>().value);
        },
    .gradient = {.none = kNoInputs},
    .recipe = {.build = [](RecipeBuilder& b) { b.out(b.param(0, compute_dtype(b.output_dtypes[0]))); },
               .params = full_params},
    .sharding = all_dims_sharding,
    .local_attrs =
        [](const OpCall& call, const LocalBox& part) {
          FullAttrs a = call.attrs.as<FullAttrs>();
          a.sizes = to_shape(part.sizes);
          return Attrs::of(a);
        },
    .samples = full_samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

// ---- arange ---------------------------------------------------------------------------------------------------------

struct ArangeAttrs {
  SymInt count, start;
  int64_t step;
  DType dtype;
  static constexpr auto fields() {
    return field_list(field::size<&ArangeAttrs::count>("count"), field::size<&ArangeAttrs::start>("start"),
                      field::number<&ArangeAttrs::step>("step"), field::output_dtype<&ArangeAttrs::dtype>("dtype"));
  }
};

const OpDef kArange{
    .name = "arange",
    .num_inputs = 0,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          const ArangeAttrs& a = call.attrs.as<ArangeAttrs>();
          out.add(a.dtype, {a.count});
        },
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const ArangeAttrs& a = call.attrs.as<ArangeAttrs>();
          for (int64_t i = 0; i < a.count; ++i) facets::write_int64(outputs[0], i, a.start.value() + i * a.step);
        },
    .gradient = {.none = kNoInputs},
    .recipe = {.build =
                   [](RecipeBuilder& b) {
                     const Expr value = b.param(0, DType::i64) + b.linear_index() * b.param(1, DType::i64);
                     b.out(cast(value, compute_dtype(b.output_dtypes[0])));
                   },
               .params =
                   [](const OpCall& call, codegen::ParamValue* params) {
                     params[0].i = call.attrs.as<ArangeAttrs>().start.value();
                     params[1].i = call.attrs.as<ArangeAttrs>().step;
                     return 2;
                   }},
    .sharding = all_dims_sharding,
    .local_attrs =
        [](const OpCall& call, const LocalBox& part) {
          ArangeAttrs a = call.attrs.as<ArangeAttrs>();
          a.start += part.offsets[0] * a.step;
          a.count = part.sizes[0];
          return Attrs::of(a);
        },
    .samples =
        [] {
          const auto attrs = [](ArangeAttrs a) { return Attrs::of(a); };
          return std::vector<Sample>{{"i64", {}, attrs({37, -5, 3, DType::i64})},
                                     {"down_f32", {}, attrs({9, 4, -1, DType::f32})},
                                     {"i32", {}, attrs({20, 0, 1, DType::i32})},
                                     {"empty", {}, attrs({0, 3, 1, DType::i64})}};
        },
    .tolerance = {.f32 = 0, .f64 = 0},
};

// ---- bands of a matrix ----------------------------------------------------------------------------------------------

enum class Band : int64_t { equal, lower, upper };

// One where column - row compares to `diagonal`. `diagonal` is that of the part: it absorbs the part's offsets.
struct BandAttrs {
  SymInt rows, columns;
  int64_t diagonal;
  Band band;
  DType dtype;
  static constexpr auto fields() {
    return field_list(field::size<&BandAttrs::rows>("rows"), field::size<&BandAttrs::columns>("columns"),
                      field::number<&BandAttrs::diagonal>("diagonal"), field::rule<&BandAttrs::band>("band"),
                      field::output_dtype<&BandAttrs::dtype>("dtype"));
  }
};

bool in_band(Band band, int64_t distance, int64_t diagonal) {
  return band == Band::equal ? distance == diagonal : band == Band::lower ? distance <= diagonal : distance >= diagonal;
}

void band_recipe(RecipeBuilder& b) {
  const Expr columns = b.param(0, DType::i64), diagonal = b.param(1, DType::i64);
  const Expr row = apply_scalar(ScalarOp::floordiv, b.linear_index(), columns);
  const Expr distance = b.linear_index() - row * columns - row;
  const Band band = b.call.attrs.as<BandAttrs>().band;
  const ScalarOp compare = band == Band::equal ? ScalarOp::eq : band == Band::lower ? ScalarOp::le : ScalarOp::ge;
  b.out(cast(apply_scalar(compare, distance, diagonal), compute_dtype(b.output_dtypes[0])));
}

std::vector<Sample> band_samples() {
  const auto attrs = [](int64_t rows, int64_t columns, int64_t diagonal, Band band, DType dtype) {
    return Attrs::of(BandAttrs{rows, columns, diagonal, band, dtype});
  };
  return {{"eye", {}, attrs(5, 7, 0, Band::equal, DType::f32)},
          {"lower", {}, attrs(6, 5, 1, Band::lower, DType::boolean)},
          {"upper", {}, attrs(3, 19, -1, Band::upper, DType::boolean)},
          {"empty", {}, attrs(3, 0, 0, Band::lower, DType::boolean)}};
}

const OpDef kBand{
    .name = "band",
    .num_inputs = 0,
    .infer =
        [](const OpCall& call, OutputMetas& out) {
          const BandAttrs& a = call.attrs.as<BandAttrs>();
          out.add(a.dtype, {a.rows, a.columns});
        },
    .reference =
        [](const OpCall& call, std::span<const Tensor> outputs) {
          const BandAttrs& a = call.attrs.as<BandAttrs>();
          for (int64_t r = 0; r < a.rows; ++r) {
            for (int64_t c = 0; c < a.columns; ++c)
              facets::write_int64(outputs[0], r * a.columns.value() + c, in_band(a.band, c - r, a.diagonal));
          }
        },
    .gradient = {.none = kNoInputs},
    .recipe = {.build = band_recipe,
               .params =
                   [](const OpCall& call, codegen::ParamValue* params) {
                     params[0].i = call.attrs.as<BandAttrs>().columns.value();
                     params[1].i = call.attrs.as<BandAttrs>().diagonal;
                     return 2;
                   }},
    .sharding = all_dims_sharding,
    .local_attrs =
        [](const OpCall& call, const LocalBox& part) {
          BandAttrs a = call.attrs.as<BandAttrs>();
          a.diagonal += part.offsets[0] - part.offsets[1];
          a.rows = part.sizes[0];
          a.columns = part.sizes[1];
          return Attrs::of(a);
        },
    .samples = band_samples,
    .tolerance = {.f32 = 0, .f64 = 0},
};

Tensor band(SymInt rows, SymInt columns, int64_t diagonal, Band kind, DType dtype, const char* where) {
  TUTTI_CHECK(rows >= 0 && columns >= 0, "{}: sizes [{}, {}] hold a negative size", where, rows, columns);
  return apply1(kBand, {}, Attrs::of(BandAttrs{rows, columns, diagonal, kind, dtype}));
}

}  // namespace

Tensor full(const Shape& sizes, double value, DType dtype) {
  for (const SymInt size : sizes) TUTTI_CHECK(size >= 0, "full: sizes {} hold a negative size", sizes);
  return apply1(kFull, {}, Attrs::of(FullAttrs{sizes, value, dtype}));
}
Tensor zeros(const Shape& sizes, DType dtype) { return full(sizes, 0.0, dtype); }
Tensor ones(const Shape& sizes, DType dtype) { return full(sizes, 1.0, dtype); }
Tensor full_beside(const Tensor& operand, const Shape& sizes, double value, DType dtype) {
  // Beside a distributed tensor every rank has the number, and none all of the elements.
  if ((operand.stages() & mask_of(StagePlace::sharding)) != 0)
    return beside(operand, expand(full({}, value, dtype), sizes));
  return to_device(full(sizes, value, dtype), operand.device());
}
Tensor full_like(const Tensor& x, double value) { return full_beside(x, x.sizes(), value, x.dtype()); }
Tensor zeros_like(const Tensor& x) { return full_like(x, 0.0); }
Tensor ones_like(const Tensor& x) { return full_like(x, 1.0); }

Tensor arange(SymInt start, SymInt end, int64_t step, DType dtype) {
  TUTTI_CHECK(step != 0, "arange: the step from {} to {} is 0; give a positive or negative one", start, end);
  const SymInt span = step > 0 ? end - start : start - end, stride = step > 0 ? step : -step;
  const SymInt count = span <= 0 ? SymInt(0) : stride == 1 ? span : floordiv(span + stride - 1, stride);
  return apply1(kArange, {}, Attrs::of(ArangeAttrs{count, start, step, dtype}));
}
Tensor arange(SymInt end) { return arange(0, end); }

Tensor eye(SymInt rows, SymInt columns, DType dtype) {
  return band(rows, columns < 0 ? rows : columns, 0, Band::equal, dtype, "eye");
}
Tensor tril_mask(SymInt rows, SymInt columns, int64_t diagonal) {
  return band(rows, columns, diagonal, Band::lower, DType::boolean, "tril_mask");
}
Tensor triu_mask(SymInt rows, SymInt columns, int64_t diagonal) {
  return band(rows, columns, diagonal, Band::upper, DType::boolean, "triu_mask");
}

}  // namespace tutti

TUTTI_OPS(creation, &kFull, &kArange, &kBand)
