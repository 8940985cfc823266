// Tensor: a value handle on a strided view of a storage.
//
// Copying a Tensor shares the storage; clone() (tutti/ops) copies the data. Sizes are SymInts so that code over tensors
// can be traced; extents() gives them as integers, for code that accesses memory. Zero-size and 0-dim tensors are
// allowed everywhere. Code that must know when a Tensor object comes to hold another tensor can watch it
// (handle_watch.h). Thread safety: handles may be copied and read from several threads; the caller must exclude
// concurrent writes to a storage.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/tensor/tensor_impl.h"

namespace tutti {

class Tensor {
 public:
  // Undefined: stands for a missing value, such as the gradient of a tensor that nothing depends on.
  // Every member except defined() throws UndefinedTensorError.
  Tensor() = default;

  // A tensor in new, uninitialized memory; empty() is dense and row-major. Strides count elements.
  static Tensor empty(const Extents& sizes, DType dtype = DType::f32, Device device = kCpu);
  static Tensor empty_strided(const Extents& sizes, const Extents& strides, DType dtype, Device device = kCpu);
  // A view of `storage`; strides and offset count elements. UsageError when an element would lie outside the storage.
  static Tensor over(StorageRef storage, const Extents& sizes, const Extents& strides, int64_t offset, DType dtype);
  // A tensor on the caller's memory, dense and row-major; `release` runs when the last tensor on it is gone.
  static Tensor from_memory(void* data, const Extents& sizes, DType dtype, std::function<void()> release,
                            Device device = kCpu);
  // A new tensor with a copy of `values`. UsageError unless their number is the product of the sizes.
  template <class T>
  static Tensor of(const std::vector<T>& values, const Extents& sizes) {
    Tensor t = empty(sizes, dtype_of<T>);
    TUTTI_CHECK_EQ(static_cast<int64_t>(values.size()), t.numel(), "Tensor::of: {} values for shape {}", values.size(),
                   sizes);
    T* out = t.data<T>();
    for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
    return t;
  }
  template <class T>
  static Tensor of(const std::vector<T>& values) {
    return of(values, {static_cast<int64_t>(values.size())});
  }
  template <class T>
  static Tensor scalar(T value) {
    Tensor t = empty({}, dtype_of<T>);
    *t.data<T>() = value;
    return t;
  }

  bool defined() const { return static_cast<bool>(impl_); }
  explicit operator bool() const { return defined(); }
  bool is_same(const Tensor& other) const { return impl_.get() == other.impl_.get(); }

  DType dtype() const { return impl_->dtype; }
  Device device() const { return impl_->device; }
  int ndim() const { return impl_->sizes.ndim(); }
  SymInt size(int64_t dim) const { return impl_->sizes[static_cast<size_t>(normalize_dim(dim, ndim(), "size"))]; }
  const Shape& sizes() const { return impl_->sizes; }
  // While tracing with symbolic sizes, the following are answered for the traced call, and the answer is recorded as a
  // guard.
  const Extents& extents() const {
    if (impl_->traced >= 0) [[unlikely]]
      fix_sizes();
    return impl_->extents;
  }
  int64_t extent(int64_t dim) const { return size(dim).guard_int(); }
  const Extents& strides() const {
    if (impl_->traced >= 0) [[unlikely]]
      fix_strides();
    return impl_->strides;
  }
  int64_t offset() const {
    if (impl_->traced >= 0) [[unlikely]]
      fix_offset();
    return impl_->offset;
  }
  int64_t numel() const {
    if (impl_->traced >= 0) [[unlikely]]
      return numel_of(sizes()).guard_int();
    return impl_->numel;
  }
  int64_t nbytes() const { return numel() * itemsize(dtype()); }
  bool is_contiguous() const { return impl_->traced < 0 ? impl_->contiguous : decide(*this, &is_dense, {}); }
  // Answers a question about sizes and strides of `t`; `question` is called with a tensor whose sizes are integers.
  friend bool decide(const Tensor& t, TensorQuestion question, const Shape& about) {
    return t.impl_->traced < 0 ? question(t, about) : t.storage()->placeholder()->decide(t, question, about);
  }

  // The address of the first element. The caller must keep the tensor alive while using the pointer.
  void* raw_data() const { return static_cast<char*>(impl_->storage->data()) + impl_->offset * itemsize(impl_->dtype); }
  template <class T>
  T* data() const {
    TUTTI_CHECK(dtype() == dtype_of<T>, "data: the tensor holds {}, {} was asked for", name_of(dtype()),
                name_of(dtype_of<T>));
    return static_cast<T*>(raw_data());
  }
  // The value of a tensor with one element, converted. UsageError for any other number of elements.
  double item() const;
  int64_t item_int() const;

  // Element `index` of dim 0, a view: select(*this, 0, index), which the room of ops defines: only what indexes tensors
  // must link it. Const, so that `x[i] = y`, which would rebind a temporary, does not compile: copy_(x[i], y) writes.
  const Tensor operator[](SymInt index) const;  // NOLINT(readability-const-return-type)

  const StorageRef& storage() const { return impl_->storage; }
  uint32_t version() const { return impl_->storage->version(); }
  StageMask stages() const { return impl_->stages; }
  TensorImpl* impl() const { return impl_.get(); }  // null: undefined
  // Extensions that other rooms and users have attached to this tensor.
  TensorExtensions& extensions() const { return impl_->extensions; }

  // Another view of the same storage, not recorded by autograd, unlike the view ops in tutti/ops.
  Tensor view_as(const Extents& sizes, const Extents& strides, int64_t offset) const;
  // A separate tensor with the same view, the same stages and the extensions that an alias gets, not recorded by
  // autograd.
  Tensor alias() const;

 private:
  static bool is_dense(const Tensor& t, const Shape&) { return t.impl_->contiguous; }
  void fix_sizes() const;
  void fix_strides() const;
  void fix_offset() const;
  TensorHandle impl_;
};

// "[2, 3] f32 cpu", for error messages.
std::string describe(const Tensor& t);

// The elements as readable text: rows are in brackets, long dims are elided.
std::string to_string(const Tensor& t);
std::ostream& operator<<(std::ostream& out, const Tensor& t);

// Copies every element of `source` into `target`: same sizes and dtype, any strides, both on the host. Not recorded by
// autograd.
void copy_elements(const Tensor& target, const Tensor& source);
// `plain`, a tensor that is made as an operand beside `operand`, in the form in which ops take both: distributed where
// operand is.
Tensor beside(const Tensor& operand, Tensor plain);
// A dense row-major tensor with the same elements: `t` itself when it already is one.
Tensor to_contiguous(const Tensor& t);

}  // namespace tutti
