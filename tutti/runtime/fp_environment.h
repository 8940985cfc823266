// The floating-point environment kernels are made for: round to nearest even, denormals kept, exceptions masked
// (numerics contract, N8). Other libraries in the process may have changed it, so every eager call checks it.
#pragma once

namespace tutti {

// Gives the calling thread the kernel environment.
void set_fp_environment();

// True when the calling thread has it.
bool has_fp_environment();

// The calling thread has the kernel environment while this lives, and what it had before afterwards.
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
