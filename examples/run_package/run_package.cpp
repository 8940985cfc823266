// Runs a package from C++17 with the header alone that wraps the C interface.
//
//   run_package_cpp FILE [NAME=SIZE]...
//
// For functions without state, whose arguments are floats or whole numbers of 32 and 64 bits; the arguments and what is
// printed are those of run_package.c then.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tutti/deploy/tutti_runtime.hpp"

namespace runtime = tutti::runtime;

namespace {

// The size that the command line gives the name, or `least`.
int64_t chosen(const std::string& name, int64_t least, int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    if (std::string(argv[i]).rfind(name + "=", 0) == 0) return std::atoll(argv[i] + name.size() + 1);
  }
  return least;
}

// Element i is (i % 7 - 3) / 4, of integers i % 2.
void fill(const tutti_tensor& t) {
  for (int64_t i = 0; i < runtime::num_elements(t); ++i) {
    const float value = (static_cast<float>(i % 7) - 3) / 4;
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    if (t.dtype == TUTTI_F32) static_cast<float*>(t.data)[i] = value;
    if (t.dtype == TUTTI_BF16) static_cast<uint16_t*>(t.data)[i] = static_cast<uint16_t>(bits >> 16);  // exact
    if (t.dtype == TUTTI_I64) static_cast<int64_t*>(t.data)[i] = i % 2;
    if (t.dtype == TUTTI_I32) static_cast<int32_t*>(t.data)[i] = static_cast<int32_t>(i % 2);
    if (t.dtype == TUTTI_BOOL) static_cast<uint8_t*>(t.data)[i] = static_cast<uint8_t>(i % 2);
  }
}

void print(size_t k, const runtime::Result& result) {
  uint64_t hash = 14695981039346656037u;
  for (int64_t i = 0; i < result.nbytes(); ++i)
    hash = (hash ^ static_cast<const unsigned char*>(result.data())[i]) * 1099511628211u;
  std::printf("result %zu:", k);
  for (const int64_t size : result.sizes()) std::printf(" %lld", static_cast<long long>(size));
  std::printf(" hash %016llx", static_cast<unsigned long long>(hash));
  if (result.dtype() == TUTTI_F32 && result.numel() > 0)
    std::printf(" first %a", static_cast<double>(*result.data<float>()));
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: run_package_cpp FILE [NAME=SIZE]...\n");
    return 2;
  }
  try {
    const runtime::Package package(argv[1]);
    const tutti_package_info about = package.info();
    std::printf("%s, made by Tutti %s: %d inputs, %d outputs, %lld combinations of sizes\n", about.function,
                about.made_by, about.inputs, about.outputs, static_cast<long long>(about.combinations));
    std::vector<runtime::Result> memory;  // of the inputs
    std::vector<tutti_tensor> inputs;
    for (int32_t i = 0; i < about.inputs; ++i) {
      const tutti_input_info info = package.input(i);
      tutti_tensor t{};
      t.dtype = info.dtype;
      t.ndim = info.ndim;
      for (int32_t d = 0; d < info.ndim; ++d)
        t.sizes[d] = info.name[d] == nullptr ? info.least[d] : chosen(info.name[d], info.least[d], argc, argv);
      memory.emplace_back(t);
      inputs.push_back(memory.back().tensor());
      fill(inputs.back());
    }
    const std::vector<runtime::Result> results = package.run(inputs);
    for (size_t k = 0; k < results.size(); ++k) print(k, results[k]);
  } catch (const runtime::Error& error) {
    std::fprintf(stderr, "error %d: %s\n", static_cast<int>(error.code()), error.what());
    return 1;
  }
}
