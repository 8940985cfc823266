// A library in the place of libtutti_llvm.so that says it was made from other sources.
#include <cstdint>

extern "C" __attribute__((visibility("default"))) uint64_t tutti_llvm_fingerprint() { return 0x0123456789abcdef; }
