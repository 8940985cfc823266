#include "tutti/comm/exchanges/padded_move.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "tutti/comm/call_checks.h"
#include "tutti/comm/call_mismatch.h"
#include "tutti/core/error.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti::comm {
namespace {

// Another process has written the table: a number beyond any tensor must not become a size.
constexpr int64_t kMaxRows = int64_t{1} << 48;

int64_t bytes_of_row(const Tensor& t) {
  int64_t bytes = itemsize(t.dtype());
  for (size_t d = 1; d < t.extents().size(); ++d) bytes *= t.extents()[d];
  return bytes;
}

// Sets `bytes` bytes of elements to the identity of sums.
void fill_with_identity(std::byte* data, int64_t bytes, DType dtype) {
  if (bytes == 0) return;
  int64_t done = itemsize(dtype);
  store_from_double(data, dtype, facets::kSumIdentity);
  for (; done < bytes; done *= 2) std::memcpy(data + done, data, static_cast<size_t>(std::min(done, bytes - done)));
}

}  // namespace

// Over a transport that moves no data, the others have room for everything and send nothing.
PaddedMove::PaddedMove(const CallRecord& call, const CallPart& part)
    : rank_(part.rank()),
      ranks_(static_cast<size_t>(part.seat.ranks)),
      dtype_(part.input().dtype()),
      row_bytes_(bytes_of_row(part.output())),
      input_(part.input()),
      output_(part.output()),
      output_splits_(part.output(1)),
      table_(ranks_ * (ranks_ + 1), 0) {
  record = call;
  for (size_t p = 0; p < ranks_; ++p) told_by(p)[0] = std::numeric_limits<int64_t>::max();
  int64_t* own = told_by(rank_);
  own[0] = part.output().extents()[0];
  const std::vector<int64_t> splits = checks::values_of(part.input(1));
  std::copy(splits.begin(), splits.end(), own + 1);
  own_ = {reinterpret_cast<const std::byte*>(own), static_cast<int64_t>((ranks_ + 1) * sizeof(int64_t))};
}

bool PaddedMove::next(Exchange& exchange) {
  under_way_ = next_;
  switch (under_way_) {
    case Phase::tell:
      exchange.offers = {&own_, 1};
      exchange.takes = {&own_.bytes, 1};
      next_ = Phase::move;
      return true;
    case Phase::move:
      check_room();
      begin_move();
      next_ = Phase::finish;
      return move_.next(exchange);
    case Phase::finish:
      break;
  }
  fill_with_identity(output_.data() + taken_bytes_, output_.bytes() - taken_bytes_, dtype_);
  auto* splits = reinterpret_cast<int64_t*>(output_splits_.data());
  for (size_t p = 0; p < ranks_; ++p) splits[p] = rows(p, rank_);
  output_splits_.finish();
  return move_.next(exchange);
}

void PaddedMove::receive(std::span<const Arrival> from) {
  if (under_way_ == Phase::move) return move_.receive(from);
  for (size_t p = 0; p < from.size(); ++p) {
    std::byte* to = reinterpret_cast<std::byte*>(told_by(p)) + from[p].offset;
    if (from[p].bytes > 0 && to != from[p].data) std::memcpy(to, from[p].data, static_cast<size_t>(from[p].bytes));
  }
}

void PaddedMove::check_room() {
  for (size_t to = 0; to < ranks_; ++to) {
    int64_t sum = 0;
    size_t most = 0;
    for (size_t p = 0; p < ranks_; ++p) {
      TUTTI_CHECK_ENV(rows(p, to) >= 0 && rows(p, to) <= kMaxRows, "rank {} announces {} rows for rank {}", p,
                      rows(p, to), to);
      sum += rows(p, to);
      if (rows(p, to) > rows(most, to)) most = p;
    }
    if (sum <= room_of(to)) continue;
    throw AgreedError(
        fmt::format("rank {} would receive {} rows, {} of them (the most) from rank {}, more than its capacity of {}; "
                    "nothing was written. Give "
                    "it more capacity, or send it fewer rows",
                    to, sum, rows(most, to), most, room_of(to)));
  }
}

void PaddedMove::begin_move() {
  std::vector<int64_t> sent, taken;
  for (size_t p = 0; p < ranks_; ++p) {
    sent.push_back(rows(rank_, p) * row_bytes_);
    taken.push_back(rows(p, rank_) * row_bytes_);
    taken_bytes_ += taken.back();
  }
  move_.begin(record, static_cast<int>(rank_), static_cast<int>(ranks_));
  move_.offer_parts(input_, sent);
  move_.take_parts(output_, std::move(taken));
}

}  // namespace tutti::comm
