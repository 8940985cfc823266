#include "tutti/codegen/kernel_cache.h"

#include <chrono>
#include <optional>
#include <utility>

#include "tutti/codegen/compiler_plugin.h"
#include "tutti/codegen/generator_fingerprint.h"
#include "tutti/codegen/kernel_check.h"
#include "tutti/codegen/kernel_requests.h"
#include "tutti/codegen/llvm/plugin.h"
#include "tutti/codegen/object_loader.h"

namespace tutti::codegen {

KernelCache::Slot& KernelCache::slot(const NameView& name) {
  {
    const std::shared_lock guard(mutex_);
    if (const auto it = slots_.find(name); it != slots_.end()) return *it->second;
  }
  const std::unique_lock guard(mutex_);
  std::unique_ptr<Slot>& made = slots_[Name(name)];
  if (!made) made = std::make_unique<Slot>();
  return *made;
}

const Kernel& KernelCache::get(const KernelSpec& spec, Target target) {
  KernelRequests::note(spec);
  if (target.device == DeviceKind::cpu) target = without_dots(cpu_target_of(target));
  return get(spec.key(), spec.name, target, [&] {
    check_kernel(spec);
    return compile_object(spec, target);
  });
}

const Kernel& KernelCache::get(std::string_view spec_key, const std::string& name, Target target,
                               FunctionRef<std::string()> compile) {
  const NameView view{.spec_key = spec_key, .target = target};
  Slot& place = slot(view);
  if (const Kernel* kernel = place.ready.load(std::memory_order_acquire)) {
    memory_hits_.fetch_add(1, std::memory_order_relaxed);
    return *kernel;
  }
  const std::lock_guard guard(place.mutex);
  if (place.kernel) {  // another thread made it while this one waited
    memory_hits_.fetch_add(1, std::memory_order_relaxed);
    return *place.kernel;
  }
  NoNewKernels::refuse(name, target);
  place.kernel =
      std::make_unique<const Kernel>(make({view.hash, spec_key, target, generator_fingerprint()}, name, compile));
  place.ready.store(place.kernel.get(), std::memory_order_release);
  return *place.kernel;
}

void KernelCache::provide(std::string_view spec_key, const std::string& name, Target target, KernelEntry entry) {
  Slot& place = slot({.spec_key = spec_key, .target = target});
  const std::lock_guard guard(place.mutex);
  if (place.kernel) return;
  place.kernel = std::make_unique<const Kernel>(Kernel{entry, name, 0.0});
  place.ready.store(place.kernel.get(), std::memory_order_release);
}

CodeBlob KernelCache::code(const KernelSpec& spec, Target target) {
  target = without_dots(cpu_target_of(target));
  return code(spec.key(), target, [&] {
    check_kernel(spec);
    return compile_object(spec, target);
  });
}

CodeBlob KernelCache::code(std::string_view spec_key, Target target, FunctionRef<std::string()> compile) {
  return find_code({cache_key(spec_key, target), spec_key, target, generator_fingerprint()}, compile).first;
}

std::pair<CodeBlob, double> KernelCache::find_code(CacheEntryName entry, FunctionRef<std::string()> compile) {
  const auto from_disk = [&](CodeBlob blob) {
    const std::lock_guard guard(statistics_mutex_);
    ++statistics_.disk_hits;
    return std::pair(std::move(blob), 0.0);
  };
  if (auto blob = disk_.read(entry)) return from_disk(std::move(*blob));
  const CacheLock lock = disk_.lock(entry.key);
  if (auto blob = disk_.read(entry)) return from_disk(std::move(*blob));

  const auto start = std::chrono::steady_clock::now();
  CodeBlob blob = link_object(compile(), kKernelEntryName);
  const std::chrono::duration<double, std::milli> elapsed = std::chrono::steady_clock::now() - start;
  disk_.write(entry, blob);
  const std::lock_guard guard(statistics_mutex_);
  ++statistics_.compiled;
  statistics_.compile_ms += elapsed.count();
  return {std::move(blob), elapsed.count()};
}

Kernel KernelCache::make(CacheEntryName entry, const std::string& name, FunctionRef<std::string()> compile) {
  const auto [blob, compile_ms] = find_code(entry, compile);
  return {map_code(blob.bytes, blob.entry), name, compile_ms};
}

CacheStatistics KernelCache::statistics() const {
  const std::lock_guard guard(statistics_mutex_);
  CacheStatistics all = statistics_;
  all.memory_hits = memory_hits_.load(std::memory_order_relaxed);
  return all;
}

KernelCache& process_kernel_cache() {
  static KernelCache* const cache = new KernelCache(disk_cache_options_from_environment());  // outlives all threads
  return *cache;
}

const Kernel& compile_for(const KernelSpec& spec, Target target) { return process_kernel_cache().get(spec, target); }
const Kernel& kernel_for(const KernelSpec& spec) { return compile_for(spec, cpu_target()); }
CacheStatistics cache_statistics() { return process_kernel_cache().statistics(); }

}  // namespace tutti::codegen
