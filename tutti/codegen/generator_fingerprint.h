// The name of the code generator in caches: the program knows it without looking for libtutti_llvm.so.
#pragma once

#include <cstdint>

namespace tutti::codegen {

// A hash of everything that decides which machine code the generator of this build makes: its sources, the compiler
// that built it, LLVM (cmake/TuttiGeneratorFingerprint.cmake). The program and libtutti_llvm.so each have their own;
// they are equal when both come from the same sources.
uint64_t generator_fingerprint();

}  // namespace tutti::codegen
