// BagList: bags of lookups taken out of batches feature by feature, to be sent to the ranks that hold their tables and
// to be looked up there in one call.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/ops/table_batched_backward.h"
#include "tutti/ops/tables/lookups.h"
#include "tutti/parallel/parcels.h"

namespace tutti::parallel {

// A batch, checked, with the sizes of the result of its lookup.
struct CheckedBatch {
  facets::Lookups lookups;  // reads the tensors of the batch, until release()
  Tensor weights;           // f32 [P]; undefined without
  Shape result;
  // The results of the bags of a feature: `count` rows of `width` elements, row i at `base` + i * `stride`.
  struct Rows {
    int64_t count, base, stride, width;
  };
  std::vector<Rows> rows;  // of each feature

  // From then on the tensors of the batch may change.
  void release() {
    lookups = {};
    weights = {};
  }
};
// UsageError as table_batched_embedding_bags() over tables of these rows and columns; `batch` names the table of each
// feature. Indices out of range are told as `options` says.
CheckedBatch checked_batch(const char* op, const TableBatch& batch, const std::vector<int64_t>& rows,
                           const std::vector<int64_t>& columns, const TableBatchOptions& options);

struct BagList {
  // The bags of one feature of one batch.
  struct Piece {
    int64_t batch, table, bags, entries;
  };
  std::vector<Piece> pieces;
  // Where the bags and the entries of each piece begin, and the ends.
  std::vector<int64_t> first_bag = {0}, first_entry = {0};
  std::vector<int64_t> lengths;  // of the bags, piece after piece
  std::vector<int64_t> indices;
  std::vector<float> weights;  // of the indices, where the batches have them
  bool weighted = false;

  // Adds the bags of feature `feature` of batch number `number` as lookups of table `table`.
  void add(const CheckedBatch& batch, int64_t number, size_t feature, int64_t table);
  void append(const BagList& other);

  void write(ParcelWriter& to) const;
  // EnvironmentError for what no write() has written, and for tables that are not below `tables`.
  static BagList read(ParcelReader& from, int64_t tables);

  // Pieces [begin, end) as one batch of features with bags of their own.
  TableBatch batch(size_t begin, size_t end) const;
  void add(const Piece& piece);
  // How many rows the results of a piece have.
  static int64_t rows_of(const Piece& piece, TablePooling pooling) {
    return pooling == TablePooling::none ? piece.entries : piece.bags;
  }
};

}  // namespace tutti::parallel
