// From a relocatable ELF object to bytes that run wherever they are mapped.
//
// Kernels call nothing and reference nothing outside their own object, so all relocations are distances between its
// sections: once the sections are laid out in one blob, every distance is final. The blob is what the disk cache holds
// and what is mapped; no linker, no dynamic symbol, no LLVM is needed to run it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tutti/codegen/kernel.h"

namespace tutti::codegen {

struct CodeBlob {
  std::string bytes;
  uint64_t entry = 0;  // offset of the kernel's entry point
};

// The blob of an x86-64 relocatable object whose entry is the function `entry_name`.
// InternalError: malformed object, undefined symbol, or a relocation that is not PC-relative.
CodeBlob link_object(std::string_view object, std::string_view entry_name);

// Maps the blob read-only and executable for the life of the process. EnvironmentError when the system refuses.
KernelEntry map_code(std::string_view bytes, uint64_t entry);

}  // namespace tutti::codegen
