#include "tutti/symm/op_record.h"

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/symm/tuning.h"

namespace tutti::comm::symm {
namespace {

constexpr std::array<std::string_view, kNumSymmOps> kNames{
    "all_gather", "reduce_scatter",    "one_shot_all_reduce",   "two_shot_all_reduce",
    "all_reduce", "all_gather_matmul", "matmul_reduce_scatter", "all_to_all_v"};

int first_dim(const OpRecord& r) { return r.any_rows ? 1 : 0; }

std::string sizes_text(const OpRecord& r) {
  std::string text;
  for (int d = 0; d < r.ndim; ++d)
    text += fmt::format("{}{}", d == 0 ? "" : ", ", d < first_dim(r) ? "any" : std::to_string(r.sizes[d]));
  return "[" + text + "]";
}

std::string algorithm_text(const OpRecord& r) {
  return r.algorithm < 0 ? "none" : algorithms_of(name_of(r.op))[static_cast<size_t>(r.algorithm)];
}

std::string memory_text(const OpRecord& r) {
  switch (r.memory) {
    case OpMemory::none:
      return "no bytes";
    case OpMemory::workspace:
      return fmt::format("the workspace (piece {}, byte {})", r.place, r.offset);
    case OpMemory::more_workspace:
      return "workspace that has yet to be made";
    case OpMemory::symmetric:
      return fmt::format("symmetric memory (rendezvous {}, byte {})", r.place, r.offset);
    case OpMemory::not_met:
      return "symmetric memory without a rendezvous";
  }
  return "?";
}

}  // namespace

std::string_view name_of(SymmOp op) { return kNames[static_cast<size_t>(op)]; }

bool reduces(SymmOp op) {
  switch (op) {
    case SymmOp::all_gather:
    case SymmOp::all_gather_matmul:
    case SymmOp::all_to_all_v:
      return false;
    default:
      return true;
  }
}

void OpRecord::describe_tensor(DType type, const Extents& extents) {
  dtype = type;
  ndim = static_cast<int8_t>(extents.size());
  for (size_t d = 0; d < extents.size(); ++d) sizes[d] = extents[d];
}

uint64_t OpRecord::fingerprint() const {
  // Field by field into one dense block: padding bytes of the struct have no value.
  uint64_t words[3 + kMaxDims];
  words[0] = static_cast<uint64_t>(op) | static_cast<uint64_t>(reduces(op) ? reduce : ReduceKind::sum) << 8 |
             static_cast<uint64_t>(dtype) << 16 | static_cast<uint64_t>(memory) << 24 |
             static_cast<uint64_t>(static_cast<uint8_t>(algorithm)) << 32 | static_cast<uint64_t>(any_rows) << 40 |
             static_cast<uint64_t>(ndim + 1) << 48;
  words[1] = static_cast<uint64_t>(place);
  words[2] = static_cast<uint64_t>(offset);
  size_t count = 3;
  for (int d = first_dim(*this); d < ndim; ++d) words[count++] = static_cast<uint64_t>(sizes[d]);
  return hash64(words, count * sizeof(uint64_t), 0);
}

std::string describe(const OpRecord& r) {
  std::string text = fmt::format("{}(", name_of(r.op));
  if (r.ndim >= 0) text += fmt::format("{} {}", name_of(r.dtype), sizes_text(r));
  if (reduces(r.op)) text += fmt::format("{}{}", r.ndim >= 0 ? ", " : "", name_of(r.reduce));
  if (r.algorithm >= 0) text += ", " + algorithm_text(r);
  return text + ")";
}

std::optional<Difference> difference(const OpRecord& a, const OpRecord& b) {
  const auto differs = [](const char* field, const auto& x, const auto& y) -> std::optional<Difference> {
    if (x == y) return std::nullopt;
    return Difference{field, fmt::format("{}", x), fmt::format("{}", y)};
  };
  if (auto found = differs("operations", name_of(a.op), name_of(b.op))) return found;
  if (reduces(a.op)) {
    if (auto found = differs("reduce ops", name_of(a.reduce), name_of(b.reduce))) return found;
  }
  if (auto found = differs("dtypes", name_of(a.dtype), name_of(b.dtype))) return found;
  if (auto found = differs("shapes", sizes_text(a), sizes_text(b))) return found;
  if (auto found = differs("algorithms", algorithm_text(a), algorithm_text(b))) return found;
  return differs("places of the tensors", memory_text(a), memory_text(b));
}

std::string mismatch_text(std::span<const OpRecord> records) {
  for (size_t r = 1; r < records.size(); ++r) {
    const auto found = difference(records[0], records[r]);
    if (!found) continue;
    const auto& [field, first, other] = *found;
    return fmt::format(
        "the {} differ: {} on rank 0, {} on rank {}; rank 0 called {}, rank {} called {}. All ranks of a group must "
        "make "
        "the same calls in the same order",
        field, first, other, r, describe(records[0]), r, describe(records[r]));
  }
  return "the ranks' calls differ";
}

}  // namespace tutti::comm::symm
