// How one GEMM is cut into tiles. Private to gemm.cpp.
//
// Rows are cut into strips, columns into panels, k into chunks of whole leaves. A task packs a chunk of its panel of B
// and runs down the strips of A, which was packed before; the panel's chunk stays in the second-level cache meanwhile.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/codegen/gemm/cut.h"
#include "tutti/codegen/gemm/kernel.h"

namespace tutti::codegen {

struct GemmDecodedBlock;  // decoded_block.h

struct ContractionChunk {
  int64_t first_leaf, leaves;
  int64_t first_k, length;
  int64_t first_item, items;  // of packed memory
  int64_t pending;            // partial tiles on the stack before it
};

// The operands of a contraction whose k comes from several products, and which k comes from where.
struct GemmSources {
  std::vector<GemmSource> sources;  // as in the problem, not transposed
  std::vector<InterleavedContraction::Piece> pieces;
};

// Whole leaves, together at most `most_items` unless one leaf has more.
std::vector<ContractionChunk> cut_into_chunks(const ContractionTree& tree, int64_t most_items, TileKind kind);

struct GemmPlan {
  // `cut` must fit the problem, as usual_cut() and the candidates of gemm_choice.h do.
  GemmPlan(const GemmProblem& problem, const ContractionTree& tree, const GemmCut& cut);
  // The problem's A and B are those of the first source, its k is that of all together. `cut` must not read B in place.
  // Each piece has items of its own: where they hold more k than it has, so do the leaves of the tree.
  GemmPlan(const GemmProblem& problem, const ContractionTree& tree, const GemmCut& cut, GemmSources sources);

  GemmProblem problem;  // data pointers of batch element 0
  bool transposed;      // against the one that was asked for
  TileKind kind;
  const ContractionTree& tree;
  int32_t depth;
  int32_t lanes;
  bool b_in_place;   // whole panels of B are read in place
  EvenSplit strips;  // of rows
  EvenSplit panels;  // of registers of columns
  std::vector<ContractionChunk> chunks;
  int64_t tasks_per_thread;         // wanted, when panels and strips allow it
  GemmSources sources;              // empty: k is that of the problem's A and B; otherwise transposed with the problem
  std::vector<size_t> first_piece;  // per chunk, and one behind the last
  int64_t items;                    // of a row of A or a column of B in packed memory, in all chunks
  const int32_t* excess = nullptr;  // int8_quads: what the sums of a column have too much, for all columns of panels
  // f32: makes what is packed of B, which has no memory then.
  const FunctionRef<void(const GemmDecodedBlock&)>* decoder = nullptr;

  int64_t panel_columns(int64_t panel) const;  // that exist; the tile computes panels.size(panel) * lanes
  int64_t largest_tile() const { return strips.largest() * panels.largest() * lanes; }
  int64_t most_chunk_items() const;
  std::span<const int32_t> leaf_lengths(size_t chunk) const {
    return std::span(tree.leaf_lengths)
        .subspan(static_cast<size_t>(chunks[chunk].first_leaf), static_cast<size_t>(chunks[chunk].leaves));
  }

  const GemmOperand& a_of(int32_t source) const {
    return source == 0 ? problem.a : sources.sources[static_cast<size_t>(source)].a;
  }
  const GemmOperand& b_of(int32_t source) const {
    return source == 0 ? problem.b : sources.sources[static_cast<size_t>(source)].b;
  }
  bool has_pieces() const { return !sources.sources.empty(); }
  // Calls visit(source, first_k, length, place) for the pieces of k of a chunk that can be packed at once, or cut
  // behind pairs: the source holds them at first_k, and `place` items of the chunk stand before them.
  template <class Visit>
  void for_each_piece(size_t chunk, Visit&& visit) const {
    int64_t place = 0;
    if (!has_pieces()) {
      int64_t first_k = chunks[chunk].first_k;
      return for_each_even_run(kind, leaf_lengths(chunk), [&](int64_t length) {
        visit(0, first_k, length, place);
        first_k += length;
        place += items_of(kind, length);
      });
    }
    for (size_t i = first_piece[chunk]; i < first_piece[chunk + 1]; ++i) {
      const InterleavedContraction::Piece& piece = sources.pieces[i];
      visit(piece.source, piece.first_k, int64_t{piece.length}, place);
      place += items_of(kind, piece.length);
    }
  }
};

// Computes the plan's problem, all elements of its batch. In gemm_run.cpp. producer: of A as it is in the plan, which
// must not be transposed then.
void run_gemm(const GemmPlan& plan, ThreadPool& pool, const GemmConsumer* consumer,
              const GemmProducer* producer = nullptr);

}  // namespace tutti::codegen
