// The sources of the code generator: what those who exchange machine code, and not caches, must have in common.
#pragma once

#include <cstdint>

namespace tutti::codegen {

// A hash of the sources of the generator (cmake/TuttiGeneratorFingerprint.cmake), whichever compiler and LLVM built it:
// kernels of equal sources are called alike and have the same bits. See generator_fingerprint() for caches.
uint64_t generator_sources();

}  // namespace tutti::codegen
