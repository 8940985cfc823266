// The kernels that products and attention ask for while they run: which they are follows from dtypes and instruction
// sets, not from sizes alone, so they can be listed before.
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tutti/codegen/attention_kernel.h"
#include "tutti/codegen/gemm/kernel.h"
#include "tutti/codegen/object_loader.h"

namespace tutti::codegen {

struct LibraryKernelSpec {
  std::variant<GemmKernelSpec, AttentionKernelSpec> spec;
  CpuTarget target;  // that its code is compiled for

  std::string key() const;
  std::string name() const;
};

// Every kernel that gemm(), int8_gemm(), tile products and attention can ask for on a processor with `level`, where all
// operands have one of `dtypes`: each tile that a cut may choose, each step of attention and of its gradient.
std::vector<LibraryKernelSpec> library_kernels(std::span<const DType> dtypes, CpuTarget level);

// The code of such a kernel: from the disk cache, else compiled.
CodeBlob library_code(const LibraryKernelSpec& kernel);

}  // namespace tutti::codegen
