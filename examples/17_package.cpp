// Lesson 17: a model goes into a file that runs without the compiler, for any batch from 1 to 32, with the same bits.
// Last line of output: same bits for batches of 1 to 32
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "tutti/deploy/package.h"
#include "tutti/ops.h"
#include "tutti/package/package.h"

using namespace tutti;

int main(int argc, char** argv) {
  const Tensor up = uniform({64, 32}, random_key("up"), -1.0, 1.0),
               down = uniform({8, 64}, random_key("down"), -1.0, 1.0);
  const auto model = [&](const Tensor& x) { return linear(gelu(linear(x, up)), down); };
  const Tensor example = uniform({4, 32}, random_key("x"), -1.0, 1.0);

  const auto temporary = std::filesystem::temp_directory_path() / "tutti_lesson_17.tutti";
  const std::string path = argc > 1 ? argv[1] : temporary.string();
  const PackageReport report = package(
      path, model, {.name = "mlp", .dynamic = {{.name = "batch", .dims = {{0, 0}}, .least = 1, .most = 32}}}, example);
  std::printf("%lld bytes, %lld kernels for 4 instruction sets, %lld bytes of constants\n",
              static_cast<long long>(report.file_nbytes), static_cast<long long>(report.kernels),
              static_cast<long long>(report.constant_nbytes));

  const auto opened = deploy::Package::open(path);  // Tutti::deploy is all that this line and run() link
  bool same = true;
  for (int64_t batch = 1; batch <= 32; ++batch) {
    const Tensor x = uniform({batch, 32}, random_key("x"), -1.0, 1.0), live = model(x);
    const Tensor packaged = opened->run({{x}})[0];
    same = same && std::memcmp(packaged.raw_data(), live.raw_data(), static_cast<size_t>(live.nbytes())) == 0;
  }
  if (argc == 1) std::filesystem::remove(path);  // examples/run_package runs the file from C, C++ and Python
  std::printf("%s\n", same ? "same bits for batches of 1 to 32" : "different bits");
}
