// Distributed tensors as tensors: a Tensor with the sizes of the whole and no memory, to which the part that this rank
// holds is attached. Library code passes it on like any other; ops on it go through the stage of stage.h.
#pragma once

#include "tutti/dist/spec.h"
#include "tutti/ops/engine/dispatch.h"
#include "tutti/runtime/free_list.h"
#include "tutti/tensor/wrapper.h"

namespace tutti::dist {

// The stage whose bit distributed tensors carry.
StageMask stage();

inline bool is_dtensor(const Tensor& t) { return t.defined() && (t.stages() & stage()) != 0; }

struct CopiedPart;  // the part of which a view is a copy
// The extension that is attached to a distributed tensor.
struct Part final : WrapperExtension, FreeListed<Part> {
  Part(const DTensorSpec& spec, Mesh mesh, Tensor local, bool is_dense)
      : spec(&spec), mesh(std::move(mesh)), local(std::move(local)), is_dense(is_dense) {}
  std::unique_ptr<TensorExtension> for_alias() const override;
  std::string description() const override;
  std::string text() const override;
  Tensor whole(const Tensor& t) const override;
  Tensor beside(const Tensor& plain) const override;
  Tensor arriving(const Tensor& cotangent) const override;
  const Tensor& inside() const override { return check_read("a compiled function"), local; }
  std::shared_ptr<const WrapperForm> form(const Tensor& t) const override;
  bool has_whole(const Tensor& t, int dim) const override;
  bool has(const WrapperForm& form) const override;
  bool is_copy() const override { return copied != nullptr; }
  bool is_copy_of(const WrapperExtension& other) const override;

  // The part of pending terms after an op had them reduced to `wanted`, where one has and `local` is as it was then;
  // nullptr otherwise.
  const Tensor* reduced_to(const DTensorSpec& wanted) const;
  // From now on reduced_to(wanted) is `part`. Does nothing where the tensor has no pending terms, or is older than a
  // trace under way.
  void note_reduced(const DTensorSpec& wanted, const Tensor& part) const;

  // UsageErrors, on all ranks alike, where this is a view that had to be copied: for reading it once its tensor has
  // been written, and for writing it.
  void check_read(std::string_view where) const {
    if (copied != nullptr) [[unlikely]]
      refuse_old_copy(where);
  }
  void check_writable(std::string_view where) const;
  const DTensorSpec* spec;
  Mesh mesh;
  Tensor local;
  bool is_dense;                                       // the wrapper is, whatever its sizes are
  std::shared_ptr<const CopiedPart> copied = nullptr;  // null: this is no such copy

 private:
  void refuse_old_copy(std::string_view where) const;
  bool may_note_here() const;
  struct Reduced {
    const DTensorSpec* spec = nullptr;
    Tensor part = {};
    uint32_t version = 0;  // of local
  };
  mutable Reduced reduced_;  // a cotangent that several ops read travels once
};

// UsageError, naming `where`, for a tensor that is not distributed, and for a view that is a copy of what has been
// written since.
const Part& part_of(const Tensor& t, const char* where);

// Where `whole`, a plain tensor, has what the rank at `coordinate` holds of a tensor of this spec: a view. For memory
// that several ranks share. Of each dim a rank holds one range.
Tensor part_in_whole(const Tensor& whole, const DTensorSpec& spec, std::span<const int64_t> coordinate);

// The distributed tensor of which this rank holds `local`, whose sizes are those that `spec` says. Its strides are
// dense whatever those of the part are: code that looks at strides must do the same on all ranks.
Tensor wrap(Tensor local, const DTensorSpec& spec, const Mesh& mesh);
// The same for a view of the tensor whose part is `of` that does not share its memory: its elements had to be moved, or
// the strides of this rank's part do not allow the view.
Tensor wrap_copy(Tensor local, const DTensorSpec& spec, const Mesh& mesh, const Part& of, bool has_moved);
// The same for a view in the memory of its tensor, whose sizes, strides and storage are those of `view`, a view of a
// distributed tensor without a part. is_dense: it would be in any sizes.
Tensor wrap_view(Tensor view, Tensor local, const DTensorSpec& spec, const Mesh& mesh, bool is_dense = false,
                 std::shared_ptr<const CopiedPart> copied = nullptr);

// In a trace whose sizes are symbols, wrappers have the symbols of their parts in dims that no mesh dim shards, and
// dims that one shards are integers. In the place of symbols, specs have sizes that do not depend on the traced call,
// so that every trace of a function chooses the same plans. What would be done in integers with a dim whose size is a
// symbol gives the symbols up (graph::refuse_symbols).
//
// The wrapper with the sizes of the traced call, which records nothing. Outside of such a trace, the wrapper itself,
// and so are plain tensors.
Tensor as_called(const Tensor& wrapper);
// The wrapper with the sizes of its spec.
Tensor for_choices(const Tensor& wrapper);
// Its spec with the sizes of the traced call.
const DTensorSpec& spec_as_called(const Tensor& wrapper);

}  // namespace tutti::dist
