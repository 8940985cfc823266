#include "tutti/comm/exchanges/list_inquiry.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tutti/core/error.h"
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

class ListInquiry final : public Collective {
 public:
  ListInquiry(const CallRecord& call, const std::string& group, const std::vector<ListedTensor>& list, size_t entries, int ranks)
      : group_(group), entries_(entries) {
    record = call;
    // What is left in the record is equal on all ranks.
    record.splits = 0;
    record.same_sizes = true;
    record.dtype = DType::u8;
    record.ndim = -1;
    for (const ListedTensor& t : list) own_.push_back(row_of(t));
    rows_.resize(static_cast<size_t>(ranks), own_);
    offer_ = {reinterpret_cast<const std::byte*>(own_.data()), static_cast<int64_t>(own_.size() * sizeof(Row))};
    takes_ = offer_.bytes;
  }

  bool next(Exchange& exchange) override {
    if (has_asked_) throw UsageError(verdict());
    has_asked_ = true;
    exchange.offers = {&offer_, 1};
    exchange.takes = {&takes_, 1};
    return true;
  }

  void receive(std::span<const Arrival> from) override {
    for (size_t p = 0; p < from.size(); ++p) {
      if (from[p].bytes > 0) std::memcpy(reinterpret_cast<std::byte*>(rows_[p].data()) + from[p].offset, from[p].data, static_cast<size_t>(from[p].bytes));
    }
  }

 private:
  std::string verdict() const {
    for (size_t k = 0; k < own_.size(); ++k) {
      for (size_t p = 1; p < rows_.size(); ++p) {
        if (rows_[p][k] == rows_[0][k]) continue;
        const std::string output = entries_ == 1 ? "" : fmt::format("output {} of ", k % entries_);
        return fmt::format("collective #{} of group '{}', {} of {} tensors: the {} of {}tensor {} differ: rank 0 gives {}, rank {} gives {}. All ranks "
                           "of a group must make the same calls in the same order", record.sequence, group_, name_of(record.kind), own_.size() / entries_,
                           rows_[p][k][0] != rows_[0][k][0] ? "dtypes" : "shapes", output, k / entries_ + 1, describe(rows_[0][k]), p, describe(rows_[p][k]));
      }
    }
    return fmt::format("collective #{} of group '{}', {}: the ranks' lists differ", record.sequence, group_, name_of(record.kind));
  }

  const std::string group_;
  const size_t entries_;
  std::vector<Row> own_;
  std::vector<std::vector<Row>> rows_;  // by rank
  ConstBlock offer_;
  int64_t takes_ = 0;
  bool has_asked_ = false;
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

std::unique_ptr<Collective> make_list_inquiry(const CallRecord& call, const std::string& group, const std::vector<ListedTensor>& list, size_t entries, int ranks) {
  return std::make_unique<ListInquiry>(call, group, list, entries, ranks);
}

}  // namespace tutti::comm
