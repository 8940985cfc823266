// Parameter and Buffer: the tensors of a module.
//
// A Parameter has a master, which optimizer and checkpoints read and write, and a tensor that forward reads: the leaf
// of autograd. They are one tensor unless the parameter is used in another dtype than its master has, as with
// Module::to(DType::bf16). Then forward reads a copy, which is cast again whenever the master has changed: once per
// optimizer step, not once per use.
//
// A parameter has no memory until it is materialized, by initialize(), by loading values or by materialize(); reading
// it before is an error that names it. So a model of any size can be built, counted and loaded one parameter at a time.
//
// The weights of a Linear, an Embedding or experts may stay quantized: they are then frozen to blocks, which have no
// elements of a dtype, and the module computes with the blocks.
//
// Parameters and buffers are handles: copies share the same values, which is how weights are tied. They may be read
// from several threads; whoever materializes, converts or writes them must exclude readers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "tutti/nn/init.h"
#include "tutti/tensor/tensor.h"

namespace tutti {
enum class BlockFormat : uint8_t;
}

namespace tutti::nn {

class Parameter {
 public:
  // No parameter: a module built without it, such as a Linear without bias. It converts to an undefined tensor.
  Parameter() = default;
  // `name` is the one within its module. The master has `dtype`, a float.
  Parameter(std::string name, const Extents& sizes, const Init& init, DType dtype = DType::f32);

  bool defined() const { return state_ != nullptr; }
  explicit operator bool() const { return defined(); }
  // Whether both are handles of one parameter.
  bool is_same(const Parameter& other) const { return state_ == other.state_; }
  const void* identity() const { return state_.get(); }

  // The tensor that forward reads, in use_dtype(). A compiled function that called this reads it anew at each of its
  // calls. UsageError, naming the parameter, when it is not materialized.
  Tensor use() const;
  operator Tensor() const { return defined() ? use() : Tensor(); }
  // The same tensor, for those who ask autograd about it: hooks, gradients, sinks. UsageError as use().
  Tensor leaf() const;
  // The values that training updates; a distributed tensor where the ranks divide them. Code that writes elements
  // through data() must call changed() afterwards; ops that write in place need not. UsageError as use().
  Tensor master() const;
  // This rank's part of the master: its part where that is a distributed tensor, else the master itself.
  // UsageError as use().
  Tensor stored() const;
  void changed() const;

  // The gradient (f32, or f64 for f64 masters) that backward has accumulated; undefined before.
  Tensor grad() const;
  void set_grad(Tensor grad) const;
  // For a parameter that does not require grad backward computes no gradient, and optimizers skip it. UsageError for
  // true where the parameter is frozen.
  bool requires_grad() const;
  void requires_grad_(bool on) const;

  const std::string& name() const;
  const Extents& sizes() const;
  int64_t numel() const { return numel_of(sizes()); }
  DType dtype() const;      // of the master
  DType use_dtype() const;  // of what forward reads
  // From now on forward reads `dtype`, a float. Where that is not the dtype of before, the leaf becomes another tensor,
  // without gradient and hooks.
  void set_use_dtype(DType dtype) const;

  bool is_materialized() const;
  // Gives the master memory, whose elements are undefined. Does nothing the second time.
  void materialize() const;
  // Materializes the parameter and fills it according to its Init: a function of the rank's seed (seed_all),
  // `full_name` and the element's index (numerics contract, N6).
  void initialize(std::string_view full_name) const;
  // Materializes the parameter and copies `values`, converted to the master's dtype. UsageError when their sizes
  // differ.
  void assign(const Tensor& values) const;
  // From now on `master` holds the values: a leaf of the parameter's sizes and dtype that lies elsewhere, such as a
  // distributed tensor. The leaf becomes another tensor, without gradient and hooks. UsageError for other sizes or
  // another dtype.
  void set_master(Tensor master) const;
  // From now on the parameter is frozen, and `values`, floats of any dtype, are its values as they are, without a copy:
  // they may lie in the pages of a file that nobody can write. Forward reads them in use_dtype(), by a copy where that
  // is another dtype. assign() and initialize() give the parameter memory of its own again, and it requires grad as
  // before. Values that are a distributed tensor divide the parameter, and stay as they are: it can then be frozen to
  // other distributed ones only. UsageError for other sizes, for integers, and for whole values where ranks divide the
  // parameter.
  void freeze(const Tensor& values) const;
  // The same for quantized values: u8 [rows, bytes of a row] in whole blocks of `format` (ops/quantized_linear.h), or
  // [experts, rows, bytes of a row].
  // Where numbers are asked for, by use(), leaf() and master(), the parameter refuses and names dequantize().
  // UsageError as above, and unless can_hold_blocks().
  void freeze(const Tensor& blocks, BlockFormat format) const;
  bool is_frozen() const;
  // Gives up the values and their memory for good: reading the parameter, and giving it others, is an error that tells
  // `reason`.
  // UsageError where ranks divide it.
  void release(std::string reason) const;
  // Whether it is frozen to blocks, and those. A compiled function that called blocks() reads them anew at each of its
  // calls. UsageError where it is not.
  bool holds_blocks() const;
  Tensor blocks() const;
  BlockFormat block_format() const;
  // The module that registers the parameter computes with blocks as well.
  void allow_blocks() const;
  bool can_hold_blocks() const;
  // How a parameter is stored whose master and copy are somebody else's care.
  struct StoredApart {
    std::string full_name;               // for errors
    Tensor master;                       // holds the values: a distributed tensor of the parameter's sizes and dtype
    Tensor copy;                         // is what forward reads: a leaf of the same sizes and of use_dtype()
    std::function<void()> before_read;   // is called before each read of the copy
    std::function<void()> before_write;  // is called before the master changes
    bool has_values = true;              // false: the memory of the master has not been written
  };
  // From now on the parameter is stored so. The copy is without gradient and hooks. A master without values is written
  // first: until initialize() or assign() have filled it, or other code has called will_change() or changed() or run an
  // op that writes it, reads of the parameter are refused. UsageError for other sizes or dtypes.
  void set_stored_apart(StoredApart stored) const;
  // UsageError, naming the parameter, while it has no values: for code that reads the master.
  void check_has_values() const;
  // Call before code of your own changes elements of the master; optimizers, initialize() and assign() do. Other ranks
  // may read the memory that it lies in (parallel/fully_shard.h). Does nothing for other parameters.
  void will_change() const;

 private:
  struct State;
  State& state() const;
  std::shared_ptr<State> state_;
};

class Buffer {
 public:
  Buffer() = default;
  Buffer(std::string name, Tensor value);
  // The value is computed when it is first read, so that a model built without memory has none for its tables either.
  Buffer(std::string name, std::function<Tensor()> compute);

  bool defined() const { return state_ != nullptr; }
  const void* identity() const { return state_.get(); }
  // The tensor that it holds. A compiled function that called this reads it anew at each of its calls.
  Tensor use() const;
  operator Tensor() const { return defined() ? use() : Tensor(); }
  // From now on it holds `value`, of any sizes.
  void set(Tensor value) const;
  const std::string& name() const;

 private:
  struct State;
  State& state() const;
  std::shared_ptr<State> state_;
};

}  // namespace tutti::nn
