#include "tutti/parallel/gathered_copies.h"

#include <utility>

#include "tutti/autograd/tape.h"
#include "tutti/ops/copy.h"
#include "tutti/parallel/gather_group.h"
#include "tutti/runtime/trace/trace_event.h"
#include "tutti/runtime/trace/trace_span.h"

namespace tutti::parallel {

GatheredCopies::GatheredCopies(GroupParameters& parameters, const std::string& name, int64_t reshard_degree,
                               std::function<void()> begin_all_pieces)
    : parameters_(parameters),
      start_label_(intern_trace_name(fmt::format("FSDP::all_gather_copy_in ({})", name))),
      begin_all_pieces_(std::move(begin_all_pieces)) {
  comm::ProcessGroup& ranks = parameters.ranks();
  if (ranks.size() > 1) ranks_ = gather_group(ranks, ranks.size());
  if (parameters.is_in_pieces()) pieces_.emplace(parameters);
  if (reshard_degree > 1 && reshard_degree < ranks.size()) neighbours_ = gather_group(ranks, reshard_degree);
}

bool GatheredCopies::is_whole() const {
  const auto* gathering = std::get_if<Gathering>(&state_);
  return std::holds_alternative<Whole>(state_) || (gathering != nullptr && gathering->is_over_older);
}

// Every rank brings its parts, one after another. They may have several dtypes, so bytes travel. Where neighbours have
// kept the copies, they come from those.
void GatheredCopies::begin() {
  if (ranks_ == nullptr || std::holds_alternative<Gathering>(state_) || (is_whole() && parameters_.stale().empty()))
    return;
  const NoGradScope no_grad;
  const TraceSpan span(TraceCategory::annotation, start_label_);
  const MemoryCategoryScope category(MemoryCategory::parameters);
  const auto* kept = std::get_if<Kept>(&state_);
  const bool is_near = kept != nullptr && kept->versions == parameters_.versions();
  comm::ProcessGroup& from = is_near ? *neighbours_ : *ranks_;
  Gather gather{
      .work = {}, .outputs = {}, .input = is_near ? kept->bytes : own_bytes(), .versions = parameters_.versions()};
  for (int r = 0; r < from.size(); ++r)
    gather.outputs.push_back(Tensor::empty({parameters_.bytes_of(r, from.size())}, DType::u8));
  gather.work = from.all_gather_v(gather.outputs, gather.input, {.async = true});
  state_ = Gathering{std::move(gather), std::holds_alternative<Whole>(state_)};
}

void GatheredCopies::finish() {
  const NoGradScope no_grad;
  const TraceSpan span(TraceCategory::annotation, "FSDP::all_gather");
  const std::vector<size_t> changed = parameters_.stale();
  if (ranks_ == nullptr) {
    write({own_bytes()});
  } else {
    const auto* begun = std::get_if<Gathering>(&state_);
    if (begun != nullptr && begun->gather.versions != parameters_.versions()) drop();  // the masters were stepped
    begin();
    Gathering gathering = std::move(std::get<Gathering>(state_));
    if (gathering.is_over_older) state_ = Whole{};
    else state_ = GivenBack{};
    gathering.gather.work.wait();
    write(gathering.gather.outputs);
  }
  state_ = Whole{};
  for (const size_t i : changed) parameters_.note_written(i);
}

void GatheredCopies::drop() {
  auto* gathering = std::get_if<Gathering>(&state_);
  if (gathering == nullptr) return;
  gathering->gather.work.wait();
  if (gathering->is_over_older) state_ = Whole{};
  else state_ = GivenBack{};
}

void GatheredCopies::release() {
  parameters_.copies().release();
  if (auto* gathering = std::get_if<Gathering>(&state_)) gathering->is_over_older = false;
  else state_ = GivenBack{};
}

void GatheredCopies::release_but_own_part() {
  if (!std::holds_alternative<Whole>(state_)) return release();  // newer ones are on their way
  const NoGradScope no_grad;
  const MemoryCategoryScope category(MemoryCategory::parameters);
  const int64_t shard = neighbours_->rank(), shards = neighbours_->size();
  const Tensor bytes = Tensor::empty({parameters_.bytes_of(shard, shards)}, DType::u8);
  int64_t at = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor mine = parameters_.part(parameters_.copies().leaves()[i], i, shard, shards, 0);
    if (mine.numel() > 0) copy_(elements_at(bytes, at, mine.extents(), mine.dtype()), mine);
    at += parameters_.part_bytes(i, shard, shards, 0);
  }
  parameters_.copies().release();
  state_ = Kept{bytes, parameters_.versions()};
}

void GatheredCopies::forget_neighbours() {
  neighbours_.reset();
  if (has_own_part()) state_ = GivenBack{};
}

void GatheredCopies::begin_pieces() {
  if (!pieces_ || pieces_->is_begun()) return;
  drop();  // it may send the bytes that the pieces are written to
  pieces_->begin();
}

// All groups begin together: their parts are memory that they have anyway, and forward waits for one at a time.
void GatheredCopies::join_pieces() {
  if (pieces_->is_finished()) return;
  begin_all_pieces_();
  pieces_->finish();
}

// The bytes that this rank brings.
Tensor GatheredCopies::own_bytes() {
  if (!pieces_) return parameters_.stored_in_dtype_of_use(parameters_.all());
  join_pieces();
  return pieces_->bytes();
}

void GatheredCopies::write(const std::vector<Tensor>& parts_of_ranks) {
  parameters_.copies().restore();
  const std::vector<size_t> all = parameters_.all();
  const int64_t ranks = std::ssize(parts_of_ranks);
  for (int64_t r = 0; r < ranks; ++r) {
    int64_t at = 0;
    for (int64_t piece = 0; piece < parameters_.pieces(ranks); ++piece)
      at += parameters_.write_part(parts_of_ranks[static_cast<size_t>(r)], at, all, r, ranks, piece);
  }
}

}  // namespace tutti::parallel
