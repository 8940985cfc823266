#include "tutti/runtime/trace/kernel_info.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <mutex>

namespace tutti {
namespace {

// All facts, so that graphs that share a compiled kernel keep their own provenance.
std::string key_of(const KernelInfo& info) {
  constexpr char kEnd = '\0';
  std::string key;
  const auto put = [&key](std::string_view text) { (key += text) += kEnd; };
  put(info.kernel_id);
  put(info.graph_key);
  for (const KernelOp& op : info.ops) put(fmt::format("{}#{}", op.name, op.node));
  put("");
  for (const std::string& line : info.stack) put(line);
  put("");
  put(info.module_path);
  put(info.phase ? name_of(*info.phase) : "");
  put(fmt::format("{} {}", info.bytes, info.flops));
  put(info.choice);
  put(info.specialization);
  return key;
}

}  // namespace

const TraceKernel& intern_kernel(const KernelInfo& info) {
  static std::mutex mutex;
  static auto* kernels = new std::map<std::string, std::unique_ptr<const TraceKernel>>;  // outlives all threads
  const std::string key = key_of(info);
  const std::lock_guard lock(mutex);
  std::unique_ptr<const TraceKernel>& kernel = (*kernels)[key];
  if (!kernel) kernel = std::make_unique<const TraceKernel>(info);
  return *kernel;
}

}  // namespace tutti
