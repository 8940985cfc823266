#include "tutti/parallel/shared_page_copies.h"

#include <utility>

#include "tutti/autograd/tape.h"
#include "tutti/ops/copy.h"

namespace tutti::parallel {

SharedPageCopies::SharedPageCopies(GroupParameters& parameters) : parameters_(parameters) {
  if (parameters.is_in_pieces()) pieces_.emplace(parameters);
}

void SharedPageCopies::begin() {
  const NoGradScope no_grad;
  GroupParameters& p = parameters_;
  std::vector<size_t> stale = p.stale();
  Gather pieces = pieces_ ? pieces_->begin_some(stale) : Gather();
  for (const size_t i : stale) {
    if (!p.is_in_copy(i))
      copy_(p.part(p.copies().writable(i), i, p.own_shard(), p.ranks().size(), p.own_piece()), p.stored(i));
    p.note_written(i);
  }
  if (pieces_) publishing_ = Publishing{std::move(stale), std::move(pieces)};
}

void SharedPageCopies::finish() {
  if (!publishing_) return;
  const NoGradScope no_grad;
  const Publishing publishing = *std::exchange(publishing_, std::nullopt);
  try {
    publishing.pieces.work.wait();
  } catch (...) {
    for (const size_t i : publishing.parameters) parameters_.note_unwritten(i);  // others' pieces are those of before
    throw;
  }
  for (int64_t piece = 0; piece < std::ssize(publishing.pieces.outputs); ++piece) {
    if (piece == parameters_.own_piece()) continue;
    parameters_.write_part(publishing.pieces.outputs[static_cast<size_t>(piece)], 0, publishing.parameters,
                           parameters_.own_shard(), parameters_.ranks().size(), piece);
  }
}

}  // namespace tutti::parallel
