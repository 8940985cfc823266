// Matrix products of OpenBLAS. Cases on stdin, answers on stdout (peer.h).
// g++ -O3 -std=c++20 -I ROOT openblas_kernels.cpp -lopenblas -o openblas_kernels && echo "gemm 1024 1024 1024 f32 kn" |
// ./openblas_kernels 1
#include <cblas.h>

#include "bench/peers/kernels/peer.h"

using namespace tutti::bench;
using namespace tutti::bench::peers;

static std::optional<Answer> run(const Case& c) {
  if (c.op != "gemm" || c.dtype != "f32" || c.layout == "packed") return std::nullopt;
  const int m = static_cast<int>(c.sizes[0]), n = static_cast<int>(c.sizes[1]), k = static_cast<int>(c.sizes[2]);
  const bool kn = c.layout == "kn";
  const Elements<float> a = random_elements<float>(c.sizes[0] * k, 1), b = random_elements<float>(c.sizes[1] * k, 2),
                        y(c.sizes[0] * n);
  const Timing time = measure([&] {
    if (m == 1)
      cblas_sgemv(CblasRowMajor, kn ? CblasTrans : CblasNoTrans, kn ? k : n, kn ? n : k, 1, b.data(), kn ? n : k,
                  a.data(), 1, 0, y.data(), 1);
    else
      cblas_sgemm(CblasRowMajor, CblasNoTrans, kn ? CblasNoTrans : CblasTrans, m, n, k, 1, a.data(), k, b.data(),
                  kn ? n : k, 0, y.data(), n);
  });
  return Answer{time, product_error(c, a, b, y), m == 1 ? "sgemv" : "sgemm"};
}

int main(int, char** argv) {
  openblas_set_num_threads(std::atoi(argv[1]));
  std::istringstream config(openblas_get_config());
  std::string name, version;
  config >> name >> version;
  return serve(version, openblas_get_corename(), run);
}
