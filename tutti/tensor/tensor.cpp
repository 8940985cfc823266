#include "tutti/tensor/tensor.h"

#include <algorithm>
#include <cstring>

#include "tutti/core/number.h"
#include "tutti/tensor/handle_watch.h"
#include "tutti/tensor/host_read.h"

namespace tutti {
namespace {

bool is_dense(const Extents& sizes, const Extents& strides) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return true;
  int64_t expected = 1;
  for (int d = sizes.ndim() - 1; d >= 0; --d) {
    if (sizes[d] != 1 && strides[d] != expected) return false;
    expected *= sizes[d];
  }
  return true;
}

TensorHandle make_impl(StorageRef storage, const Extents& sizes, const Extents& strides, int64_t offset, DType dtype) {
  TensorHandle impl(new TensorImpl);
  impl->dtype = dtype;
  impl->device = storage->device();
  for (const int64_t s : sizes)
    impl->sizes.push_back(s);  // in place: copied as a whole, it would wait for its parts to be written
  impl->extents = sizes;
  impl->strides = strides;
  impl->offset = offset;
  impl->numel = numel_of(sizes);
  impl->contiguous = is_dense(sizes, strides);
  impl->storage = std::move(storage);
  return impl;
}

void check_sizes(const char* where, const Extents& sizes) {
  for (int64_t s : sizes) TUTTI_CHECK(s >= 0, "{}: sizes {} hold a negative size", where, sizes);
}

}  // namespace

void throw_undefined_tensor() {
  throw UndefinedTensorError(
      "an undefined tensor was used where a value is needed: it was never assigned, was moved from, or is the gradient "
      "of a tensor that nothing depends on; "
      "ask defined() first");
}

Tensor Tensor::empty(const Extents& sizes, DType dtype, Device device) {
  check_sizes("empty", sizes);
  const int64_t nbytes = checked_mul(numel_of(sizes), itemsize(dtype));
  Tensor t;
  t.impl_ = make_impl(StorageRef::adopt(Storage::allocate(nbytes, device)), sizes, contiguous_strides(sizes), 0, dtype);
  return t;
}

Tensor Tensor::empty_strided(const Extents& sizes, const Extents& strides, DType dtype, Device device) {
  check_sizes("empty_strided", sizes);
  TUTTI_CHECK_EQ(sizes.ndim(), strides.ndim(), "empty_strided: sizes {} and strides {} differ in length", sizes,
                 strides);
  int64_t last = numel_of(sizes) == 0 ? -1 : 0;
  for (int d = 0; d < sizes.ndim() && last >= 0; ++d) {
    TUTTI_CHECK(strides[d] >= 0, "empty_strided: invalid strides for dim {}: {} (sizes {}); strides are not negative",
                d, strides[d], sizes);
    last = checked_add(last, checked_mul(sizes[d] - 1, strides[d]));
  }
  Tensor t;
  t.impl_ = make_impl(StorageRef::adopt(Storage::allocate(checked_mul(last + 1, itemsize(dtype)), device)), sizes,
                      strides, 0, dtype);
  return t;
}

Tensor Tensor::over(StorageRef storage, const Extents& sizes, const Extents& strides, int64_t offset, DType dtype) {
  check_sizes("view", sizes);
  TUTTI_CHECK_EQ(sizes.ndim(), strides.ndim(), "view: sizes {} and strides {} differ in length", sizes, strides);
  int64_t first = offset, last = offset;
  for (int d = 0; d < sizes.ndim(); ++d) {
    const int64_t reach = checked_mul(std::max<int64_t>(sizes[d] - 1, 0), strides[d]);
    int64_t& end = reach < 0 ? first : last;
    end = checked_add(end, reach);
  }
  const int64_t capacity = storage->nbytes() / itemsize(dtype);
  if (numel_of(sizes) > 0) {
    TUTTI_CHECK(first >= 0 && last < capacity,
                "view: sizes {}, strides {}, offset {} reach elements {} to {}, the storage holds {} of {}", sizes,
                strides, offset, first, last, capacity, name_of(dtype));
  }
  Tensor t;
  t.impl_ = make_impl(std::move(storage), sizes, strides, offset, dtype);
  return t;
}

Tensor Tensor::from_memory(void* data, const Extents& sizes, DType dtype, std::function<void()> release,
                           Device device) {
  check_sizes("from_memory", sizes);
  const int64_t nbytes = checked_mul(numel_of(sizes), itemsize(dtype));
  TUTTI_CHECK(data != nullptr || nbytes == 0, "from_memory: a null pointer for sizes {} of {}", sizes, name_of(dtype));
  Tensor t;
  t.impl_ = make_impl(StorageRef::adopt(Storage::wrap(data, nbytes, device, std::move(release))), sizes,
                      contiguous_strides(sizes), 0, dtype);
  return t;
}

Tensor Tensor::view_as(const Extents& sizes, const Extents& strides, int64_t offset) const {
  if (HandleNotes* notes = HandleNotes::current())
    notes->read(*this);  // another tensor on this memory is no copy of the handle
  return over(impl_->storage, sizes, strides, offset, dtype());
}

Tensor Tensor::alias() const {
  if (HandleNotes* notes = HandleNotes::current()) notes->read(*this);
  Tensor t = over(impl_->storage, impl_->extents, impl_->strides, impl_->offset, dtype());
  t.impl_->sizes = impl_->sizes;
  t.impl_->stages = impl_->stages;
  t.impl_->traced = impl_->traced;
  impl_->extensions.copy_to(t.impl_->extensions);
  return t;
}

void Tensor::fix_sizes() const { concrete(sizes()); }

void Tensor::fix_strides() const {
  decide(
      *this, [](const Tensor& t, const Shape& about) { return t.strides() == concrete(about); },
      to_shape(impl_->strides));
}

void Tensor::fix_offset() const {
  decide(*this, [](const Tensor& t, const Shape& about) { return t.offset() == about[0].value(); }, {impl_->offset});
}

static Tensor readable_element(const Tensor& t) {
  TUTTI_CHECK(t.defined(), "item: the tensor is undefined");
  TUTTI_CHECK(t.numel() == 1, "item: the tensor {} has {} elements; expected exactly one", describe(t), t.numel());
  TUTTI_CHECK(t.device().kind == DeviceKind::cpu, "item: the tensor {} is not on the cpu; copy it there first",
              describe(t));
  Tensor whole;
  t.extensions().any([&](const TensorExtension& e) { return (whole = e.whole(t)).defined(); });
  return host_readable(whole.defined() ? whole : t);
}

double Tensor::item() const {
  const Tensor element = readable_element(*this);
  return load_as_double(element.raw_data(), element.dtype());
}

int64_t Tensor::item_int() const {
  const Tensor element = readable_element(*this);
  return load_as_int64(element.raw_data(), element.dtype());
}

std::string describe(const Tensor& t) {
  if (!t.defined()) return "<undefined>";
  std::string more;
  t.extensions().any([&](const TensorExtension& e) { return !(more = e.description()).empty(); });
  return fmt::format("{} {} {}{}{}", t.sizes(), name_of(t.dtype()), to_string(t.device()), more.empty() ? "" : " ",
                     more);
}

Tensor beside(const Tensor& operand, Tensor plain) {
  Tensor made;
  operand.extensions().any([&](const TensorExtension& e) { return (made = e.beside(plain)).defined(); });
  return made.defined() ? made : plain;
}

static void copy_dim(char* target, const char* source, const Tensor& t, const Tensor& s, int dim, int64_t item) {
  if (dim == t.ndim()) {
    std::memcpy(target, source, static_cast<size_t>(item));
    return;
  }
  const int64_t n = t.extents()[dim], ts = t.strides()[dim] * item, ss = s.strides()[dim] * item;
  if (dim == t.ndim() - 1 && ts == item && ss == item) {
    std::memcpy(target, source, static_cast<size_t>(n * item));
    return;
  }
  for (int64_t i = 0; i < n; ++i) copy_dim(target + i * ts, source + i * ss, t, s, dim + 1, item);
}

void copy_elements(const Tensor& target, const Tensor& source) {
  TUTTI_CHECK(
      target.defined() && source.defined() && target.extents() == source.extents() && target.dtype() == source.dtype(),
      "copy: the target is {}, the source {}; sizes and dtypes must agree", describe(target), describe(source));
  TUTTI_CHECK(target.device().kind == DeviceKind::cpu && source.device().kind == DeviceKind::cpu,
              "copy: from {} to {}; both must be on the cpu, move one with to_device()", describe(source),
              describe(target));
  if (target.numel() == 0) return;
  before_host_read(source);
  copy_dim(static_cast<char*>(target.raw_data()), static_cast<const char*>(source.raw_data()), target, source, 0,
           itemsize(target.dtype()));
}

Tensor to_contiguous(const Tensor& handle) {
  const Tensor t = host_readable(handle);  // whoever asks for this reads the memory next
  if (t.is_contiguous()) return t;
  Tensor result = Tensor::empty(t.extents(), t.dtype(), t.device());
  copy_elements(result, t);
  return result;
}

}  // namespace tutti
