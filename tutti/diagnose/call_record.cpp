#include "tutti/diagnose/call_record.h"

#include <algorithm>
#include <cstring>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"

namespace tutti::comm {
namespace {

std::span<const int64_t> sizes_of(const CallRecord& r) {
  return {r.sizes, static_cast<size_t>(r.ndim < 0 ? 0 : r.ndim)};
}

}  // namespace

std::string_view name_of(CollectiveKind kind) { return words_of(kind).name; }

void CallRecord::describe_tensor(DType type, const Extents& extents) {
  dtype = type;
  ndim = static_cast<int8_t>(extents.size());
  for (size_t d = 0; d < extents.size(); ++d) sizes[d] = extents[d];
}

int64_t CallRecord::numel() const {
  int64_t n = 1;
  for (const int64_t size : sizes_of(*this)) n *= size;
  return ndim < 0 ? 0 : n;
}

uint64_t CallRecord::fingerprint() const {
  // Field by field into one dense block: padding bytes of the struct have no value.
  uint64_t words[4 + kMaxRecordDims];
  words[0] = static_cast<uint64_t>(kind) |
             static_cast<uint64_t>(words_of(kind).reduces ? reduce : ReduceKind::sum) << 8 |
             static_cast<uint64_t>(dtype) << 16 | static_cast<uint64_t>(same_sizes ? ndim + 1 : 0) << 24 |
             static_cast<uint64_t>(static_cast<uint32_t>(tensors)) << 32;
  words[1] = static_cast<uint64_t>(static_cast<uint32_t>(root)) | uint64_t{tag} << 32;
  words[2] = static_cast<uint64_t>(sequence) | uint64_t{is_refused} << 63;
  words[3] = splits;
  size_t count = 4;
  if (same_sizes) {
    for (const int64_t size : sizes_of(*this)) words[count++] = static_cast<uint64_t>(size);
  }
  return hash64(words, count * sizeof(uint64_t), 0);
}

std::string describe(const CallRecord& r) {
  const CollectiveWords& words = words_of(r.kind);
  std::string text = fmt::format("{}(", words.name);
  auto add = [&, first = true](const std::string& part) mutable {
    if (!first) text += ", ";
    first = false;
    text += part;
  };
  if (r.ndim >= 0) add(fmt::format("{} [{}]", name_of(r.dtype), fmt::join(sizes_of(r), ", ")));
  if (r.tensors != 1) add(fmt::format("{} tensors", r.tensors));
  if (words.reduces) add(std::string(name_of(r.reduce)));
  if (r.root >= 0) add(fmt::format("{} {}", words.is_message ? "peer" : "root", r.root));
  if (words.is_message) add(fmt::format("tag {}", r.tag));
  return text + ")";
}

std::optional<std::string> differing_field(const CallRecord& a, const CallRecord& b) {
  if (a.kind != b.kind) return "operations";
  if (a.sequence != b.sequence) return "sequence numbers";
  if (words_of(a.kind).reduces && a.reduce != b.reduce) return "reduce ops";
  if (a.root != b.root) return "roots";
  if (a.tag != b.tag) return "tags";
  if (a.tensors != b.tensors) return "numbers of tensors";
  if (a.dtype != b.dtype) return "dtypes";
  if (a.same_sizes != b.same_sizes) return "kinds of sizes (equal and uneven)";
  if (a.same_sizes) {
    if (a.ndim != b.ndim) return "numbers of dims";
    for (int d = 0; d < a.ndim; ++d) {
      if (a.sizes[d] != b.sizes[d]) return "shapes";
    }
  }
  if (a.splits != b.splits) return a.tensors > 1 ? "splits or sizes of further tensors" : "plans (agreement keys)";
  return std::nullopt;
}

std::string mismatch_message(const std::string& group, std::span<const CallRecord> records) {
  for (size_t r = 1; r < records.size(); ++r) {
    const auto field = differing_field(records[0], records[r]);
    if (!field) continue;
    return fmt::format(
        "collective #{} of group '{}': the {} differ: rank 0 called {}, rank {} called {}. All ranks of a group must "
        "make "
        "the same calls in the same order",
        records[0].sequence, group, *field, describe(records[0]), r, describe(records[r]));
  }
  return fmt::format("collective #{} of group '{}': the ranks' calls differ", records[0].sequence, group);
}

}  // namespace tutti::comm
