// The machine code of a package: which kernels it has for which instruction sets, and the code once it is mapped.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tutti/codegen/kernel.h"
#include "tutti/codegen/object_loader.h"
#include "tutti/deploy/section_file.h"

namespace tutti::deploy {

struct PackagedKernel {
  std::string key, name;
  codegen::CpuTarget target;       // that its code is compiled for
  uint64_t first = 0, nbytes = 0;  // in the section of code of that target
  uint64_t entry = 0;              // from `first`
};

// Collects code while a package is written.
class CodeWriter {
 public:
  void add(const std::string& key, const std::string& name, codegen::CpuTarget target, const codegen::CodeBlob& blob);
  std::string table() const;  // the section of kernels
  const std::map<codegen::CpuTarget, std::string>& code() const { return code_; }
  size_t num_kernels() const { return kernels_.size(); }

 private:
  std::vector<PackagedKernel> kernels_;
  std::map<std::pair<std::string, codegen::CpuTarget>, size_t> known_;
  std::map<codegen::CpuTarget, std::string> code_;
};

// The kernels in the section of kernels. PackageError when one is not within the code of its target.
std::vector<PackagedKernel> kernels_of(const SectionFile& file);

// Maps the code that a processor of `level` runs, read-only and executable, for the life of the process, and gives all
// of it to the kernel cache of the process. A second package with the same code shares it. Returns the kernels of the
// level by key.
std::map<std::string, codegen::Kernel> map_kernels(const SectionFile& file, std::span<const PackagedKernel> kernels,
                                                   codegen::CpuTarget level);

}  // namespace tutti::deploy
