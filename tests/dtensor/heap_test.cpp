// What a remembered call allocates: no more than the op on the parts does. Counts every call of operator new of a
// thread. Sanitizers have an operator new of their own, and see every object: with them there is nothing to count.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <cstdlib>
#include <new>

#include "tests/dtensor/support/mesh_ranks.h"
#include "tutti/autograd/tape.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/matmul.h"
#include "tutti/ops/permute.h"

namespace {
thread_local int64_t allocations = 0;
}

[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tutti::dist {
namespace {

int64_t allocations_of(const std::function<void()>& call) {
  for (int i = 0; i < 5; ++i) call();
  const int64_t before = allocations;
  for (int i = 0; i < 10; ++i) call();
  return allocations - before;
}

TEST(DTensorHeap, ARememberedCallAllocatesWhatThePlainOneDoes) {
  on_mesh({2}, [](const Mesh& mesh) {
    const NoGradScope no_grad;
    const Tensor x = distribute_tensor(sample({8, 8}), mesh, {shard(0)}),
                 w = distribute_tensor(sample({8, 8}), mesh, {});
    const Tensor x_part = clone(to_local(x)), w_part = clone(to_local(w));
    EXPECT_EQ(allocations_of([&] { add(x, x); }), allocations_of([&] { add(x_part, x_part); }));
    EXPECT_EQ(allocations_of([&] { mul(x, 0.5); }), allocations_of([&] { mul(x_part, 0.5); }));
    EXPECT_EQ(allocations_of([&] { matmul(x, w); }), allocations_of([&] { matmul(x_part, w_part); }));
    EXPECT_EQ(allocations_of([&] { transpose(x, 0, 1); }), allocations_of([&] { transpose(x_part, 0, 1); }));
  });
}

}  // namespace
}  // namespace tutti::dist

#endif
