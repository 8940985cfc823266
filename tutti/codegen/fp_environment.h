// The floating-point environment kernels are made for: round to nearest even, denormals kept, exceptions masked.
//
// Kernels neither set nor check it: that would cost more than a small kernel. Every thread that calls kernels does,
// once, before its first call (numerics contract, N8); libraries in the same process may have changed it.
#pragma once

namespace tutti::codegen {

// Gives the calling thread the kernel environment.
void set_fp_environment();

// True when the calling thread has it.
bool has_fp_environment();

}  // namespace tutti::codegen
