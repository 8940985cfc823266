// libtutti_onednn.so: products of oneDNN, in f32 and, where the processor multiplies it, bf16.
#include <fmt/format.h>
#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#include <string>

#include "tutti/codegen/gemm/library.h"

namespace tutti::codegen {
namespace {

using dnnl::memory;

// The library shares its loops out over OpenMP's threads; this one does all of them.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

bool multiplies_bf16() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa()),
             bf16 = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (isa & bf16) == bf16;
}

bool multiplies(DType a, DType b, DType c) {
  if (a == DType::bf16) return b == a && (c == DType::bf16 || c == DType::f32) && multiplies_bf16();
  return a == DType::f32 && b == a && c == a;
}

memory::desc describe(int64_t rows, int64_t columns, DType dtype, int64_t row_stride, int64_t column_stride) {
  return {{rows, columns},
          dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32,
          memory::dims{row_stride, column_stride}};
}

dnnl::matmul::primitive_desc describe_product(const dnnl::engine& engine, const memory::desc& a, const memory::desc& b,
                                              const memory::desc& c) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine, a, b, c};
#else
  return {dnnl::matmul::desc(a, b, c), engine};
#endif
}

const char* multiply(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b, const GemmResult& c) {
  thread_local std::string complaint;
  try {
    const OneThread alone;
    thread_local const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
    thread_local dnnl::stream stream(engine);
    const memory::desc left = describe(m, k, a.dtype, a.row_stride, a.column_stride),
                       right = describe(k, n, b.dtype, b.row_stride, b.column_stride),
                       result = describe(m, n, c.dtype, c.row_stride, 1);
    // Made for sizes and strides; oneDNN keeps those it has made.
    const dnnl::matmul product(describe_product(engine, left, right, result));
    const auto at = [&](const memory::desc& desc, const void* data) {
      return memory(desc, engine, const_cast<void*>(data));
    };
    product.execute(
        stream,
        {{DNNL_ARG_SRC, at(left, a.data)}, {DNNL_ARG_WEIGHTS, at(right, b.data)}, {DNNL_ARG_DST, at(result, c.data)}});
    stream.wait();
    return nullptr;
  } catch (const std::exception& error) {
    complaint = error.what();
    return complaint.c_str();
  }
}

}  // namespace
}  // namespace tutti::codegen

extern "C" __attribute__((visibility("default"))) const tutti::codegen::GemmLibrary* tutti_gemm_library() {
  const dnnl_version_t* version = dnnl::version();
  static const std::string name = fmt::format("oneDNN {}.{}.{}", version->major, version->minor, version->patch);
  static const tutti::codegen::GemmLibrary library{name.c_str(), tutti::codegen::multiplies, tutti::codegen::multiply};
  return &library;
}
