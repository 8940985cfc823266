#include "tutti/tensor/device_copy.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "tutti/runtime/device_backend.h"
#include "tutti/tensor/host_read.h"

namespace tutti {
namespace {

// Device-to-device transfers move through the host in pieces of this size.
constexpr int64_t kStagingBytes = int64_t{4} << 20;

bool is_host(Device device) { return device.kind == DeviceKind::cpu; }

// The elements that a tensor touches, counted from its first one.
struct Span {
  int64_t first = 0, count = 0;
};

Span span_of(const Tensor& t) {
  if (t.numel() == 0) return {};
  Span span{0, 1};
  for (int d = 0; d < t.ndim(); ++d) {
    const int64_t reach = (t.extents()[d] - 1) * t.strides()[d];
    span.first += std::min<int64_t>(reach, 0);
    span.count += std::abs(reach);
  }
  return span;
}

// Whether the tensor is row-major up to an order of its dims: some dim has stride 1, some other the size of that one,
// and so on. Dims of size 1 may have any stride.
bool is_dense_in_some_order(const Tensor& t) {
  std::array<bool, kMaxDims> placed{};
  int64_t expected = 1;
  for (int step = 0; step < t.ndim(); ++step) {
    int next = -1;
    for (int d = 0; d < t.ndim() && next < 0; ++d) {
      if (!placed[d] && t.extents()[d] != 1 && t.strides()[d] == expected) next = d;
    }
    if (next < 0) break;
    placed[next] = true;
    expected *= t.extents()[next];
  }
  return expected == t.numel();
}

Extents strides_of_clone(const Tensor& source) {
  if (source.is_contiguous() || !is_dense_in_some_order(source)) return contiguous_strides(source.extents());
  Extents strides = source.strides();
  for (int64_t& s : strides) s = std::max<int64_t>(s, 1);  // of a dim of size 1, where any stride is right
  return strides;
}

// One clone: knows what to blame when a step fails, and what must live until the stream is done with it.
class Clone {
 public:
  Clone(const Tensor& source, Device target, Stream& stream) : source_(source), device_(target), stream_(stream) {}

  PendingCopy run() {
    target_ = attempt(CopyStep::allocate, source_.nbytes(), [&] {
      return Tensor::empty_strided(source_.extents(), strides_of_clone(source_), source_.dtype(), device_);
    });
    keep_ = {source_, target_};
    if (source_.numel() > 0) {
      try {
        transfer();
      } catch (...) {
        hold();
        throw;
      }
    }
    hold();
    return {target_, stream_.record()};
  }

 private:
  void transfer() {
    const bool dense = is_dense_in_some_order(source_);
    if (is_host(source_.device())) {
      const Tensor packed = dense ? source_ : to_contiguous(source_);
      if (!is_host(device_)) return to_target(packed);
      stream_.submit(
          [target = target_, packed] { std::memcpy(target.raw_data(), packed.raw_data(), packed.nbytes()); });
      return;
    }
    if (dense && is_host(device_)) return from_source(target_.raw_data(), source_.raw_data(), source_.nbytes());
    if (dense && source_.device() == device_) {
      attempt(CopyStep::on_device, source_.nbytes(), [&] {
        device_backend(device_).copy_on_device(target_.raw_data(), source_.raw_data(), source_.nbytes(), device_.index,
                                               stream_);
      });
      return;
    }
    if (dense) return through_host();
    // A strided view on a device is packed on the host.
    const Tensor packed = is_host(device_) ? target_ : keep(host_tensor(source_.extents()));
    const Span span = span_of(source_);
    const int64_t item = itemsize(source_.dtype());
    const Tensor stretch = keep(host_tensor({span.count}));
    from_source(stretch.raw_data(), static_cast<char*>(source_.raw_data()) + span.first * item, span.count * item);
    stream_.submit([packed, view = stretch.view_as(source_.extents(), source_.strides(), -span.first)] {
      copy_elements(packed, view);
    });
    if (!is_host(device_)) to_target(packed);
  }

  // Piece by piece through one buffer; the stream's order keeps the pieces apart.
  void through_host() {
    const int64_t nbytes = source_.nbytes(), piece = std::min(nbytes, kStagingBytes);
    const Tensor staging = keep(attempt(CopyStep::allocate, piece, [&] { return Tensor::empty({piece}, DType::u8); }));
    for (int64_t at = 0; at < nbytes; at += piece) {
      const int64_t n = std::min(piece, nbytes - at);
      from_source(staging.raw_data(), static_cast<char*>(source_.raw_data()) + at, n);
      to_target(staging.raw_data(), static_cast<char*>(target_.raw_data()) + at, n);
    }
  }

  void from_source(void* host, const void* data, int64_t nbytes) {
    attempt(CopyStep::device_to_host, nbytes, [&] {
      device_backend(source_.device()).copy_to_host(host, data, nbytes, source_.device().index, stream_);
    });
  }
  void to_target(const void* host, void* data, int64_t nbytes) {
    attempt(CopyStep::host_to_device, nbytes,
            [&] { device_backend(device_).copy_from_host(data, host, nbytes, device_.index, stream_); });
  }
  void to_target(const Tensor& packed) { to_target(keep(packed).raw_data(), target_.raw_data(), packed.nbytes()); }

  Tensor host_tensor(const Extents& sizes) {
    return attempt(CopyStep::allocate, numel_of(sizes) * itemsize(source_.dtype()),
                   [&] { return Tensor::empty(sizes, source_.dtype()); });
  }

  template <class Fn>
  auto attempt(CopyStep step, int64_t nbytes, Fn&& fn) -> decltype(fn()) {
    try {
      return fn();
    } catch (const EnvironmentError& e) {
      throw DeviceCopyError(step, source_.device(), device_, source_.extents(), nbytes, e.what());
    }
  }

  Tensor keep(const Tensor& t) {
    keep_.push_back(t);
    return t;
  }
  // Also after a failure: pieces given to the stream before it still use the memory.
  void hold() {
    stream_.submit([kept = std::move(keep_)] {});
  }

  const Tensor& source_;
  const Device device_;
  Stream& stream_;
  Tensor target_;
  std::vector<Tensor> keep_;
};

void check_arguments(const Tensor& source, Device device) {
  TUTTI_CHECK(source.defined(), "clone_to: the tensor is undefined; there is nothing to copy to {}", to_string(device));
  for (Device d : {source.device(), device}) {
    if (!is_host(d)) device_backend(d);
  }
}

// After a failed call: what was given to the stream before it still holds the tensors.
void release_held(Stream& stream) {
  try {
    stream.synchronize();
  } catch (const EnvironmentError&) {
    return;  // the first failure is the one to tell
  }
}

}  // namespace

std::string_view name_of(CopyStep step) {
  static constexpr std::string_view names[] = {"allocation", "host-to-device copy", "device-to-host copy",
                                               "on-device copy"};
  return names[static_cast<int>(step)];
}

DeviceCopyError::DeviceCopyError(CopyStep step, Device source, Device target, const Extents& sizes, int64_t nbytes,
                                 std::string reason)
    : EnvironmentError(fmt::format("copy of a tensor {} from {} to {}: {} of {} bytes failed: {}", sizes,
                                   to_string(source), to_string(target), name_of(step), nbytes, reason)),
      step(step),
      source(source),
      target(target),
      sizes(sizes),
      nbytes(nbytes),
      reason(std::move(reason)) {}

Tensor clone_to(const Tensor& source, Device device) {
  check_arguments(source, device);
  before_host_read(source);
  Stream& stream = current_stream(is_host(source.device()) ? device : source.device());
  try {
    const PendingCopy copy = Clone(source, device, stream).run();
    copy.done->wait();
    return copy.tensor;
  } catch (const DeviceCopyError&) {
    release_held(stream);
    throw;
  } catch (const EnvironmentError& e) {
    const CopyStep step = is_host(source.device()) ? CopyStep::host_to_device : CopyStep::device_to_host;
    throw DeviceCopyError(step, source.device(), device, source.extents(), source.nbytes(), e.what());
  }
}

Tensor to_device(const Tensor& source, Device device) {
  return source.defined() && source.device() == device ? source : clone_to(source, device);
}

PendingCopy clone_to_async(const Tensor& source, Device device, Stream& stream) {
  check_arguments(source, device);
  before_host_read(source);
  TUTTI_CHECK(stream.device() == source.device() || stream.device() == device,
              "clone_to_async: the stream is of {}, the copy goes from {} to {}; give a stream of one of them",
              to_string(stream.device()), to_string(source.device()), to_string(device));
  return Clone(source, device, stream).run();
}

}  // namespace tutti
