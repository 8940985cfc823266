#include "tutti/comm/call_record.h"

#include <array>
#include <cstring>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/core/hash.h"

namespace tutti::comm {
namespace {

constexpr std::array<std::string_view, kNumCollectiveKinds> kNames{
    "broadcast", "all_reduce", "all_reduce_coalesced", "reduce",
    "all_gather", "all_gather_v", "all_gather_coalesced", "all_gather_single", "all_gather_single_coalesced",
    "gather", "scatter",
    "reduce_scatter", "reduce_scatter_v", "reduce_scatter_single", "reduce_scatter_single_coalesced",
    "all_to_all", "all_to_all_single", "all_to_all_v_single",
    "send", "recv", "barrier", "monitored_barrier",
    "gather_bytes", "broadcast_bytes", "all_gather_bytes", "scatter_bytes"};

bool reduces(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_reduce: case CollectiveKind::all_reduce_coalesced: case CollectiveKind::reduce:
    case CollectiveKind::reduce_scatter: case CollectiveKind::reduce_scatter_v:
    case CollectiveKind::reduce_scatter_single: case CollectiveKind::reduce_scatter_single_coalesced:
      return true;
    default:
      return false;
  }
}

bool is_p2p(CollectiveKind kind) { return kind == CollectiveKind::send || kind == CollectiveKind::recv; }

std::span<const int64_t> sizes_of(const CallRecord& r) {
  return {r.sizes, static_cast<size_t>(r.ndim < 0 ? 0 : r.ndim)};
}

}  // namespace

std::string_view name_of(CollectiveKind kind) { return kNames[static_cast<size_t>(kind)]; }

CollectiveKind collective_from_name(std::string_view name) {
  for (size_t k = 0; k < kNames.size(); ++k) {
    if (kNames[k] == name) return static_cast<CollectiveKind>(k);
  }
  throw UsageError(unknown_name_message("collective", name, std::vector<std::string>(kNames.begin(), kNames.end())));
}

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
  words[0] = static_cast<uint64_t>(kind) | static_cast<uint64_t>(reduces(kind) ? reduce : ReduceKind::sum) << 8 |
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
  std::string text = fmt::format("{}(", name_of(r.kind));
  auto add = [&, first = true](const std::string& part) mutable {
    if (!first) text += ", ";
    first = false;
    text += part;
  };
  if (r.ndim >= 0) add(fmt::format("{} [{}]", name_of(r.dtype), fmt::join(sizes_of(r), ", ")));
  if (r.tensors != 1) add(fmt::format("{} tensors", r.tensors));
  if (reduces(r.kind)) add(std::string(name_of(r.reduce)));
  if (r.root >= 0) add(fmt::format("{} {}", is_p2p(r.kind) ? "peer" : "root", r.root));
  if (is_p2p(r.kind)) add(fmt::format("tag {}", r.tag));
  return text + ")";
}

std::optional<std::string> differing_field(const CallRecord& a, const CallRecord& b) {
  if (a.kind != b.kind) return "operations";
  if (a.sequence != b.sequence) return "sequence numbers";
  if (reduces(a.kind) && a.reduce != b.reduce) return "reduce ops";
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
        "collective #{} of group '{}': the {} differ: rank 0 called {}, rank {} called {}. All ranks of a group must make "
        "the same calls in the same order", records[0].sequence, group, *field, describe(records[0]), r,
        describe(records[r]));
  }
  return fmt::format("collective #{} of group '{}': the ranks' calls differ", records[0].sequence, group);
}

}  // namespace tutti::comm
