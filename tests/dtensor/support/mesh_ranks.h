// Ranks as threads, each with a mesh of all of them, and tensors to try things on.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/message_of.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/dist/dtensor.h"
#include "tutti/tensor/tensor.h"

namespace tutti::dist {

inline int64_t ranks_of(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (const int64_t s : shape) n *= s;
  return n;
}

// Runs fn on as many ranks as the mesh has. A failed expectation or exception of any rank fails the test.
inline void on_mesh(const std::vector<int64_t>& shape, const std::function<void(const Mesh&)>& fn,
                    const MeshOptions& options = {}) {
  comm::run_ranks(static_cast<int>(ranks_of(shape)),
                  [&](comm::ProcessGroup&) { fn(init_device_mesh("cpu", shape, options)); });
}

// Throws unless `difference` is "": a rank that only returned would leave the others waiting for it.
inline void require_none(const std::string& difference, const std::string& about) {
  if (!difference.empty()) throw std::logic_error(difference + "; " + about);
}

// Distinct values whose sums depend on the order in which they are added.
Tensor sample(const Extents& sizes, DType dtype = DType::f32, uint64_t seed = 1);
// Whether two plain tensors have equal sizes, dtypes and bits; both may have any strides.
bool same_bits(const Tensor& a, const Tensor& b);
// Their difference as text, for messages.
std::string difference(const Tensor& a, const Tensor& b);

}  // namespace tutti::dist

// The statement throws a UsageError whose text has this part.
#define EXPECT_USAGE_ERROR(statement, part)                                             \
  do {                                                                                  \
    const std::string said_ = tutti::message_of([&] { static_cast<void>(statement); }); \
    EXPECT_NE(said_.find(part), std::string::npos)                                      \
        << #statement " says\n'" << said_ << "', which lacks '" << (part) << "'";       \
  } while (0)
