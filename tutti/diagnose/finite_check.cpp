#include "tutti/diagnose/finite_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tutti/core/error.h"
#include "tutti/tensor/device_copy.h"

namespace tutti::comm {
namespace {

// The bits that are all set in NaN and infinity. f8e4m3fn has no infinity: only all bits below the sign make its NaN.
template <class T>
struct NotFinite;
#define TUTTI_NOT_FINITE(type, bits, value) \
  template <>                               \
  struct NotFinite<type> {                  \
    using Bits = bits;                      \
    static constexpr Bits kMask = value;    \
  };
TUTTI_NOT_FINITE(double, uint64_t, 0x7ff0'0000'0000'0000)
TUTTI_NOT_FINITE(float, uint32_t, 0x7f80'0000)
TUTTI_NOT_FINITE(bfloat16, uint16_t, 0x7f80)
TUTTI_NOT_FINITE(float16, uint16_t, 0x7c00)
TUTTI_NOT_FINITE(float8_e4m3fn, uint8_t, 0x7f)
TUTTI_NOT_FINITE(float8_e5m2, uint8_t, 0x7c)
#undef TUTTI_NOT_FINITE

// Index of the first such element of a dense array, or n.
template <class T>
int64_t first_not_finite(const void* data, int64_t n) {
  using Bits = typename NotFinite<T>::Bits;
  constexpr Bits mask = NotFinite<T>::kMask;
  const auto is_bad = [bytes = static_cast<const char*>(data)](int64_t i) {
    Bits bits;
    std::memcpy(&bits, bytes + i * static_cast<int64_t>(sizeof bits), sizeof bits);
    return (bits & mask) == mask;
  };
  constexpr int64_t kBlock = 4096;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = std::min(n, begin + kBlock);
    Bits any = 0;  // without branches, so that the loop is done in vectors
    for (int64_t i = begin; i < end; ++i) any |= static_cast<Bits>(is_bad(i));
    if (any == 0) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (is_bad(i)) return i;
    }
  }
  return n;
}

}  // namespace

bool checks_nan_by_default() {
  const char* text = std::getenv("TUTTI_COMM_CHECK_NAN");
  if (text == nullptr || *text == '\0' || std::string_view(text) == "0") return false;
  TUTTI_CHECK(std::string_view(text) == "1", "TUTTI_COMM_CHECK_NAN is '{}'; expected 0 or 1", text);
  return true;
}

void check_finite_before(const Tensor& tensor, std::string_view role, const CallRecord& record, int rank,
                         std::string_view group) {
  if (!tensor.defined() || !is_floating(tensor.dtype()) || tensor.numel() == 0) return;
  const Tensor dense = to_contiguous(to_device(tensor, kCpu));
  visit_dtype(dense.dtype(), [&]<class T>() {
    if constexpr (is_floating(dtype_of<T>)) {
      const int64_t n = dense.numel();
      int64_t at = first_not_finite<T>(dense.raw_data(), n);
      if (at == n) return;
      const double value = load_as_double(static_cast<const T*>(dense.raw_data()) + at, dense.dtype());
      Extents index = dense.extents();
      for (size_t d = index.size(); d-- > 0; at /= dense.extents()[d]) index[d] = at % dense.extents()[d];
      throw UsageError(
          fmt::format("{} #{} of group '{}' on rank {}: the {} has {} at {}; find out where it was computed "
                      "(the check is on because of check_nan or TUTTI_COMM_CHECK_NAN)",
                      describe(record), record.sequence, group, rank, role, value, to_string(index)));
    }
  });
}

}  // namespace tutti::comm
