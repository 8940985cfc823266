// Functions with registers of 512 bits in files that are compiled for processors without them. They are called only
// where has_wide_registers(cpu_target()); what is to be inlined into them, a lambda too, needs the attribute itself.
// Private to codegen.
#pragma once

#include <immintrin.h>

#define TUTTI_WIDE gnu::target("avx512f,avx512bw,avx512vl,avx512dq")

// GCC's own intrinsics leave what a mask of ones overwrites without a value.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
