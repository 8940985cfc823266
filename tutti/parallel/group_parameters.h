// The parameters of one fully_shard() call: the parts of their masters that this rank stores, the copies that forward
// reads, and which part of a copy which rank brings.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/dist/dtensor.h"
#include "tutti/nn/module.h"
#include "tutti/parallel/parameter_copies.h"

namespace tutti::parallel {

// A parameter as it will be stored.
struct StoredParameter {
  nn::NamedParameter named;
  // How the data ranks divide what forward reads on this rank: the parameter, or this rank's part of it.
  const dist::DTensorSpec* spec;
  const dist::DTensorSpec* storage;  // the same for what they store: replicas may divide it further
  const dist::DTensorSpec* master;   // how all ranks divide the parameter
  dist::Mesh mesh;                   // of the master
  // Where ranks divide the parameter itself (tensor_parallel.h), how forward reads it.
  const dist::DTensorSpec* read = nullptr;
  dist::Mesh readers = {};
  Tensor memory = {};  // of the whole master, which all ranks map; undefined: none
};

class GroupParameters {
 public:
  // Makes room for masters and copies. Collective.
  GroupParameters(const std::vector<StoredParameter>& parameters, const dist::Mesh& mesh);

  size_t size() const { return stored_.size(); }
  std::vector<size_t> all() const;  // 0, 1, ...
  const std::vector<std::string>& names() const { return names_; }
  const dist::Mesh& mesh() const { return mesh_; }
  comm::ProcessGroup& ranks() const { return *group_; }  // that store different parts
  int64_t stored_bytes() const;                          // on this rank

  // The part of the master that this rank stores.
  const Tensor& stored(size_t i) const { return stored_[i]; }
  // The tensor that forward reads: the copy, or a distributed tensor of which it is this rank's part.
  const Tensor& leaf(size_t i) const { return leaves_[i]; }
  ParameterCopies& copies() const { return *copies_; }
  // Whether the stored part is rows of the shared copy: no cast lies between.
  bool is_in_copy(size_t i) const { return is_in_copy_[i]; }

  // ---- Versions: the number of changes of each stored part
  std::vector<int64_t> versions() const;
  // Whether the part has changed since it was last written to the copies.
  bool is_stale(size_t i) const;
  std::vector<size_t> stale() const;
  // The copy has the values of the stored parts, or of unknown ones.
  void note_written(size_t i);
  void note_unwritten(size_t i) { written_[i] = kNever; }
  bool were_written() const;  // all of them

  // ---- Parts of copies. Replicas may store pieces of a part.
  bool is_in_pieces() const { return is_in_pieces_; }
  int64_t own_piece() const { return is_in_pieces_ ? mesh_->coordinate()[0] : 0; }
  int64_t own_shard() const { return group_->rank(); }
  // In how many pieces one of `shards` ranks has its part.
  int64_t pieces(int64_t shards) const { return is_in_pieces_ && shards == group_size() ? mesh_->size(0) : 1; }
  // The part of `whole`, of the sizes of copy `i`, that one of `shards` ranks brings: what it stores, or the piece of
  // it that a replica stores; where fewer ranks have kept copies, an equal part.
  Tensor part(const Tensor& whole, size_t i, int64_t shard, int64_t shards, int64_t piece) const;
  // The rows of `whole` that a shard stores, with the pieces of all replicas.
  Tensor rows(const Tensor& whole, size_t i, int64_t shard) const;
  // The bytes of such a part in the dtype of use, and of all parameters and pieces of one of `shards` ranks. Whole
  // words, so that the next parameter is aligned in any dtype.
  int64_t part_bytes(size_t i, int64_t shard, int64_t shards, int64_t piece) const;
  int64_t bytes_of(int64_t shard, int64_t shards) const;
  // Parts of the stored masters, one after another, in the dtype of use.
  Tensor stored_in_dtype_of_use(const std::vector<size_t>& parameters) const;
  // Writes a part of the copies of some parameters from such bytes, and returns the number of bytes.
  int64_t write_part(const Tensor& bytes, int64_t at, const std::vector<size_t>& parameters, int64_t shard,
                     int64_t shards, int64_t piece);

 private:
  static constexpr int64_t kNever = -1;
  int64_t group_size() const { return mesh_->size(mesh_->ndim() - 1); }

  const dist::Mesh mesh_;
  comm::ProcessGroup* const group_;
  std::vector<std::string> names_;
  std::vector<const dist::DTensorSpec*> specs_, storage_;  // how copies are divided, and what is stored
  std::vector<Tensor> stored_, leaves_;
  std::vector<bool> is_in_copy_;
  std::vector<int64_t> written_;  // the version of each part when it was last written to the copies
  std::unique_ptr<ParameterCopies> copies_;
  bool is_in_pieces_ = false;
};

// The elements of a part among such bytes.
Tensor elements_at(const Tensor& bytes, int64_t at, const Extents& sizes, DType dtype);

}  // namespace tutti::parallel
