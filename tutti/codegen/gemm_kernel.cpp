#include "tutti/codegen/gemm_kernel.h"

#include <array>
#include <atomic>

#include "tutti/codegen/compiler_plugin.h"
#include "tutti/codegen/kernel_cache.h"

namespace tutti::codegen {
namespace {

// Shapes that are looked up without hashing: a small GEMM takes a few microseconds.
constexpr int kRows = 16, kVectors = 9, kStorages = 5, kComputes = 3, kTargets = 2;
using EntryTable = std::array<std::atomic<GemmTileEntry>, kTargets * kStorages * kComputes * kRows * kVectors>;

// f64, f32, bf16, f16, and pairs of integers behind them.
size_t place_of(DType dtype, int pairs) { return dtype == DType::i32 ? static_cast<size_t>(pairs) : static_cast<size_t>(dtype); }

size_t table_index(const GemmKernelSpec& spec, CpuTarget target) {
  size_t index = static_cast<size_t>(target);
  index = index * kStorages + place_of(spec.b_storage, kStorages - 1);
  index = index * kComputes + place_of(spec.compute, kComputes - 1);
  index = index * kRows + static_cast<size_t>(spec.rows);
  return index * kVectors + static_cast<size_t>(spec.vectors);
}

void check(const GemmKernelSpec& spec) {
  const bool is_float = spec.compute <= DType::f32 && spec.b_storage <= DType::f16;
  TUTTI_ASSERT((is_float || spec.compute == DType::i32) && compute_dtype(spec.b_storage) == spec.compute && spec.rows >= 1 && spec.rows < kRows &&
                   spec.vectors >= 1 && spec.vectors < kVectors,
               "no such GEMM tile: {}", spec.name());
}

}  // namespace

std::string GemmKernelSpec::key() const {
  return {'g',
          'e',
          'm',
          'm',
          static_cast<char>(compute),
          static_cast<char>(b_storage),
          static_cast<char>(rows),
          static_cast<char>(vectors)};
}

std::string GemmKernelSpec::name() const {
  return fmt::format("gemm_{}_{}_{}x{}v", name_of(compute), name_of(b_storage), rows, vectors);
}

GemmTileEntry gemm_tile_for(const GemmKernelSpec& spec, CpuTarget target) {
  static EntryTable table{};
  check(spec);
  std::atomic<GemmTileEntry>& known = table[table_index(spec, target)];
  if (const GemmTileEntry entry = known.load(std::memory_order_acquire)) return entry;
  const Kernel& kernel =
      process_kernel_cache().get(spec.key(), spec.name(), target, [&] { return compile_object(spec, target); });
  const auto entry = reinterpret_cast<GemmTileEntry>(kernel.entry);
  known.store(entry, std::memory_order_release);
  return entry;
}

}  // namespace tutti::codegen
