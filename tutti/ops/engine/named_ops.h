// Ops that the row of another table names.
#pragma once

#include <array>
#include <cstddef>

namespace tutti {

struct OpDef;

// A library without ops takes them from a row and drops them, so that they are no part of it.
#ifdef TUTTI_WITHOUT_OPS
template <size_t most>
struct NamedOps {
  template <class... Op>
  constexpr NamedOps(Op...) {}
};
#else
template <size_t most>
using NamedOps = std::array<const OpDef*, most>;
#endif

}  // namespace tutti
