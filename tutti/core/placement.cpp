#include "tutti/core/placement.h"

#include <array>
#include <vector>

#include "tutti/core/error.h"

namespace tutti {

static constexpr std::array<std::string_view, kNumPartialOps> kNames = {"sum",  "avg",  "max", "min",
                                                                        "prod", "band", "bor", "bxor"};

std::string_view name_of(PartialOp op) { return kNames[static_cast<size_t>(op)]; }

PartialOp partial_op_from_name(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<PartialOp>(i);
  }
  const std::vector<std::string> known(kNames.begin(), kNames.end());
  throw UsageError(unknown_name_message("partial operation", name, known));
}

std::string to_string(const Placement& p) {
  if (p.is_replicate()) return "R";
  if (p.is_partial()) return fmt::format("P({})", name_of(p.op()));
  return p.pieces() == 1 ? fmt::format("S({})", p.dim()) : fmt::format("S({}, {} pieces)", p.dim(), p.pieces());
}

}  // namespace tutti
