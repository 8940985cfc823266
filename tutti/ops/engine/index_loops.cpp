#include "tutti/ops/engine/index_loops.h"

#include <cstring>

#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::facets {

void for_each_index(const Extents& sizes, const std::function<void(const Extents&)>& visit) {
  if (numel_of(sizes) == 0) return;
  Extents at(sizes.size(), 0);
  while (true) {
    visit(at);
    int d = sizes.ndim() - 1;
    while (d >= 0 && ++at[static_cast<size_t>(d)] == sizes[static_cast<size_t>(d)]) at[static_cast<size_t>(d--)] = 0;
    if (d < 0) return;
  }
}

int64_t offset_at(const Tensor& t, const Extents& at) {
  int64_t offset = 0;
  for (size_t d = 0; d < at.size(); ++d) offset += at[d] * t.strides()[d];
  return offset;
}

static char* element(const Tensor& t, const Extents& at) {
  return static_cast<char*>(t.raw_data()) + offset_at(t, at) * itemsize(t.dtype());
}

void move_element(const Tensor& target, const Extents& at_target, const Tensor& source, const Extents& at_source) {
  std::memcpy(element(target, at_target), element(source, at_source), static_cast<size_t>(itemsize(target.dtype())));
}

void fill_elements(const Tensor& target, double value) {
  for (int64_t i = 0; i < target.numel(); ++i) write_double(target, i, value);
}

namespace {

const OpDef kRawCopy{
    .name = "copy",
    .num_inputs = 1,
    .infer = nullptr,
    .recipe = {.build = [](RecipeBuilder& b) { b.out(b.in(0)); }, .moves_bits = true},
};

struct BitsAttrs {
  int64_t bits;  // of each element
  static constexpr auto fields() { return field_list(field::number<&BitsAttrs::bits>("bits")); }
};

const OpDef kRawFill{
    .name = "fill",
    .num_inputs = 0,
    .infer = nullptr,
    .recipe = {.build = [](RecipeBuilder& b) { b.out(b.param(0, b.output_dtypes[0])); },
               .params =
                   [](const OpCall& call, codegen::ParamValue* params) {
                     params[0].i = call.attrs.as<BitsAttrs>().bits;
                     return 1;
                   },
               .moves_bits = true},
};

}  // namespace

void raw_copy(const Tensor& target, const Tensor& source) {
  TUTTI_ASSERT(target.extents() == source.extents() && itemsize(target.dtype()) == itemsize(source.dtype()),
               "raw_copy of {} to {}", describe(source), describe(target));
  if (target.numel() == 0) return;
  run_recipe({kRawCopy, {&source, 1}, Attrs{}}, {&target, 1});
}

void raw_fill(const Tensor& target, double value) {
  if (target.numel() == 0) return;
  const Tensor element = Tensor::empty({}, target.dtype());
  write_double(element, 0, value);
  const Attrs bits =
      Attrs::of(BitsAttrs{load_as_int64(element.raw_data(), recipe_dtype(kRawFill.recipe, target.dtype()))});
  run_recipe({kRawFill, {}, bits}, {&target, 1});
}

std::string dim_letters(int ndim, uint32_t whole) {
  std::string text;
  for (int d = 0; d < ndim; ++d) text += static_cast<char>((whole >> d & 1 ? 'A' : 'a') + d);
  return text;
}

}  // namespace tutti::facets
