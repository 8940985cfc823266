#include "tutti/codegen/gemm/kernel.h"

#include <array>
#include <atomic>

#include "tutti/codegen/compiler_plugin.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/code_target.h"
#include "tutti/codegen/kernel_cache.h"

namespace tutti::codegen {
namespace {

// Shapes that are looked up without hashing: a small GEMM takes a few microseconds.
constexpr int kRows = 16, kVectors = 9, kStorages = 5;
using EntryTable =
    std::array<std::atomic<GemmTileEntry>, size_t{kNumCpuTargets} * kStorages * kNumTileKinds * kRows * kVectors>;

// f64, f32, bf16, f16, and integers behind them.
size_t place_of(DType storage) { return storage == DType::i32 ? kStorages - 1 : static_cast<size_t>(storage); }

size_t table_index(const GemmKernelSpec& spec, CpuTarget target) {
  size_t index = static_cast<size_t>(target);
  index = index * kStorages + place_of(spec.b_storage);
  index = index * kNumTileKinds + static_cast<size_t>(spec.kind);
  index = index * kRows + static_cast<size_t>(spec.rows);
  return index * kVectors + static_cast<size_t>(spec.vectors);
}

bool can_be_in_place(TileKind kind, DType storage) {
  if (takes_pairs(kind)) return storage == DType::bf16;
  return kind == TileKind::f32 && (storage == DType::bf16 || storage == DType::f16);
}

void check(const GemmKernelSpec& spec, CpuTarget target) {
  const bool has_units = spec.kind != TileKind::bf16_pairs || target == CpuTarget::avx512bf16;
  TUTTI_ASSERT((spec.b_storage == packed_dtype(spec.kind) || can_be_in_place(spec.kind, spec.b_storage)) && has_units &&
                   spec.rows >= 1 && spec.rows < kRows && spec.vectors >= 1 && spec.vectors < kVectors,
               "no such GEMM tile: {} on {}", spec.name(), name_of(target));
}

constexpr const char* kKindNames[kNumTileKinds] = {"f64",        "f32",         "bf16_chain",
                                                   "bf16_pairs", "int16_pairs", "int8_quads"};

}  // namespace

std::string GemmKernelSpec::key() const {
  return {'g',
          'e',
          'm',
          'm',
          static_cast<char>(kind),
          static_cast<char>(b_storage),
          static_cast<char>(rows),
          static_cast<char>(vectors)};
}

std::string GemmKernelSpec::name() const {
  return fmt::format("gemm_{}_{}_{}x{}v", kKindNames[static_cast<size_t>(kind)], name_of(b_storage), rows, vectors);
}

GemmTileEntry gemm_tile_for(const GemmKernelSpec& spec, CpuTarget asked) {
  static EntryTable table{};
  const CpuTarget target = code_target_of(spec.kind, asked);
  check(spec, target);
  std::atomic<GemmTileEntry>& known = table[table_index(spec, target)];
  if (const GemmTileEntry entry = known.load(std::memory_order_acquire)) return entry;
  const Kernel& kernel =
      process_kernel_cache().get(spec.key(), spec.name(), target, [&] { return compile_object(spec, target); });
  const auto entry = reinterpret_cast<GemmTileEntry>(kernel.entry);
  known.store(entry, std::memory_order_release);
  return entry;
}

}  // namespace tutti::codegen
