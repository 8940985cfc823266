#include "tutti/comm/exchanges/list_inquiry.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tutti/comm/exchanges/tell_all.h"
#include "tutti/core/hash.h"

namespace tutti::comm {
namespace {

// A tensor as all ranks tell it: dtype, dims, extents.
using Row = std::array<int64_t, 2 + kMaxDims>;

Row row_of(const ListedTensor& t) {
  Row row{static_cast<int64_t>(t.dtype), static_cast<int64_t>(t.sizes.size())};
  std::copy(t.sizes.begin(), t.sizes.end(), row.begin() + 2);
  return row;
}

// What another process has said is looked at before it is an index.
std::string describe(const Row& row) {
  const bool is_known = row[0] >= 0 && row[0] < kNumDTypes;
  const auto sizes = std::span(row).subspan(2, static_cast<size_t>(std::clamp<int64_t>(row[1], 0, kMaxDims)));
  return fmt::format("{} [{}]", is_known ? name_of(static_cast<DType>(row[0])) : "?", fmt::join(sizes, ", "));
}

std::vector<Row> rows_of(const std::vector<ListedTensor>& list) {
  std::vector<Row> rows;
  for (const ListedTensor& t : list) rows.push_back(row_of(t));
  return rows;
}

std::vector<std::byte> bytes_of(const std::vector<Row>& rows) {
  const auto bytes = std::as_bytes(std::span(rows));
  return {bytes.begin(), bytes.end()};
}

class ListInquiry final : public TellAll {
 public:
  ListInquiry(const CallRecord& call, const std::string& group, const std::vector<ListedTensor>& list, size_t entries,
              int ranks)
      : TellAll(bytes_of(rows_of(list)), ranks), group_(group), entries_(entries), count_(list.size()) {
    record = call;
    // What is left in the record is equal on all ranks.
    record.splits = 0;
    record.same_sizes = true;
    record.dtype = DType::u8;
    record.ndim = -1;
  }

 private:
  Row row(size_t rank, size_t k) const {
    Row row;
    std::memcpy(row.data(), told(rank).data() + k * sizeof(Row), sizeof(Row));
    return row;
  }
  std::string verdict() const override {
    for (size_t k = 0; k < count_; ++k) {
      const Row first = row(0, k);
      for (size_t p = 1; p < ranks(); ++p) {
        const Row other = row(p, k);
        if (other == first) continue;
        const std::string output = entries_ == 1 ? "" : fmt::format("output {} of ", k % entries_);
        return fmt::format(
            "collective #{} of group '{}', {} of {} tensors: the {} of {}tensor {} differ: rank 0 gives {}, rank {} "
            "gives {}. All ranks "
            "of a group must make the same calls in the same order",
            record.sequence, group_, name_of(record.kind), count_ / entries_,
            other[0] != first[0] ? "dtypes" : "shapes", output, k / entries_ + 1, describe(first), p, describe(other));
      }
    }
    return fmt::format("collective #{} of group '{}', {}: the ranks' lists differ", record.sequence, group_,
                       name_of(record.kind));
  }

  const std::string group_;
  const size_t entries_;
  const size_t count_;
};

}  // namespace

uint64_t hash_of(const std::vector<ListedTensor>& list) {
  uint64_t hash = 1;
  for (const ListedTensor& t : list) {
    const Row row = row_of(t);
    hash = hash64(row.data(), sizeof row, hash);
  }
  return hash;
}

std::unique_ptr<Collective> make_list_inquiry(const CallRecord& call, const std::string& group,
                                              const std::vector<ListedTensor>& list, size_t entries, int ranks) {
  return std::make_unique<ListInquiry>(call, group, list, entries, ranks);
}

}  // namespace tutti::comm
