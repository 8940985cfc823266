// The floating-point environment that kernels require: round to nearest even, denormals kept, exceptions masked
// (numerics contract, N8). Other libraries in the process may have changed it, so every eager call checks it.
#pragma once

namespace tutti {

// Control bits of processors (x86) that read and write denormals as zero, in chains of bf16 products alone (numerics
// contract, N3).
inline constexpr unsigned kFlushDenormals = 0x8040;

// Sets the kernel environment for the calling thread.
void set_fp_environment();

// Whether the calling thread has the kernel environment.
bool has_fp_environment();

// Sets the kernel environment for the calling thread while the scope lives, then restores the previous one.
class FpEnvironmentScope {
 public:
  FpEnvironmentScope();
  ~FpEnvironmentScope();
  FpEnvironmentScope(const FpEnvironmentScope&) = delete;
  FpEnvironmentScope& operator=(const FpEnvironmentScope&) = delete;

 private:
  unsigned previous_;
  bool changed_;
};

}  // namespace tutti
