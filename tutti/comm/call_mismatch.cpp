#include "tutti/comm/call_mismatch.h"

#include <algorithm>

namespace tutti::comm {
namespace {

// Whether two calls of several tensors are equal but for the tensors.
bool differs_in_tensors_only(const CallRecord& a, const CallRecord& b) {
  if (a.tensors < 2 || a.tensors != b.tensors || a.same_sizes != b.same_sizes) return false;
  CallRecord like_a = b;
  like_a.dtype = a.dtype;
  like_a.ndim = a.ndim;
  std::copy(std::begin(a.sizes), std::end(a.sizes), like_a.sizes);
  like_a.splits = a.splits;
  return !differing_field(a, like_a);
}

}  // namespace

void throw_mismatch(const std::string& group, std::span<const CallRecord> records) {
  for (size_t r = 0; r < records.size(); ++r) {
    if (records[r].is_refused)
      throw RefusedCallError(
          fmt::format("collective #{} of group '{}': rank {} refused its call", records[r].sequence, group, r));
  }
  const std::string text = mismatch_message(group, records);
  const bool in_lists = std::all_of(records.begin(), records.end(),
                                    [&](const CallRecord& r) { return differs_in_tensors_only(records[0], r); });
  if (in_lists) throw ListMismatchError(text);
  throw UsageError(text);
}

}  // namespace tutti::comm
