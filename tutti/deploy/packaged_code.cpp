#include "tutti/deploy/packaged_code.h"

#include <mutex>
#include <set>

#include "tutti/codegen/gemm/code_target.h"
#include "tutti/codegen/kernel_cache.h"
#include "tutti/deploy/byte_stream.h"

namespace tutti::deploy {
namespace {

constexpr size_t kAlignment = 64;  // the largest of a register, for what kernels load from beside their code

// The code of a section, mapped: once for all packages that have these bytes. Code that threads may be running stays.
const char* mapped(const Section& section) {
  static std::mutex mutex;
  static std::set<std::string_view> images;
  const std::lock_guard lock(mutex);
  const auto it = images.find(section.bytes);
  if (it != images.end()) return it->data();
  const auto* image = reinterpret_cast<const char*>(codegen::map_code(section.bytes, 0));
  images.emplace(image, section.bytes.size());
  return image;
}

}  // namespace

void CodeWriter::add(const std::string& key, const std::string& name, codegen::CpuTarget target,
                     const codegen::CodeBlob& blob) {
  if (!known_.emplace(std::pair(key, target), kernels_.size()).second) return;
  std::string& code = code_[target];
  code.resize((code.size() + kAlignment - 1) / kAlignment * kAlignment);
  kernels_.push_back({key, name, target, code.size(), blob.bytes.size(), blob.entry});
  code += blob.bytes;
}

std::string CodeWriter::table() const {
  ByteWriter out;
  out.put(static_cast<uint64_t>(kernels_.size()));
  for (const PackagedKernel& k : kernels_) {
    out.put_text(k.key), out.put_text(k.name);
    out.put(k.target), out.put(k.first), out.put(k.nbytes), out.put(k.entry);
  }
  return out.take();
}

std::vector<PackagedKernel> kernels_of(const SectionFile& file) {
  ByteReader in(file.get(SectionKind::kernels).bytes, "kernels");
  std::vector<PackagedKernel> kernels;
  for (size_t count = in.get_count(41); count > 0; --count) {
    PackagedKernel k;
    k.key = in.get_text(), k.name = in.get_text();
    k.target = in.get_up_to(codegen::CpuTarget::avx512bf16);
    k.first = in.get<uint64_t>(), k.nbytes = in.get<uint64_t>(), k.entry = in.get<uint64_t>();
    const Section* code = file.find(SectionKind::code, k.target);
    const size_t size = code == nullptr ? 0 : code->bytes.size();
    TUTTI_CHECK_PACKAGE(
        k.first <= size && k.nbytes <= size - k.first && k.entry < k.nbytes && k.first % kAlignment == 0,
        "the kernel {} of the package is not within the code for {}", k.name, name_of(k.target));
    kernels.push_back(std::move(k));
  }
  in.at_end();
  return kernels;
}

std::map<std::string, codegen::Kernel> map_kernels(const SectionFile& file, std::span<const PackagedKernel> kernels,
                                                   codegen::CpuTarget level) {
  std::map<std::string, codegen::Kernel> mapped_kernels;
  for (const PackagedKernel& k : kernels) {
    if (!codegen::is_code_of(level, k.target)) continue;
    const char* image = mapped(*file.find(SectionKind::code, k.target));
    const auto entry = reinterpret_cast<codegen::KernelEntry>(const_cast<char*>(image + k.first + k.entry));
    codegen::process_kernel_cache().provide(k.key, k.name, k.target, entry);
    mapped_kernels.emplace(k.key, codegen::Kernel{entry, k.name, 0.0});
  }
  return mapped_kernels;
}

}  // namespace tutti::deploy
