#include "tutti/core/reduce_op.h"

#include <array>
#include <vector>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

constexpr std::array<std::string_view, kNumReduceKinds> kNames{"sum",  "avg", "product", "min",       "max",
                                                               "band", "bor", "bxor",    "premul_sum"};

bool is_bitwise(ReduceKind kind) {
  return kind == ReduceKind::band || kind == ReduceKind::bor || kind == ReduceKind::bxor;
}

}  // namespace

std::string_view name_of(ReduceKind kind) { return kNames[static_cast<size_t>(kind)]; }

ReduceKind reduce_kind_from_name(std::string_view name) {
  for (size_t k = 0; k < kNames.size(); ++k) {
    if (kNames[k] == name) return static_cast<ReduceKind>(k);
  }
  throw UsageError(unknown_name_message("reduce op", name, std::vector<std::string>(kNames.begin(), kNames.end())));
}

std::string why_not_reducible(ReduceKind kind, DType dtype) {
  if (is_bitwise(kind) && is_floating(dtype)) {
    return fmt::format("{} works on bits and {} is a non-integral dtype", name_of(kind), name_of(dtype));
  }
  if (kind == ReduceKind::avg && dtype == DType::boolean) return "the average of booleans is not a boolean";
  if (kind == ReduceKind::premul_sum && !is_floating(dtype)) {
    return fmt::format("premul_sum scales by a real number and {} is no floating dtype", name_of(dtype));
  }
  return "";
}

}  // namespace tutti::comm
