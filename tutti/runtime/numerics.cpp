#include "tutti/runtime/numerics.h"

#include <atomic>

#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

struct RankNumerics {
  std::atomic<NumericsMode> mode{NumericsMode::strict};
};

}  // namespace

NumericsMode numerics_mode() { return RankContext::current().slot<RankNumerics>().mode; }
void set_numerics_mode(NumericsMode mode) { RankContext::current().slot<RankNumerics>().mode = mode; }

}  // namespace tutti
