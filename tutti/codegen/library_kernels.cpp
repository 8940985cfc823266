#include "tutti/codegen/library_kernels.h"

#include <algorithm>

#include "tutti/codegen/compiler_plugin.h"
#include "tutti/codegen/gemm/code_target.h"
#include "tutti/codegen/gemm/cut.h"
#include "tutti/codegen/gemm/int8.h"
#include "tutti/codegen/kernel_cache.h"

namespace tutti::codegen {
namespace {

// Strips of a cut have at most most_rows() rows, and its panels at most most_vectors() registers for the rows of its
// largest strip; a smaller strip may have as many.
void add_tiles(TileKind kind, DType b_storage, CpuTarget level, std::vector<LibraryKernelSpec>& list) {
  for (int32_t rows = 1; rows <= most_rows(level); ++rows) {
    for (int32_t vectors = 1; vectors <= most_vectors(level, rows); ++vectors)
      list.push_back({GemmKernelSpec{kind, b_storage, rows, vectors}, code_target_of(kind, level)});
  }
}

void add_attention(DType compute, CpuTarget level, std::vector<LibraryKernelSpec>& list) {
  const CpuTarget target = without_dots(level);
  for (const AttentionStep step : {AttentionStep::softmax, AttentionStep::gradient}) {
    for (const bool bounded : {false, true}) {
      for (const bool biased : {false, true}) {
        for (const bool capped : {false, true})
          list.push_back({AttentionKernelSpec{step, compute, bounded, biased, capped}, target});
      }
    }
  }
  for (const AttentionStep step : {AttentionStep::combine, AttentionStep::finish})
    list.push_back({AttentionKernelSpec{step, compute}, target});
}

}  // namespace

std::string LibraryKernelSpec::key() const {
  return std::visit([](const auto& s) { return s.key(); }, spec);
}
std::string LibraryKernelSpec::name() const {
  return std::visit([](const auto& s) { return s.name(); }, spec);
}

std::vector<LibraryKernelSpec> library_kernels(std::span<const DType> dtypes, CpuTarget level) {
  const auto has = [&](std::initializer_list<DType> any) {
    return std::find_first_of(dtypes.begin(), dtypes.end(), any.begin(), any.end()) != dtypes.end();
  };
  std::vector<LibraryKernelSpec> list;
  if (has({DType::f32, DType::bf16, DType::f16, DType::f8e4m3fn, DType::f8e5m2})) {
    add_tiles(TileKind::f32, DType::f32, level, list);
    for (const DType storage : {DType::bf16, DType::f16}) {
      if (has({storage})) add_tiles(TileKind::f32, storage, level, list);
    }
    add_attention(DType::f32, level, list);
  }
  if (has({DType::bf16})) {
    const TileKind kind = tile_kind(DType::bf16, level);
    add_tiles(kind, packed_dtype(kind), level, list);
    add_tiles(kind, DType::bf16, level, list);
  }
  if (has({DType::f64})) {
    add_tiles(TileKind::f64, DType::f64, level, list);
    add_attention(DType::f64, level, list);
  }
  if (has({DType::i8, DType::u8})) {
    const TileKind kind = int8_items(level) == Int8Items::quads ? TileKind::int8_quads : TileKind::int16_pairs;
    add_tiles(kind, packed_dtype(kind), level, list);
  }
  return list;
}

CodeBlob library_code(const LibraryKernelSpec& kernel) {
  return std::visit(
      [&](const auto& spec) {
        return process_kernel_cache().code(spec.key(), kernel.target,
                                           [&] { return compile_object(spec, kernel.target); });
      },
      kernel.spec);
}

}  // namespace tutti::codegen
