#include "tutti/codegen/attention_kernel.h"

#include <array>
#include <atomic>

#include "tutti/codegen/compiler_plugin.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/kernel_cache.h"

namespace tutti::codegen {
namespace {

// Looked up without hashing: a tile of few queries takes a microsecond.
constexpr size_t kSteps = 4, kDTypes = 2, kTargets = 2;
using EntryTable = std::array<std::atomic<AttentionEntry>, kTargets * kDTypes * kSteps * 8>;

size_t table_index(const AttentionKernelSpec& spec, CpuTarget target) {
  size_t index = has_wide_registers(target) ? 1 : 0;
  index = index * kDTypes + static_cast<size_t>(spec.compute);
  index = index * kSteps + static_cast<size_t>(spec.step);
  return index * 8 + (spec.capped ? 4 : 0) + (spec.bounded ? 2 : 0) + (spec.biased ? 1 : 0);
}

constexpr const char* kStepNames[] = {"softmax", "combine", "finish", "gradient"};

}  // namespace

std::string AttentionKernelSpec::key() const {
  return {'a',
          't',
          't',
          'n',
          static_cast<char>(step),
          static_cast<char>(compute),
          static_cast<char>(bounded),
          static_cast<char>(biased),
          static_cast<char>(capped)};
}

std::string AttentionKernelSpec::name() const {
  return fmt::format("attention_{}_{}{}{}{}", kStepNames[static_cast<size_t>(step)], name_of(compute),
                     bounded ? "_bounded" : "", biased ? "_biased" : "", capped ? "_capped" : "");
}

AttentionEntry attention_kernel_for(const AttentionKernelSpec& spec, CpuTarget asked) {
  static EntryTable table{};
  const CpuTarget target = without_dots(asked);
  TUTTI_ASSERT(spec.compute <= DType::f32, "attention computes in f32 or f64, not {}", name_of(spec.compute));
  std::atomic<AttentionEntry>& known = table[table_index(spec, target)];
  if (const AttentionEntry entry = known.load(std::memory_order_acquire)) return entry;
  const Kernel& kernel =
      process_kernel_cache().get(spec.key(), spec.name(), target, [&] { return compile_object(spec, target); });
  const auto entry = reinterpret_cast<AttentionEntry>(kernel.entry);
  known.store(entry, std::memory_order_release);
  return entry;
}

}  // namespace tutti::codegen
