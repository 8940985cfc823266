#include "tutti/codegen/fp_environment.h"

#include <xmmintrin.h>

namespace tutti::codegen {
namespace {

constexpr unsigned kDefault = 0x1f80;    // all exceptions masked, round to nearest, no FTZ, no DAZ
constexpr unsigned kStatusFlags = 0x3f;  // sticky exception flags: say nothing about rounding

}  // namespace

void set_fp_environment() { _mm_setcsr(kDefault); }

bool has_fp_environment() { return (_mm_getcsr() & ~kStatusFlags) == kDefault; }

}  // namespace tutti::codegen
