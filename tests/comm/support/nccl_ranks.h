// Ranks as threads over the fake NCCL, each with a backend of its own; "device" tensors are host memory.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tutti/comm/nccl/nccl_backend.h"

namespace tutti::comm::testing {

// The fake libraries, opened once.
std::shared_ptr<const NcclApi> fake_nccl();
std::shared_ptr<const GpuApi> fake_gpu();
// The n-th call of NCCL from now returns `result`.
void fail_nccl_call(int n, int result);
// The communicators of `rank` report `result` from now on.
void break_nccl_rank(int rank, int result);

// A tensor of device cuda:<rank> with these values.
template <class T>
Tensor on_gpu(int rank, const std::vector<T>& values, const Extents& sizes) {
  auto* data = new std::vector<T>(values);
  return Tensor::from_memory(data->data(), sizes, dtype_of<T>, [data] { delete data; },
                             {DeviceKind::cuda, static_cast<int16_t>(rank)});
}
template <class T>
Tensor on_gpu(int rank, const std::vector<T>& values) {
  return on_gpu(rank, values, {static_cast<int64_t>(values.size())});
}
// `n` elements of any dtype, element i being value(i).
Tensor filled(int rank, DType dtype, int64_t n, const std::function<double(int64_t)>& value);
template <class T>
std::vector<T> values_of(const Tensor& t) {
  return {t.data<T>(), t.data<T>() + t.numel()};
}
double value_at(const Tensor& t, int64_t i);

// Runs `body` on every rank. Failures of a rank are rethrown here, the first one.
void with_nccl_ranks(
    int size, const std::function<void(NcclBackend&)>& body,
    const std::function<void(NcclOptions&)>& configure = [](NcclOptions&) {});

}  // namespace tutti::comm::testing
