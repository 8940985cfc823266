// libtutti_openblas.so: products of OpenBLAS, in f32 and f64.
#include <cblas.h>

#include <semaphore>
#include <string>

#include "tutti/codegen/gemm/library.h"

namespace tutti::codegen {
namespace {

bool multiplies(DType a, DType b, DType c) { return a == b && b == c && (a == DType::f32 || a == DType::f64); }

struct Side {
  CBLAS_TRANSPOSE transpose;
  blasint stride;
};

Side side_of(const GemmOperand& x) {
  return x.column_stride == 1 ? Side{CblasNoTrans, static_cast<blasint>(x.row_stride)}
                              : Side{CblasTrans, static_cast<blasint>(x.column_stride)};
}

// Each call takes one of a fixed number of work spaces, and ends the process when there is none. A build for fewer is
// not known.
constexpr int kMostCallers = 64;
std::counting_semaphore<kMostCallers> callers(kMostCallers);

const char* multiply(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b, const GemmResult& c) {
  const Side left = side_of(a), right = side_of(b);
  const auto run = [&]<class T>(auto function, T one) {
    function(CblasRowMajor, left.transpose, right.transpose, static_cast<blasint>(m), static_cast<blasint>(n),
             static_cast<blasint>(k), one, static_cast<const T*>(a.data), left.stride, static_cast<const T*>(b.data),
             right.stride, T{0}, static_cast<T*>(c.data), static_cast<blasint>(c.row_stride));
  };
  callers.acquire();
  if (c.dtype == DType::f32) run(cblas_sgemm, 1.0F);
  else run(cblas_dgemm, 1.0);
  callers.release();
  return nullptr;
}

// "OpenBLAS 0.3.21" of all that it says of itself.
std::string name_of_library() {
  const std::string all = openblas_get_config();
  return all.substr(0, all.find(' ', all.find(' ') + 1));
}

}  // namespace
}  // namespace tutti::codegen

extern "C" __attribute__((visibility("default"))) const tutti::codegen::GemmLibrary* tutti_gemm_library() {
  openblas_set_num_threads(1);  // threads are those of the pool; the setting is the process's
  static const std::string name = tutti::codegen::name_of_library();
  static const tutti::codegen::GemmLibrary library{name.c_str(), tutti::codegen::multiplies, tutti::codegen::multiply};
  return &library;
}
