// Memory that GEMM packs into: per thread, kept between calls, so that a small product allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace tutti::codegen {

// Memory of one thread that only grows; contents last until the next reserve.
class Workspace {
 public:
  // EnvironmentError when there is no memory.
  std::byte* reserve(int64_t nbytes) {
    if (nbytes > size_) grow(nbytes);
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  void grow(int64_t nbytes);

  std::unique_ptr<std::byte, Free> memory_;
  int64_t size_ = 0;
};

struct GemmWorkspaces {
  Workspace a, b, stack, tile, block, waiting, produced;
};

// The workspaces of the calling thread.
GemmWorkspaces& gemm_workspaces();

}  // namespace tutti::codegen
