#include "tutti/runtime/numerics.h"

#include <atomic>

#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

struct RankNumerics {
  std::atomic<NumericsMode> mode{NumericsMode::strict};
  std::atomic<int> strict_scopes{0};
};

RankNumerics& of_rank() { return RankContext::current().slot<RankNumerics>(); }

}  // namespace

NumericsMode numerics_mode() {
  const RankNumerics& rank = of_rank();
  return rank.strict_scopes > 0 ? NumericsMode::strict : rank.mode.load();
}
void set_numerics_mode(NumericsMode mode) { of_rank().mode = mode; }

StrictScope::StrictScope() : rank_(&of_rank()) { ++static_cast<RankNumerics*>(rank_)->strict_scopes; }
StrictScope::~StrictScope() { --static_cast<RankNumerics*>(rank_)->strict_scopes; }

NumericsScope::NumericsScope(NumericsMode mode) : before_(of_rank().mode) { set_numerics_mode(mode); }

}  // namespace tutti
