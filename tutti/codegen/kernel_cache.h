// The kernels of this process: compiled or read once, then kept. Several threads asking for one kernel wait for a
// single compilation; so do several processes, through the disk cache.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "tutti/codegen/disk_cache.h"
#include "tutti/codegen/kernel.h"
#include "tutti/codegen/target.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::codegen {

class KernelCache {
 public:
  explicit KernelCache(DiskCacheOptions options) : disk_(std::move(options)) {}

  // Any thread. Errors of the compilation reach every thread that waits for it; the next call tries again.
  const Kernel& get(const KernelSpec& spec, Target target);
  // The same for any other kind of kernel: `key` is all that determines its machine code, `compile` gives the object.
  const Kernel& get(std::string_view key, const std::string& name, Target target, FunctionRef<std::string()> compile);
  // The code of a kernel, which the machine need not be able to run: from disk, else compiled. It is not mapped.
  CodeBlob code(const KernelSpec& spec, Target target);
  CodeBlob code(std::string_view key, Target target, FunctionRef<std::string()> compile);
  // From now on the kernel of this key is `entry`, code from elsewhere that lives as long as the process and was made
  // by the generator of this build. A kernel that is there already stays.
  void provide(std::string_view key, const std::string& name, Target target, KernelEntry entry);
  CacheStatistics statistics() const;

 private:
  struct Slot {
    std::mutex mutex;
    std::unique_ptr<const Kernel> kernel;  // guarded by mutex until `ready`
    std::atomic<const Kernel*> ready = nullptr;
  };

  // A kernel by all that determines its machine code.
  struct NameView {
    std::string_view spec_key;
    Target target;
    CacheKey hash = cache_key(spec_key, target);
  };
  struct Name {
    explicit Name(const NameView& view) : spec_key(view.spec_key), target(view.target), hash(view.hash) {}
    std::string spec_key;
    Target target;
    CacheKey hash;
  };
  // Not noexcept on purpose: the table then keeps the hash beside each entry.
  struct HashOfName {
    using is_transparent = void;
    size_t operator()(const auto& name) const { return static_cast<size_t>(name.hash.low); }
  };
  struct EqualNames {
    using is_transparent = void;
    bool operator()(const auto& a, const auto& b) const {
      return a.hash == b.hash && a.target == b.target && a.spec_key == b.spec_key;
    }
  };

  Slot& slot(const NameView& name);
  Kernel make(CacheEntryName entry, const std::string& name, FunctionRef<std::string()> compile);
  // The code of an entry, and the milliseconds that it took to compile it; 0 when it came from disk.
  std::pair<CodeBlob, double> find_code(CacheEntryName entry, FunctionRef<std::string()> compile);

  DiskCache disk_;
  mutable std::shared_mutex mutex_;  // of slots_
  std::unordered_map<Name, std::unique_ptr<Slot>, HashOfName, EqualNames> slots_;
  std::atomic<int64_t> memory_hits_ = 0;
  mutable std::mutex statistics_mutex_;
  CacheStatistics statistics_;  // all but memory_hits
};

// The cache behind kernel_for.
KernelCache& process_kernel_cache();

// kernel_for with a chosen target, whose instructions the machine must have.
const Kernel& compile_for(const KernelSpec& spec, Target target);

}  // namespace tutti::codegen
