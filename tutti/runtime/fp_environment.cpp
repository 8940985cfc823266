#include "tutti/runtime/fp_environment.h"

#include <xmmintrin.h>

namespace tutti {
namespace {

constexpr unsigned kDefault = 0x1f80;    // all exceptions masked, round to nearest, no FTZ, no DAZ
constexpr unsigned kStatusFlags = 0x3f;  // sticky exception flags: say nothing about rounding

bool is_kernel_environment(unsigned control) { return (control & ~kStatusFlags) == kDefault; }

}  // namespace

void set_fp_environment() { _mm_setcsr(kDefault); }

bool has_fp_environment() { return is_kernel_environment(_mm_getcsr()); }

FpEnvironmentScope::FpEnvironmentScope() : previous_(_mm_getcsr()), changed_(!is_kernel_environment(previous_)) {
  if (changed_) _mm_setcsr(kDefault);
}

FpEnvironmentScope::~FpEnvironmentScope() {
  if (changed_) _mm_setcsr(previous_);
}

}  // namespace tutti
